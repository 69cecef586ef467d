"""Writes the manual page of the command and its completion for shells: python deploy/command.py

The files go into the wheel as they are here, so that neither a build nor an installation needs the
two libraries that write them. A test compares the files with what this program writes.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from holdfast.cli.codes import MEANINGS
from holdfast.cli.configuration import SYSTEM_FILE
from holdfast.cli.options import GAPS, VERBS, parser_of
from holdfast.version import VERSION

FOLDER = Path(__file__).parent / "command"
# What a word after the options of `run` may be. `{…}` is code for zsh.
COMMANDS = {
    "bash": "_holdfast_commands",
    "zsh": "{_command_names -e; _files}",
    "fish": "(__fish_complete_command)",
    "preamble": {"bash": '_holdfast_commands() { compgen -c -- "$1"; compgen -f -- "$1"; }'},
}
ABOUT = """\
A lock is on 1, 3 or 5 independent servers, and is held if a majority of them has granted it.
HOLDFAST_NODES says where they are, separated by spaces.

"""
VARIABLES = {
    "HOLDFAST_NODES": "Addresses of the nodes, separated by spaces. Other options have such variables, too.",
    "HOLDFAST_CONFIG": "A configuration file, as --config.",
    "HOLDFAST_PROFILE": "A table of the configuration file, as --profile.",
    "HOLDFAST_FENCE": "Set for the command: the fencing token of its lock.",
    "HOLDFAST_TOKEN": "Set for the command: the token of its lease, which `holdfast check` compares.",
    "HOLDFAST_HELD": "Set for the command: all names that processes around it hold.",
    "NO_COLOR": "If it is set, nothing is colored.",
}
FILES = {
    "~/.config/holdfast/config.toml": "Settings of the user, in TOML.",
    SYSTEM_FILE: "Settings of the system. No file of the working directory is read.",
}
STATUSES = {"0 to 255": "That of the command, for the verbs that run one.", **{str(k): v for k, v in MEANINGS.items()}}


def parser(manual: bool = False) -> ArgumentParser:
    """Make the parser of all verbs together.

    Args:
        manual: With the examples, and which nodes to use for `run` only: once is enough to read.
    """

    def verb(prog: str, **rest: object) -> ArgumentParser:
        name = prog.split()[-1]
        made = parser_of(name, None if name == "run" or not manual else list)
        if manual:
            # What the verb does is there already. Its examples are not, and lines are kept as they are.
            examples = (made.epilog or "").replace(GAPS, "").strip()
            made.description = examples and f".nf\n{examples}\n.fi"
        for action in made._actions:
            if action.dest == "rest":
                action.complete = COMMANDS  # type: ignore[attr-defined]
            elif action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        return made

    whole = ArgumentParser("holdfast", description=ABOUT + GAPS, formatter_class=RawDescriptionHelpFormatter)
    whole.add_argument("--version", action="version", version=VERSION, help="show the version")
    verbs = whole.add_subparsers(title="verbs", metavar="VERB", parser_class=verb)
    for name, it in VERBS.items():
        verbs.add_parser(name, help=it.does)
    return whole


def manual() -> str:
    """Return the manual page, as roff."""
    page = Manpage(parser(manual=True), format="single-commands-section")
    page.description = "locks on Redis and Valkey, for shells, cron, systemd and containers"
    page.date, page.source, page.manual = "", f"holdfast {VERSION}", "User Commands"
    for title, items in (("exit status", STATUSES), ("environment", VARIABLES), ("files", FILES)):
        page.add_section(title, ">", _items(items))
    page.add_section("see also", ">", ".BR flock (1),\n.BR redis\\-cli (1),\n.BR systemd.kill (5)")
    return str(page)


def _items(items: Mapping[str, str]) -> str:
    return "\n".join(f".TP\n.B {name}\n{text}" for name, text in items.items()).replace("-", "\\-")


def files() -> dict[Path, str]:
    """Return the text of each file."""
    names = {"bash": "holdfast.bash", "zsh": "_holdfast", "fish": "holdfast.fish"}
    made = {FOLDER / name: shtab.complete(parser(), shell) + "\n" for shell, name in names.items()}
    return {**made, FOLDER / "holdfast.1": manual()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")
