"""Prepares what only a distribution has: a README for the package index, a bill of materials, pages.

hatchling runs this while it builds a distribution. Links to files of the repository lead nowhere on
the package index, so they become absolute if `[project.urls]` has a `Source`, and text otherwise.
The bill of materials (CycloneDX) goes into `.dist-info/sboms/` of the wheel (PEP 770).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
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


def bill(name: str, version: str, licence: str, requirements: Iterable[str], lua: Mapping[str, bytes]) -> str:
    """Return the bill of materials of a wheel, as CycloneDX 1.6 in JSON.

    It has no time and no serial number, so that the same sources make the same wheel.

    Args:
        name: The name of the project.
        version: Its version.
        licence: Its licence, as an SPDX expression.
        requirements: What it requires, as `pyproject.toml` has it.
        lua: The scripts that the wheel contains and that servers run, by their paths.

    Returns:
        The text of the file.
    """
    own = f"pkg:pypi/{name}@{version}"
    scripts = [
        {
            "type": "file",
            "bom-ref": path,
            "name": path,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(text).hexdigest()}],
        }
        for path, text in sorted(lua.items())
    ]
    others = []
    for requirement in sorted(requirements):
        other = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        # Any version that is allowed may be installed beside it, so none is named.
        others.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{other}",
                "name": other,
                "purl": f"pkg:pypi/{other}",
                "scope": "required",
                "properties": [{"name": "holdfast:requirement", "value": requirement}],
            }
        )
    told = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"expression": licence}],
            }
        },
        "components": [*others, *scripts],
        "dependencies": [
            {"ref": own, "dependsOn": [it["bom-ref"] for it in others]},
            *({"ref": it["bom-ref"]} for it in others),
        ],
    }
    return json.dumps(told, indent=1) + "\n"


class Additions(BuildHookInterface):
    """Adds the bill of materials to a wheel, and the pages that `holdfast help` prints."""

    PLUGIN_NAME = "custom"
    _folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file, and have it added."""
        if self.target_name != "wheel":
            return
        core = self.metadata.core
        source = Path(self.root, "src")
        lua = {it.relative_to(source).as_posix(): it.read_bytes() for it in source.rglob("*.lua")}
        self._folder = tempfile.mkdtemp(prefix="holdfast-sbom-")
        file = Path(self._folder, f"{core.name}.cdx.json")
        file.write_text(bill(core.name, self.metadata.version, core.license_expression, core.dependencies, lua))
        build_data["sbom_files"].append(str(file))
        # An editable install finds the pages in the repository.
        for page in Path(self.root, "docs").glob("*.md") if version == "standard" else ():
            build_data["force_include"][str(page)] = f"holdfast/cli/pages/{page.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file, which the wheel has by now."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
