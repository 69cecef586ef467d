"""`completion`: scripts that complete verbs and options in bash, zsh and fish.

Knows the parsers. Must not know what verbs do. The scripts are text: pressing TAB starts no Python.
"""

from __future__ import annotations

from argparse import Namespace

from .options import VERBS, parser_of

_BASH = """\
# holdfast: completion for bash. Made by `holdfast completion bash`.
_holdfast() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "{verbs}" -- "$word")
        return
    fi
    case $verb in
    help) mapfile -t COMPREPLY < <(compgen -W "{verbs} configuration man" -- "$word"); return ;;
    completion) mapfile -t COMPREPLY < <(compgen -W "bash zsh fish" -- "$word"); return ;;
    esac
    case $word in -*) ;; *) mapfile -t COMPREPLY < <(compgen -c -- "$word"); return ;; esac
    local options=
    case $verb in
{cases}
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}}
complete -o default -F _holdfast holdfast
"""
_ZSH = """\
#compdef holdfast
# holdfast: completion for zsh. Made by `holdfast completion zsh`.
_holdfast() {{
    local -a verbs
    verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe verb verbs
        return
    fi
    local -a options
    case $words[2] in
{cases}
    esac
    if [[ $words[CURRENT] == -* ]]; then compadd -- $options; else _command_names -e; _files; fi
}}
_holdfast "$@"
"""


def completion(options: Namespace) -> int:
    """Print the script for a shell."""
    print(script(options.shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the script for "bash", "zsh" or "fish"."""
    known = {verb: _options(verb) for verb in VERBS}
    if shell == "bash":
        cases = "\n".join(f"        {verb}) options='{' '.join(known[verb])}' ;;" for verb in VERBS)
        return _BASH.format(verbs=" ".join(VERBS), cases=cases)
    if shell == "zsh":
        verbs = "\n".join(
            f"        '{name}:{verb.does.split('. ')[0].replace(':', ',')}'" for name, verb in VERBS.items()
        )
        cases = "\n".join(f"        {verb}) options=({' '.join(known[verb])}) ;;" for verb in VERBS)
        return _ZSH.format(verbs=verbs, cases=cases)
    lines = ["# holdfast: completion for fish. Made by `holdfast completion fish`."]
    for name, verb in VERBS.items():
        lines.append(f"complete -c holdfast -n __fish_use_subcommand -a {name} -d '{verb.does.split('. ')[0]}'")
        for option in known[name]:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c holdfast -n '__fish_seen_subcommand_from {name}' {flag}")
    return "\n".join(lines) + "\n"


def _options(verb: str) -> list[str]:
    return [it for action in parser_of(verb)._actions for it in action.option_strings]
