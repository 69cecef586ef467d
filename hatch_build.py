"""Prepares README.md for the package index, which shows it away from the repository.

hatchling runs this while it builds a distribution. Links to files of the repository lead nowhere on
the package index, so they become absolute if `[project.urls]` has a `Source`, and text otherwise.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# A Markdown link or image whose target is neither an address nor an anchor of the same page.
_RELATIVE = re.compile(r'(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)\s]+)(?: "[^"]*")?\)')


def for_index(readme: str, source: str | None) -> str:
    """Return the README with links that work outside of the repository.

    Args:
        readme: The text of README.md.
        source: The address under which the repository's files are shown, or None if there is none.

    Returns:
        The text with absolute links. Without `source`, a link is replaced by its text, links to
        tests and images are left out.
    """

    def replaced(link: re.Match[str]) -> str:
        if source is not None:
            return f"{link['image']}[{link['text']}]({source.rstrip('/')}/{link['target']})"
        return "" if link["image"] or link["text"] == "test" else link["text"]

    return _RELATIVE.sub(replaced, readme)


class IndexReadme(MetadataHookInterface):
    """Sets the long description of a distribution."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` in the metadata of the project."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(readme, source)}
