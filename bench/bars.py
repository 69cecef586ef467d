"""The bars: what holdfast has to reach, each a ratio (or a count) within one round of one run.

Knows which figures are compared and what is allowed. Must not know how they are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .figures import Figure, Round, Rounds, of

Ratio = Callable[[Round], float]


@dataclass(frozen=True, slots=True)
class Bar:
    """`bound`: what the figure may be at most (or, `least`, at least); `aim`: what would be fine."""

    scenario: str
    text: str
    figure: Ratio
    bound: float
    aim: float | None = None
    least: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and what was measured; nothing if the run had no such rows."""

    bar: Bar
    figure: Figure | None


def outcome(value: float, spread: float, bound: float, *, least: bool) -> str:
    """Was the bar met?

    Args:
        value: What was measured, the median of the rounds.
        spread: (most - least) / median of the rounds.
        bound: What the value may be at most; with `least`, at least.

    Returns:
        "met" or "missed"; "within noise" if the value is so close to the bound that the next run
        may be on the other side of it.
    """
    if abs(value - bound) < value * spread / 2:
        return "within noise"
    met = value >= bound if least else value <= bound
    return "met" if met else "missed"


def verdicts(rounds: Rounds, scenarios: Sequence[str]) -> list[Verdict]:
    """All bars of these scenarios."""
    return [Verdict(bar, of(_each(bar.figure, rounds))) for bar in ALL if bar.scenario in scenarios]


def _each(ratio: Ratio, rounds: Rounds) -> list[float]:
    found = []
    for round_ in rounds.each():
        try:
            found.append(ratio(round_))
        except LookupError:  # somebody was not measured in this round
            continue
    return found


def _over(case: str, ours: str, theirs: str, what: str = "p50") -> Ratio:
    return lambda it: it(case, ours, what) / it(case, theirs, what)


def _within(case: str, ours: str, what: str, base: str) -> Ratio:
    return lambda it: it(case, ours, what) / it(case, ours, base)


def _more(case: str, ours: str, base: str, what: str) -> Ratio:
    return lambda it: it(case, ours, what) - it(case, base, what)


def _plain(case: str, ours: str, what: str) -> Ratio:
    return lambda it: it(case, ours, what)


IN_TURN = ("redis-py in turn", "redlock-py", "pyredlock", "redlock-ng")
TASKS = ("pyredlock asyncio", "redlock-ng asyncio", "aioredlock", "pottery asyncio")


def _pair() -> list[Bar]:
    plain, loop, confirmed = "floor: sockets, plain", "floor: asyncio, plain", "holdfast confirmed"
    one, five = "pair, 1 node", "pair, 5 nodes"
    one_free, five_free = f"{one}, free", f"{five}, free"
    return [
        Bar("pair", "threads, 1 node: pair / redis-py Lock", _over(one, "holdfast", "redis-py Lock"), 0.88),
        Bar("pair", "threads, 1 node: pair / pyredlock", _over(one, "holdfast", "pyredlock"), 1.24, 1.2),
        Bar("pair", "threads, 1 node, free: pair / redis-py Lock", _over(one_free, "holdfast", "redis-py Lock"), 0.52),
        Bar("pair", "asyncio, 1 node: pair / redis-py Lock", _over(one, "holdfast asyncio", "redis-py Lock asyncio"), 0.55),
        Bar("pair", "threads, 5 nodes: pair / pyredlock", _over(five, "holdfast", "pyredlock"), 1.1, 0.95),
        Bar("pair", "threads, 5 nodes: client CPU / floor of sockets", _over(five, "holdfast", plain, "cpu"), 1.95),
        Bar("pair", "threads, 5 nodes: confirmed pair / redis-py in turn", _over(five, confirmed, "redis-py in turn"), 0.9),
        Bar("pair", "threads, 5 nodes, free: pair / floor of sockets", _over(five_free, "holdfast", plain), 1.15),
        Bar("pair", "asyncio, 5 nodes: pair / floor of asyncio", _over(five, "holdfast asyncio", loop), 1.7),
        Bar("pair", "asyncio, 5 nodes, free: pair / floor of asyncio", _over(five_free, "holdfast asyncio", loop), 1.0),
    ]


def _delayed() -> list[Bar]:
    short, long = "pair, 5 nodes, 0.3 ms", "pair, 5 nodes, 1 ms"
    bars = [
        Bar("delay", "threads, 0.3 ms: acquire / floor", _over(short, "holdfast confirmed", "floor: sockets, scripts", "acquire"), 1.3),
        Bar("delay", "threads, 0.3 ms: pair by default / floor", _over(short, "holdfast", "floor: sockets, scripts"), 0.75),
    ]
    for face, ours, floor in (
        ("threads", "holdfast", "floor: sockets, scripts"),
        ("asyncio", "holdfast asyncio", "floor: asyncio, scripts"),
    ):
        confirmed = f"{ours} confirmed"
        bars += [
            Bar("delay", f"{face}, 1 ms: pair / floor", _over(long, confirmed, floor), 1.05),
            Bar("delay", f"{face}, 1 ms: pair / best of those who ask in turn", _over_best(long, confirmed, IN_TURN), 0.25),
            Bar("delay", f"{face}, 1 ms: pair by default / floor", _over(long, ours, floor), 0.55),
        ]
    return bars


def _over_best(case: str, ours: str, theirs: Sequence[str], what: str = "p50") -> Ratio:
    return lambda it: it(case, ours, what) / it.least(case, theirs, what)


def _telling() -> list[Bar]:
    case = "telling, 5 nodes"
    # 12 of the 34 µs that a pair takes an asyncio client on an idle machine.
    return [
        Bar("telling", f"{face}: CPU of a pair with metrics / without", _over(case, f"{ours}, metrics", ours, "cpu"), 1.35)
        for face, ours in (("threads", "holdfast"), ("asyncio", "holdfast asyncio"))
    ]


def _primitives() -> list[Bar]:
    case, names = "primitives, 5 nodes", {"read": "read lock", "write": "write lock", "permit": "permit"}
    return [
        Bar("primitives", f"{face}: {text} / exclusive lock", _within(case, ours, what, "lock"), 1.3)
        for face, ours in (("threads", "holdfast confirmed"), ("asyncio", "holdfast asyncio confirmed"))
        for what, text in names.items()
    ]


def _many() -> list[Bar]:
    bars, ours = [], "holdfast asyncio confirmed"
    for tasks in ("100", "1,000"):
        case = f"many, {tasks} tasks"
        bars += [
            Bar("many", f"{tasks} tasks: client CPU of a pair / best Python peer", _over_best(case, ours, TASKS, "cpu"), 1 / 12),
            *(
                Bar(
                    "many",
                    f"{tasks} tasks: client CPU / coalescing transport, {kind}",
                    _over(case, ours, f"floor: coalescing, {kind}", "cpu"),
                    2.0,
                )
                for kind in ("scripts", "plain")
            ),
        ]
    return bars


def _threads() -> list[Bar]:
    ours, many, one, five = "holdfast", "16 threads", "computing thread, 1 node", "computing thread, 5 nodes"
    return [
        Bar(
            "threads",
            "16 threads: locks a second / one thread's",
            lambda it: it(many, ours, "rate") / it("1 thread", ours, "rate"),
            3.0,
            least=True,
        ),
        Bar("threads", "16 threads: p99 / p50", _within(many, ours, "p99", "p50"), 3.0),
        Bar("busy", f"{one}: acquire / redis-py Lock", _over(one, ours, "redis-py Lock", "mean"), 1.3),
        Bar("busy", f"{one}: acquire, ms", lambda it: it(one, ours, "p50") / 1e3, 0.3),
        Bar("busy", f"{five}: acquire / redis-py in turn", _over(five, ours, "redis-py in turn", "mean"), 1.3),
        Bar("busy", f"{five}: acquire, ms", lambda it: it(five, ours, "p50") / 1e3, 1.0),
        Bar("busy", "computing holder: release to next holder, ms", lambda it: it("computing holder", ours, "p50") / 1e3, 1.0),
    ]


def _handover() -> list[Bar]:
    bars, case = [], "64 waiters in four"
    for face, ours, floor in (
        ("threads", "holdfast", "floor: push by hand"),
        ("asyncio", "holdfast asyncio", "floor: push by hand, asyncio"),
    ):
        bars += [
            Bar("handover", f"{face}, {case}: gap / push by hand", _over(case, ours, floor), 1.5),
            Bar("handover", f"{face}, {case}: commands a node and acquisition", _plain(case, ours, "commands"), 2.2),
            Bar("handover", f"{face}, {case}: Jain's index", _plain(case, ours, "jain"), 0.99, least=True),
            Bar("handover", f"{face}, {case}: passed over", _plain(case, ours, "overtaken"), 0.0),
            Bar("handover", f"{face}: commands a second and node of 64 who wait", _plain("64 wait for 2 s", ours, "commands"), 0.0),
        ]
    return bars


def _faults() -> list[Bar]:
    bars = []
    for face, ours in (("threads", "holdfast"), ("asyncio", "holdfast asyncio")):
        for case in ("one node dead", "one node frozen"):
            bars += [
                Bar("faults", f"{face}, {case}: acquire / healthy", _within(case, ours, "p50", "healthy"), 1.2),
                Bar("faults", f"{face}, {case}: p99 / healthy p99", _within(case, ours, "p99", "healthy_p99"), 1.2),
                Bar("faults", f"{face}, {case}: first acquire / healthy p50", _within(case, ours, "first", "healthy"), 5.0),
            ]
    return bars


def _held() -> list[Bar]:
    bars, case = [], "1,000 leases, 5 nodes"
    for face, ours in (("threads", "holdfast"), ("asyncio", "holdfast asyncio")):
        bars += [
            Bar("held", f"{face}: CPU, percent of a core", _plain(case, ours, "cpu"), 1.0),
            Bar("held", f"{face}: threads of the process", _plain(case, ours, "threads"), 3.0),
            Bar("held", f"{face}: writes a second and node", _plain(case, ours, "writes"), 11.0),
            Bar("held", f"{face}: leases lost", _plain(case, ours, "lost"), 0.0),
        ]
    return bars


def _leases() -> list[Bar]:
    node, beside, shared = "server time, renewal", "beside 10,000 leases, 5 nodes", "100 clients, 5,000 leases, 3 nodes"
    least = "a script with the six commands of a renewal"
    return [
        Bar("leases", "renewal / its six commands, by the node", _over(node, "scripts renewal", least), 1.5),
        Bar("leases", "threads: p99 of an acquire, µs", _plain(beside, "holdfast", "p99"), 10_000.0),
        Bar("leases", "asyncio: p99 of an acquire, µs", _plain(beside, "holdfast asyncio", "p99"), 10_000.0),
        Bar("leases", "asyncio: longest lag of the loop, µs", _plain(beside, "holdfast asyncio", "lag"), 20_000.0),
        Bar("bursts", "commands: the busiest 100 ms / the mean ones", _plain(shared, "holdfast asyncio", "peak"), 2.0),
    ]


def _clients() -> list[Bar]:
    few, many = "300 clients, 5 nodes", "4,000 clients, 3 nodes"
    return [
        Bar("clients", "asyncio: KB of a client", _plain(few, "holdfast asyncio", "memory"), 80.0),
        Bar("clients", "uvloop: KB of a client", _plain(few, "holdfast uvloop", "memory"), 80.0),
        Bar("clients", "4,000 at once: connections for each client and node", _plain(many, "holdfast asyncio", "connections"), 1.5),
        Bar("clients", "4,000 at once: seconds later than one after the other", _plain(many, "holdfast asyncio", "late"), 10.0),
    ]


def _rest() -> list[Bar]:
    return [
        Bar("start", "import holdfast / import redis", _over("import", "import holdfast", "import redis"), 0.5),
        Bar("start", "import holdfast / import asyncio", _over("import", "import holdfast", "import asyncio"), 0.84),
        Bar("server", "request on a free name / SET NX PX", _over("server time, request", "scripts request", "plain request"), 11.0),
        Bar("server", "release / the plain unlock script", _over("server time, release", "scripts release", "plain release"), 1.6),
        Bar("handshake", "bytes of a handshake to a node", _plain("handshake, 1 node", "a client of locks", "bytes"), 9216),
        Bar(
            "handshake",
            "CPU of a node for the scripts of a handshake, µs",
            _more("handshake, 1 node", "a client of locks", "no script at all", "cpu"),
            80,
        ),
    ]


ALL = (
    *_pair(), *_delayed(), *_telling(), *_primitives(), *_many(), *_threads(), *_handover(), *_faults(), *_held(), *_leases(), *_clients(),
    *_rest(),
)  # fmt: skip
