"""The command line: which verbs there are, their options, and their help.

Knows `argparse`. Must not know what a verb does. Only the parser of the verb that is asked for is
made.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Never

from ..errors import ConfigError, message_of
from . import durations
from .codes import BUSY, USAGE

Parser = argparse.ArgumentParser


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
        usage: What follows the verb, after its options.
        does: What it does, in a line.
        options: Adds its options and arguments to a parser.
        examples: Lines for the end of its help.
        runs: The function that does it, as "module:name".
        connects: Whether it uses nodes, and has the options that say which.
    """

    usage: str
    does: str
    options: Callable[[Parser], None]
    examples: str
    runs: str
    connects: bool = True


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        raise Usage(f"{message}. `{self.prog} --help` has the options and examples")


class Usage(Exception):
    """The command line is wrong."""

    code = USAGE


def _value(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader for argparse, whose complaint is the error's own."""

    def reads(text: str) -> Any:
        try:
            return read(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(message_of(error)) from None

    return reads


duration = _value(durations.seconds_of)
slot = _value(durations.slot_of)
rate = _value(durations.rate_of)


def addresses(text: str) -> list[str]:
    """Read addresses of nodes. None at all, as of a variable that is not set, is a mistake."""
    if not (found := text.split()):
        raise argparse.ArgumentTypeError("there is no address. Leave the option out to use other settings")
    return found


def exit_status(text: str) -> int:
    """Read an exit status."""
    if not (text.isascii() and text.isdigit() and int(text) <= 255):
        raise argparse.ArgumentTypeError(f"{text!r} is no exit status. Write a number from 0 to 255")
    return int(text)


def parser_of(name: str, client: Callable[[], Any] | None = None) -> Parser:
    """Make the parser of a verb.

    Args:
        name: The verb.
        client: Makes the client, in place of the options that say which nodes to use.

    Raises:
        Usage: There is no such verb.
    """
    if name not in VERBS:
        import difflib

        near = difflib.get_close_matches(name, VERBS, 1)
        raise Usage(
            f"unknown verb {name!r}.{f' Did you mean {near[0]}?' if near else ''} `holdfast --help` lists the verbs"
        )
    verb = VERBS[name]
    parser = _Parser(
        prog=f"holdfast {name}",
        usage=f"holdfast {name} [options] {verb.usage}".rstrip(),
        description=verb.does,
        epilog=verb.examples,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30, width=100),
        allow_abbrev=False,
    )
    verb.options(parser)
    if verb.connects and client is None:
        _nodes(parser)
    from ..kit import utf8

    # What hosts compare, such as names and notes, is UTF-8. Commands and paths are as this host has them.
    for action in parser._actions:
        if action.type is None and action.metavar not in ("CMD", "LINE", "FILE"):
            action.type = utf8
    parser.set_defaults(client=client)
    return parser


def _span(parser: argparse._ActionsContainer, *names: str, **more: Any) -> None:
    """Add an option that is a duration."""
    parser.add_argument(*names, metavar="DUR", type=duration, **more)


def _flag(parser: argparse._ActionsContainer, *names: str, help: str) -> None:  # noqa: A002  (as argparse has it)
    """Add an option without a value."""
    parser.add_argument(*names, action="store_true", help=help)


def _nodes(parser: Parser) -> None:
    group = parser.add_argument_group(
        "which nodes", "each also by a variable, or in a file: `holdfast --help` lists them"
    )
    group.add_argument("--nodes", metavar="URLS", type=addresses, help="addresses of the nodes, separated by spaces")
    _span(group, "--max-ttl", help="the longest lease of all clients (default 30s)")
    group.add_argument("--prefix", help="what all names begin with on the nodes")
    group.add_argument("--owner", help="who this is, for others (default host:pid)")
    group.add_argument("--credentials-file", metavar="FILE", help="one line, user:password, mode 0600")
    group.add_argument("--ca", metavar="FILE", help="authorities for rediss://")
    group.add_argument("--tls-cert", metavar="FILE", dest="cert", help="certificate of this client")
    group.add_argument("--tls-key", metavar="FILE", dest="key", help="private key of this client")
    group.add_argument("--config", metavar="FILE", help="a configuration file")
    group.add_argument("--profile", metavar="NAME", help="use the table [profile.NAME] of the file")


def _output(parser: Parser) -> None:
    group = parser.add_argument_group("what it says", "on stderr; stdout belongs to the command")
    _flag(group, "-q", "--quiet", help="nothing but errors of usage")
    _flag(group, "-v", "--verbose", help="waiting, acquired, released, and what the nodes say")
    _flag(group, "--json", help="events as lines of JSON on stderr")
    group.add_argument("--status-fd", metavar="N", type=int, help="events as lines of JSON to this descriptor")


def _waits(parser: Parser) -> None:
    either = parser.add_mutually_exclusive_group()
    _flag(either, "-n", "--nonblock", help=f"try once; exit {BUSY} if somebody else has it")
    _span(either, "-w", "--wait", help=f"wait at most so long, then exit {BUSY} (default: for ever)")


def _kinds(parser: Parser) -> None:
    either = parser.add_mutually_exclusive_group()
    _flag(either, "-s", "--shared", help="hold it with other readers (-s); writers say -x")
    _flag(either, "-x", "--exclusive", help="be the writer of a lock that readers hold by -s")
    either.add_argument(
        "--slots", metavar="K", type=int, help="at most K at a time; HOLDFAST_SLOT says which one this is"
    )
    parser.add_argument("--count", metavar="C", type=int, default=1, help="take C of the K slots, all or none")
    parser.add_argument(
        "--and", metavar="NAME", dest="also", action="append", default=[], help="hold this name too, all or none"
    )
    _span(parser, "--at-least", help="keep the name taken so long from the start, up to a day")
    _flag(parser, "--fail-open", help="run without the lock if no majority of the nodes answers")


def _conflict(parser: Parser, meaning: str) -> None:
    parser.add_argument("-E", "--conflict-exit-code", metavar="N", type=exit_status, help=meaning)


def _note(parser: Parser) -> None:
    parser.add_argument(
        "--note", metavar="TEXT", help="what others see of the holder (default: user@host pid: command; '': no note)"
    )


def _supervises(parser: Parser) -> None:
    group = parser.add_argument_group("how the command is stopped")
    _span(group, "--ttl", help="how long others wait after a crash (default 15s)")
    _span(group, "--kill-after", help="time between TERM and KILL (default 5s, at most a third of the ttl)")
    _span(group, "--max-hold", help="TERM after so long, then KILL; exit 124")
    group.add_argument(
        "--on-lost",
        choices=("kill", "term"),
        default="kill",
        help="if the lease is lost without warning: KILL at once (default); or TERM first: others may hold it",
    )
    group.add_argument(
        "--leftovers",
        choices=("kill", "wait", "leave"),
        default="kill",
        help="processes that the command leaves: end them (default), keep the lock until they end, or leave them alone",
    )
    group.add_argument(
        "--signal",
        choices=("group", "child"),
        default="group",
        help="pass signals to the command's group (default), or to it alone",
    )


def _command(parser: Parser, what: str, meaning: str) -> None:
    parser.add_argument("name", metavar=what, help=meaning)
    parser.add_argument("rest", metavar="CMD", nargs=argparse.REMAINDER, help="the command and its arguments")
    parser.add_argument("-c", "--command", metavar="LINE", help="run a line of shell (sh -c LINE) instead of CMD")


def _run(parser: Parser) -> None:
    _waits(parser)
    _conflict(parser, "instead of 75; `-E 0` skips quietly")
    _kinds(parser)
    _note(parser)
    _supervises(parser)
    _output(parser)
    _command(parser, "NAME", "the lock's name")


def _hold(parser: Parser) -> None:
    _waits(parser)
    _kinds(parser)
    _note(parser)
    _span(parser, "--ttl", help="how long others wait after a crash (default 15s)")
    parser.add_argument(
        "--guard", metavar="PID", type=int, help="stop this process if the lease is lost: TERM, then KILL"
    )
    parser.add_argument("name", metavar="NAME", help="the lock's name")


def _once(parser: Parser) -> None:
    parser.add_argument("--per", metavar="DUR", type=slot, help="once in each: a duration, or hour, day, week, month")
    parser.add_argument("--zone", metavar="ZONE", help="whose hours, days and so on, as Europe/Berlin (default UTC)")
    _span(
        parser, "--keep", help="how long it counts as done (default: twice --per; needed with hour, day, week, month)"
    )
    _waits(parser)
    _conflict(parser, "instead of 75; `-E 0` skips quietly")
    _note(parser)
    _supervises(parser)
    _output(parser)
    _command(parser, "KEY", "what is done once")


def _elect(parser: Parser) -> None:
    _flag(parser, "--again", help="campaign again when the command has ended, at most once a second")
    parser.add_argument(
        "--value", "--note", metavar="TEXT", help="what the leader announces, and others see (default: host:pid)"
    )
    _span(parser, "-w", "--wait", help="campaign at most so long, then exit 75")
    _supervises(parser)
    _output(parser)
    _command(parser, "NAME", "the election's name")


def _rate(parser: Parser) -> None:
    _span(parser, "-w", "--wait", help="wait at most so long for a turn (default: for ever)")
    _flag(parser, "-n", "--nonblock", help="do not wait: exit 75 if the limit is used up")
    parser.add_argument("--key", dest="whose", metavar="K", help="each key has a limit of its own")
    parser.add_argument("-c", "--command", metavar="LINE", help="run a line of shell (sh -c LINE) instead of CMD")
    parser.add_argument("name", metavar="NAME", help="the rate's name")
    parser.add_argument("limit", metavar="LIMIT/PERIOD", type=rate, help="such as 10/1m")
    parser.add_argument("rest", metavar="CMD", nargs=argparse.REMAINDER, help="the command and its arguments")


def _ls(parser: Parser) -> None:
    _flag(parser, "-l", "--long", help="who holds each, for how long, and how many wait")
    _flag(parser, "--json", help="objects of JSON, one a line")
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="*", help="with *, ? and [a-z] (default: all)")


def _inspect(parser: Parser) -> None:
    _flag(parser, "--watch", help="look every second (the nodes do not report changes)")
    _flag(parser, "--json", help="objects of JSON, one a line")
    parser.add_argument("names", metavar="NAME", nargs="+", help="names of locks or elections")


def _json_only(parser: Parser) -> None:
    _flag(parser, "--json", help="as JSON")


def _watched(parser: Parser) -> None:
    _flag(parser, "--watch", help="look again and again")
    _json_only(parser)


def _shown_or_adopted(parser: Parser) -> None:
    _watched(parser)
    parser.add_argument(
        "what",
        metavar="adopt",
        nargs="?",
        choices=["adopt"],
        help="mark all nodes as new: they have never granted a lock, so that clients need not wait",
    )


def _top(parser: Parser) -> None:
    _span(parser, "--every", default=1.0, help="time between two looks (default 1s)")
    parser.add_argument(
        "--count", metavar="N", type=int, help="look N times (default: on a terminal until Ctrl-C, elsewhere once)"
    )
    _flag(parser, "--json", help="each look as an object of JSON on a line")
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="*", help="with *, ? and [a-z] (default: all)")


def _bench(parser: Parser) -> None:
    _span(parser, "--seconds", default=10.0, help="for how long (default 10s)")
    _json_only(parser)


def _release(parser: Parser) -> None:
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the log shows it")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--only", metavar="TOKEN", help="take it from this holder and from nobody else")
    _flag(either, "--any", help="take it from anybody")
    _flag(parser, "--yes", help="do not ask; needed without a terminal")
    parser.add_argument("name", metavar="NAME", help="the lock's name")


def _repair(parser: Parser) -> None:
    _span(parser, "--pause", default=0.01, help="rest after each step (default 10ms)")
    _json_only(parser)


def _local(parser: Parser) -> None:
    parser.add_argument("-n", "--count", metavar="N", type=int, default=5, help="how many nodes (default 5)")
    parser.add_argument("rest", metavar="CMD", nargs=argparse.REMAINDER, help="the command (default: your shell)")


def _serve(parser: Parser) -> None:
    group = parser.add_argument_group("where it listens, and who may come")
    group.add_argument(
        "--listen",
        "--bind",
        metavar="ADDRESS",
        default="127.0.0.1:7420",
        help="HOST:PORT, or unix:PATH, where users of this machine are clients (default 127.0.0.1:7420)",
    )
    group.add_argument(
        "--resp",
        metavar="ADDRESS",
        nargs="?",
        const="127.0.0.1:7421",
        help="speak RESP there, as Redis does, and no HTTP (default 127.0.0.1:7421)",
    )
    _flag(group, "--http", help="with --resp: speak HTTP at --listen as well")
    _flag(group, "--local", help="bring nodes of its own, for one machine")
    group.add_argument("--tokens", metavar="FILE", help="clients, their tokens and scopes; read again on SIGHUP")
    group.add_argument("--new-token", metavar="NAME", help="print a new token, write its digest to --tokens, and exit")
    group.add_argument("--server-cert", metavar="FILE", help="certificate of the gateway, for TLS")
    group.add_argument("--server-key", metavar="FILE", help="its private key")
    group.add_argument("--client-ca", metavar="FILE", help="clients need a certificate of one of these authorities")
    group.add_argument(
        "--trust-proxy", metavar="CIDR", action="append", default=[], help="proxies that say which client it is"
    )
    group.add_argument(
        "--host-name", metavar="NAME", action="append", default=[], help="a name by which clients address it"
    )
    group.add_argument(
        "--advertise", metavar="URL", help="the address of this gateway, if several are behind a balancer"
    )
    group.add_argument("--peer-ca", metavar="FILE", help="authorities of the other gateways' certificates")
    _flag(group, "--insecure", help="listen on other addresses without TLS or tokens")
    group = parser.add_argument_group("what it does")
    _flag(group, "--allow-force", help="let clients with the scope force: take locks away")
    _flag(group, "--no-page", help="leave out the live page at /")
    _flag(group, "--page-only", help="only show: nobody locks through it")
    group.add_argument("--grafana-url", metavar="URL", help="an address that the page links to")
    group.add_argument("--audit", metavar="FILE", help="append refusals and forced releases, as lines of JSON")
    _span(group, "--drain", help="how long leases may end after SIGTERM (default: --max-ttl)")
    _caps(group)


def _caps(group: argparse._ArgumentGroup) -> None:
    for name, most, what in (
        ("requests", 200, "requests a second of a client"),
        ("keepalives", 1_000, "leases that a client may keep or release in a second"),
        ("leases", 1_000, "leases of a client"),
        ("streams", 200, "event streams of a client"),
        ("connections", 20_000, "connections of all clients"),
    ):
        group.add_argument(f"--max-{name}", metavar="N", type=int, default=most, help=f"{what} (default {most})")
    why = "how late it may be before it serves only keepalives and releases (default 250ms)"
    _span(group, "--max-lag", default=0.25, help=why)


def _nothing(parser: Parser) -> None:
    return


GAPS = """\
On Linux, the command and all processes that it has started are dead before anybody else can hold
the lock, except in four cases: both `holdfast` processes are killed at the same moment, or stopped
together; an operator takes the lock away while the holder is stopped; everything is frozen together
and goes on later. For these, and for what a command has sent already, pass HOLDFAST_FENCE to what
the lock protects, and let it refuse an older fence. (On macOS, only the command's process group is
stopped.)

One name has one kind. If you use -s for readers, the writers say -x."""

VERBS: dict[str, Verb] = {
    "run": Verb(
        "NAME [--] CMD [ARG...]",
        "Run a command while holding a lock.",
        _run,
        "examples:\n"
        "  holdfast run deploy -- ./deploy.sh         wait for the lock, for ever\n"
        "  holdfast run -n -E 0 backup -- backup.sh   skip quietly if the last one still runs\n"
        "  holdfast run -w 5m deploy -c 'make && ./deploy.sh $HOLDFAST_FENCE'\n"
        "  holdfast run --slots 4 gpu -- train.py     at most four at a time\n\n" + GAPS,
        "running:run",
    ),
    "hold": Verb(
        "NAME",
        "Hold a lock for a shell script, until stdin ends or a signal comes. Prints JSON when it has the lock.",
        _hold,
        "example:\n"
        "  coproc LOCK { holdfast hold --guard $$ deploy; }\n"
        '  read -r held <&"${LOCK[0]}" || exit 75\n'
        '  exec 9>"/dev/fd/${LOCK[1]}" {LOCK[1]}>&-   its children keep the lock, too\n'
        "  ./migrate.sh\n"
        "  exec 9>&-                                  releases it",
        "hold:hold",
    ),
    "once": Verb(
        "(--per DUR | --keep DUR) KEY [--] CMD [ARG...]",
        "Of all that ask, one runs the command. The others wait. If it fails, the next one tries.",
        _once,
        "examples:\n"
        "  holdfast once --per 5m report -- report.py    on every host, by cron: once in each 5 minutes\n"
        "  holdfast once --per day --keep 30d bill -- bill.sh\n"
        "  holdfast once --keep 1d -w 10m migrate-17 -- ./migrate.sh",
        "running:once",
    ),
    "elect": Verb(
        "NAME [--] CMD [ARG...]",
        "Run a command while leading.",
        _elect,
        "example:\n  holdfast elect --again poller -- python -m poller    one works, the others stand by",
        "running:elect",
    ),
    "rate": Verb(
        "NAME LIMIT/PERIOD [--] CMD [ARG...]",
        "Run a command when the rate allows it.",
        _rate,
        "example:\n  holdfast rate -w 10s mail 10/1m -- send-mail",
        "running:rate",
    ),
    "ls": Verb(
        "[PATTERN]",
        "List the locks of holdfast that are held. For a lock of another library: `holdfast inspect NAME`.",
        _ls,
        "example:\n  holdfast ls -l 'deploy*'",
        "looking:ls",
    ),
    "inspect": Verb(
        "NAME...",
        "Show locks node by node, and who leads an election. Exit 0: held, 1: free, 3: split, 69: no quorum.",
        _inspect,
        "example:\n  holdfast inspect deploy",
        "looking:inspect",
    ),
    "top": Verb(
        "[PATTERN]",
        "Show nodes, locks and queues, again and again. Those that most wait for come first.",
        _top,
        "examples:\n  holdfast top\n  holdfast top --count 60 --every 1m --json 'deploy*' >> locks.jsonl",
        "top:top",
    ),
    "release": Verb(
        "NAME",
        "Take a lock away from its holder. What it protected may still be going on.",
        _release,
        "example:\n  holdfast release --reason 'host is gone' --only TOKEN deploy    (`inspect` shows the token)",
        "operating:release",
    ),
    "repair": Verb("", "Write back what restarted nodes have forgotten.", _repair, "", "operating:repair"),
    "nodes": Verb(
        "[adopt]",
        "Show how the nodes are, or say of servers that were just set up that they are new.",
        _shown_or_adopted,
        "example:\n"
        "  holdfast nodes adopt    once, when all nodes are new; never after a restart, nor where clients live",
        "looking:nodes",
    ),
    "doctor": Verb(
        "",
        "Say what is wrong with the nodes, and what to do. Exit 0: all well, 1: warnings, 2: unsafe, 69: no quorum.",
        _watched,
        "",
        "doctor:doctor",
    ),
    "bench": Verb(
        "",
        "Measure this machine against these nodes: a round trip, a lock, a hand-over between two processes.",
        _bench,
        "It takes locks whose names begin with holdfast.bench: and no others.",
        "bench:bench",
    ),
    "check": Verb("", "Inside a command: is the lock still held? Exit 0: yes, 76: no.", _nothing, "", "hold:check"),
    "local": Verb(
        "[--] CMD [ARG...]",
        "Start nodes for a command, and stop them with it.",
        _local,
        "example:\n  holdfast local -- sh -c 'holdfast run a -- env | grep HOLDFAST_'",
        "operating:local",
        connects=False,
    ),
    "serve": Verb(
        "",
        "Serve locks over HTTP, for programs in any language. Needs holdfast[serve].",
        _serve,
        "examples:\n"
        "  holdfast serve                             for programs on this host, at 127.0.0.1:7420\n"
        "  holdfast serve --local                     the same, with nodes of its own\n"
        "  holdfast serve --new-token importer --tokens tokens.toml\n"
        "  holdfast serve --bind :7420 --tokens tokens.toml --server-cert a.pem --server-key a.key\n\n"
        "A lease ends when its client stops to keep it. SIGTERM drains: what is held can still be kept\n"
        "and released, and what is left then runs out by itself.",
        "serving:serve",
    ),
}
