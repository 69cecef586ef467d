"""`help` and `version`.

Knows texts. Must not know what verbs do.
"""

from __future__ import annotations

from argparse import Namespace

from ..version import VERSION
from .codes import MEANINGS, SIGNALLED
from .configuration import KEYS, SYSTEM_FILE
from .options import VERBS, Usage, parser_of

_FIRST = """\
holdfast: locks on Redis and Valkey, for shells, cron, systemd and containers.

  holdfast run NAME -- CMD       run a command while holding a lock
  holdfast local -- CMD          try it: nodes for this command, gone with it

Say where the nodes are: HOLDFAST_NODES='redis://a redis://b redis://c', or `holdfast help
configuration`.

verbs:
"""
_LAST = """
`holdfast help VERB` has options and examples. `holdfast help 76` explains an exit status."""
_CONFIGURATION = f"""\
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
mode 0600. No file of the working directory is read."""


def version(options: Namespace) -> int:
    """Print the version."""
    print(f"holdfast {VERSION}")
    return 0


def help(options: Namespace) -> int:  # noqa: A001 (the verb's name)
    """Explain a verb, an exit status, or the configuration."""
    topic = options.topic
    if topic is None:
        width = max(map(len, VERBS))
        print(_FIRST + "\n".join(f"  {name:{width}}  {verb.does}" for name, verb in VERBS.items()) + _LAST)
    elif topic == "configuration":
        print(_CONFIGURATION)
    elif topic == "man":
        from .manual import manual

        print(manual(), end="")
    elif topic.isdigit():
        print(_status(int(topic)))
    else:
        print(parser_of(topic).format_help(), end="")
    return 0


def _status(code: int) -> str:
    if code in MEANINGS:
        return f"{code}: {MEANINGS[code]}"
    if SIGNALLED < code < SIGNALLED + 65:
        return f"{code}: The command died of signal {code - SIGNALLED}."
    if 0 <= code < 256:
        return f"{code}: The command's own exit status."
    raise Usage(f"{code} is no exit status: these are 0 to 255")
