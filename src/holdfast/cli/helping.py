"""The text of `holdfast --help`.

Knows texts. Must not know what verbs do.
"""

from __future__ import annotations

from .codes import MEANINGS
from .configuration import KEYS, SYSTEM_FILE
from .options import VERBS

_FIRST = """\
holdfast: locks on Redis and Valkey, for shells, cron, systemd and containers.

  holdfast run NAME -- CMD       run a command while holding a lock
  holdfast local -- CMD          try it: nodes for this command, gone with it

Say where the nodes are: HOLDFAST_NODES='redis://a redis://b redis://c', or in a file. Options and
examples of a verb: `holdfast VERB --help`.

verbs:
"""
_LAST = """

`holdfast --help` also explains the configuration and the exit statuses."""
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
