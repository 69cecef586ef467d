"""The manual page, holdfast(1), made from the same parsers as `--help`.

Knows the parsers, exit statuses and roff. Must not know what verbs do.
"""

from __future__ import annotations

import argparse
import re

from ..version import VERSION
from .codes import MEANINGS
from .configuration import SYSTEM_FILE
from .options import GAPS, VERBS, Verb, parser_of

_FIRST = """\
.\\" Made by `./task man`. Do not edit.
.TH HOLDFAST 1 "" "holdfast {version}" "User Commands"
.SH NAME
holdfast \\- locks on Redis and Valkey, for shells, cron, systemd and containers
.SH SYNOPSIS
.B holdfast
.I VERB
[options] ...
.SH DESCRIPTION
A lock is on 1, 3 or 5 independent servers, and is held if a majority of them has granted it.
HOLDFAST_NODES says where they are, separated by spaces.
.PP
"""
_VARIABLES = {
    "HOLDFAST_NODES": "Addresses of the nodes, separated by spaces. Other options have such variables, too.",
    "HOLDFAST_CONFIG": "A configuration file, as --config.",
    "HOLDFAST_PROFILE": "A table of the configuration file, as --profile.",
    "HOLDFAST_FENCE": "Set for the command: the fencing token of its lock.",
    "HOLDFAST_TOKEN": "Set for the command: the token of its lease, which `holdfast check` compares.",
    "HOLDFAST_HELD": "Set for the command: all names that processes around it hold.",
    "NO_COLOR": "If it is set, nothing is colored.",
}


def manual() -> str:
    """Return the page, as roff."""
    parts = [_FIRST.format(version=VERSION), _paragraphs(GAPS), ".SH VERBS\n"]
    parts += [_verb(name, verb) for name, verb in VERBS.items()]
    parts.append(".SH EXIT STATUS\n")
    parts.append(_item("0 to 255", "That of the command, for the verbs that run one."))
    parts += [_item(str(code), meaning) for code, meaning in MEANINGS.items()]
    parts.append(".SH ENVIRONMENT\n")
    parts += [_item(name, meaning) for name, meaning in _VARIABLES.items()]
    parts.append(".SH FILES\n")
    parts += [
        _item("~/.config/holdfast/config.toml", "Settings of the user, in TOML."),
        _item(SYSTEM_FILE, "Settings of the system. No file of the working directory is read."),
    ]
    parts.append(".SH SEE ALSO\n.BR flock (1),\n.BR redis\\-cli (1),\n.BR systemd.kill (5)\n")
    return "".join(parts)


def _verb(name: str, verb: Verb) -> str:
    parser = parser_of(name)
    usage = f"holdfast {name} [options] {verb.usage}".rstrip()
    parts = [f".SS {name}\n.B {_escaped(usage)}\n.PP\n{_escaped(verb.does)}\n"]
    for action in parser._actions:
        # What says which nodes is the same for all verbs: once is enough.
        common = action in _common(parser) and name != "run"
        if action.help in (argparse.SUPPRESS, None) or action.dest == "help" or common:
            continue
        parts.append(_item(_named(action), f"{action.help or ''}{_choices(action)}"))
    examples = verb.examples.replace(GAPS, "").strip("\n")
    if examples:
        parts.append(f".PP\n.nf\n{_escaped(examples)}\n.fi\n")
    return "".join(parts)


def _common(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [it for group in parser._action_groups if group.title == "which nodes" for it in group._group_actions]


def _named(action: argparse.Action) -> str:
    shown = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return shown
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {'|'.join(action.choices) if action.choices else shown}"


def _choices(action: argparse.Action) -> str:
    return f": {', '.join(action.choices)}" if action.choices and not action.option_strings else ""


def _item(name: str, text: str) -> str:
    return f".TP\n.B {_escaped(name)}\n{_escaped(text)}\n"


def _paragraphs(text: str) -> str:
    return ".PP\n".join(f"{_escaped(it.strip())}\n" for it in text.split("\n\n"))


def _escaped(text: str) -> str:
    """Escape what roff would read as its own, such as a point that begins a line."""
    return re.sub(r"(?m)^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))
