"""The text of `holdfast --help`, and the pages of the documentation for `holdfast help PAGE`.

Knows texts. Must not know what verbs do.
"""

from __future__ import annotations

import re
from pathlib import Path

from .codes import MEANINGS
from .configuration import KEYS, SYSTEM_FILE
from .options import VERBS, Usage

# In a wheel, and in the repository.
PAGES = (Path(__file__).with_name("pages"), Path(__file__).parents[3] / "docs")
_TITLE = re.compile(r"^(#+) (.*)$", re.MULTILINE)

_FIRST = """\
holdfast: locks on Redis and Valkey, for shells, cron, systemd and containers.

  holdfast run NAME -- CMD       run a command while holding a lock
  holdfast local -- CMD          try it: nodes for this command, gone with it

Say where the nodes are: HOLDFAST_NODES='redis://a redis://b redis://c', or in a file. Options and
examples of a verb: `holdfast VERB --help`.

verbs:
"""
_LAST = """

`holdfast --help` also explains the configuration and the exit statuses.
`holdfast help errors noquorum` prints what the documentation says of an error."""
_MORE = f"""

configuration:
Each setting comes from the first of these places that has one:

  1. the command line       --max-ttl 60s
  2. the environment        HOLDFAST_MAX_TTL=60
  3. --config FILE          or HOLDFAST_CONFIG
  4. the user's file        ~/.config/holdfast/config.toml
  5. the system's file      {SYSTEM_FILE}

Files are TOML. --profile NAME (or HOLDFAST_PROFILE) uses the table [profile.NAME] first:

  nodes = ["redis://a", "redis://b", "redis://c"]
  max_ttl = "30s"

  [profile.staging]
  nodes = ["redis://staging"]

Settings: {", ".join(KEYS)}.
All clients of the same nodes need the same nodes and max_ttl. A file with a password in it must have
mode 0600. No file of the working directory is read.

exit status: the command's own; 128 + N if it died of signal N; or one of these:
"""


def overview(whole: bool = True) -> str:
    """Return the verbs, and with `whole` the configuration and the exit statuses, too."""
    width = max(map(len, VERBS))
    text = _FIRST + "\n".join(f"  {name:{width}}  {verb.does}" for name, verb in VERBS.items())
    if not whole:
        return text + _LAST
    return text + _MORE + "\n".join(f"{code:>5}  " + it.replace("\n", "\n" + 7 * " ") for code, it in MEANINGS.items())


def page(address: str = "", *section: str) -> str:
    """Return a page of the documentation, or a section of it.

    Args:
        address: The name of the page, such as "errors", or an address as errors have it, such as
            "holdfast/errors#noquorum". "": the text of `--help`.
        section: The title of the section, such as "NoQuorum".

    Raises:
        Usage: There is no such page or section.
    """
    if not address:
        return overview()
    name, _, title = address.strip("[]").rpartition("/")[2].partition("#")
    pages = {it.stem: it for folder in PAGES for it in sorted(folder.glob("*.md"))}
    if (file := pages.get(name.removesuffix(".md"))) is None:
        raise Usage(f"there is no page {name!r}. Pages are {', '.join(pages)}")
    text = file.read_text(encoding="utf-8").rstrip()
    if not (wanted := _anchor(title or " ".join(section))):
        return text
    titles = list(_TITLE.finditer(text))
    for at, found in enumerate(titles):
        if _anchor(found[2]) == wanted:
            ends = (it.start() for it in titles[at + 1 :] if len(it[1]) <= len(found[1]))
            return text[found.start() : next(ends, len(text))].rstrip()
    raise Usage(f"page {name!r} has no section {wanted!r}. It has {', '.join(_anchor(it[2]) for it in titles)}")


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
