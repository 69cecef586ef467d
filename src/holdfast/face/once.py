"""What is done once: its options, and a caller's turn at it, from looking for a result to keeping one. Shared by both faces.

Knows recipes, rounds, and what a lease tells. Must not know who waits, or how a body is run: a face holds the lock while it runs one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .. import checks
from ..checks import Seconds
from ..core import quorum
from ..core.round import Round
from ..errors import ConfigError, LockLost, Misuse, readable
from ..recipes import once as recipes
from ..recipes.exclusive import Exclusive, key_of
from ..recipes.once import Copy, Register
from ..wire.resp import pack
from .decorating import Function, Kind, Name, fillable, kind_of_call, label
from .lease import Lease
from .looking import unheard
from .plans import Ask, Keeps, Pause, Plan
from .repair import mend
from .schedule import EPOCH, SECOND, Schedule, schedule
from .sites import Sites
from .terms import Terms, terms
from .values import JSON, Serializer, Unfit, checked, packed

if TYPE_CHECKING:
    from ..drivers.threads import Cancel

SHORTEST = 0.05  # seconds, for which a result is kept
LONGEST = 1e8
LATEST = 1e11  # seconds since 1970: some thousand years


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a result: true if there is one, whatever it is. `value`: it; None if there is none."""

    known: bool
    value: Any = None

    def __bool__(self) -> bool:
        return self.known


@dataclass(frozen=True, slots=True)
class Deed:
    """The options of what is done once, checked.

    `keep`: milliseconds; `schedule`: if it has one; `slot`: of the schedule, if the caller said; `terms`: those of its lock, whose
    name depends on the slot; `serializer`: whose bytes are kept; `filled`: the key was filled from a call's arguments, so that
    braces in it are part of a value.
    """

    sites: Sites
    key: Name
    keep: int
    schedule: Schedule | None
    slot: str | None
    terms: Terms
    serializer: Serializer
    filled: bool = False

    def lock(self, name: str, slot: str | None = None) -> Exclusive:
        """The lock under which it is done. Users cannot write the name of a slot's lock: it ends like those of other primitives."""
        settings = self.sites.all[0].settings
        own = "once" if slot is None else f"once {slot}"
        return Exclusive(name, prefix=settings.prefix, ttl=self.terms.ttl, horizon=settings.horizon, own=own)


def deed(
    sites: Sites,
    key: Name,
    *,
    keep: Seconds,
    per: Seconds | str | None,
    zone: str | None,
    slack: Seconds | None,
    ttl: Seconds | None,
    wait: Seconds | None,
    renew: bool,
    max_hold: Seconds | None,
    serializer: Serializer | None,
    on_lost: Callable[[Any], object] | None,
    cancel: Cancel | None,
) -> Deed:
    """Checked options. ConfigError says which is wrong, and what to write instead. (A template is looked at when it decorates.)"""
    kept = checks.seconds(keep, "keep", least=SHORTEST, most=LONGEST)
    slots = schedule(per, zone, slack)
    if slots is not None and kept < slots.longest:
        length = slots.per
        said = f"a {length}, which can last {slots.longest:g} s" if isinstance(length, str) else f"per={length:g}"
        raise ConfigError(
            f"keep={kept:g} is less than {said}: the result would be forgotten within its slot, and it would run again. Keep it as "
            f"long as somebody may ask for it, and at least keep={slots.longest:g}"
        )
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        given = checks.shown(cancel)
        raise ConfigError(f"cancel is an event, such as threading.Event(), which ends waiting when it is set; not {given}")
    held = terms(sites.all[0].settings, lambda ttl: (), ttl=ttl, wait=wait, renew=renew, max_hold=max_hold, on_lost=on_lost)
    held = held._replace(cancel=cancel)
    made = Deed(sites, key, round(kept * 1000), slots, None, held, JSON if serializer is None else checked(serializer))
    if not callable(key) and "{" not in str(key):
        made.lock(key)
    return made


def scheduled(options: Deed, time: object) -> Deed:
    """The same, for the slot in which this time is."""
    if options.schedule is None:
        raise ConfigError("a time is said of a schedule: without `per=` there are no slots")
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ConfigError(f"{time} has no time zone: say which moment is meant, as with datetime.now(timezone.utc)")
        micros = (time - EPOCH) // timedelta(microseconds=1)
    elif isinstance(time, bool) or not isinstance(time, int | float) or not -LATEST < time < LATEST:
        raise ConfigError(f"a time is a datetime, or seconds since 1970; not {checks.shown(time)}")
    else:
        micros = round(time * SECOND)
    return replace(options, slot=options.schedule.of(micros))


def runs(function: Function, kind: Kind, options: Deed) -> None:
    """Check what `run` is given.

    Args:
        function: What is to be run.
        kind: The kind of functions that this face runs.
        options: What is done once.

    Raises:
        ConfigError: It is no such function; or the key was meant as a template: its braces name a parameter of the function.
    """
    if not callable(function):
        raise ConfigError(f"`run` is given a function and its arguments, not {checks.shown(function)}")
    if kind_of_call(function) is not kind:
        raise ConfigError(f"{label(function)} is {kind_of_call(function).value}, and what is run here is {kind.value}")
    key = options.key
    if not options.filled and isinstance(key, str) and "{" in key and (field := fillable(key, function)) is not None:
        raise ConfigError(
            f"`run` takes the key {key!r} as it is written, so all calls of {label(function)} would share one result: {field} is not "
            f"filled in. Write once(f{key!r}, ...).run(...), or decorate the function with @locks.once({key!r}, ...), which fills it "
            "from each call's arguments. If the braces belong to the key, run a function without that parameter: "
            "functools.partial, with its positional arguments, makes one"
        )


def begin(options: Deed) -> Plan[Turn]:
    """A caller's turn: which slot, and on which sets of nodes. Asks the time where that is not said."""
    name = options.key
    times = options.schedule
    if callable(name):
        raise ConfigError("a function of the arguments names what is decorated: to `run` something, or for a `result`, say the key itself")
    sites = options.sites
    key_of(name, sites.all[0].settings.prefix)
    slot = options.slot
    homes = sites.homes(name)
    for shard in homes:
        yield Keeps("once", shard)
    if times is not None and slot is None:
        slot = times.of((yield from _time(sites, name)), early=True)
    return Turn(options, name, homes, slot)


def _time(sites: Sites, name: str) -> Plan[int]:
    """The nodes' median clock, in microseconds: one of a majority that is right, whatever the others say."""
    at = sites.home(name)
    settings = sites.all[at].settings
    seen: Round = yield Ask(dict.fromkeys(range(len(settings.addresses)), pack(b"TIME")), shard=at)
    clocks: list[Any] = list(seen.answers.values())
    told = sorted(int(seconds) * SECOND + int(micros) for seconds, micros in clocks)
    if not seen.sufficient:
        raise unheard(settings, seen, name, "find the slot of")
    return told[len(told) // 2]


class Place(NamedTuple):
    """A set of nodes that keeps the result. `shard`: its number; `nodes`: how many nodes it has."""

    shard: int
    nodes: int


class Turn:
    """One caller's turn: what it has read, what it has run, and what is kept.

    What is to be kept is first promised a majority's attention, by a ballot; the value that goes with the ballot is what was found then,
    if anything was. Both change together, so that whatever happens in between the one is good for the other.

    While a key moves to another set of nodes, its result is kept on both sets. Each set promises and stores by itself, under one ballot,
    and a result counts once both sets have it.
    """

    __slots__ = (
        "_again", "_ballot", "_began", "_deed", "_ended", "_forgets", "_forgotten", "_left", "_longest", "_newest", "_places", "_recipe",
        "_register", "_since", "_took", "_unfit", "_value", "had", "kept", "partly",
    )  # fmt: skip

    def __init__(self, options: Deed, name: str, shards: Sequence[int], slot: str | None = None) -> None:
        self._deed, self._recipe = options, options.lock(name, slot)
        self._register = Register(self._recipe.name, self._recipe.horizon)
        self._places = [Place(it, len(options.sites.all[it].settings.addresses)) for it in shards]
        self._began = self._ended = 0.0
        self._ballot = 0
        # What the last look has found: the newest copy, for how many milliseconds some node has one, and how many it took to look.
        self._newest: Copy | None = None
        self._longest = self._took = 0
        # When it was time to run: the ballot that was promised then, and whether a result had been forgotten.
        self._since, self._again = 0, False
        self._value: bytes | None = None  # what is to be kept, for so many more milliseconds
        self._left = 0
        self._unfit: Unfit | None = None  # why what this one's function gave cannot be kept
        self._forgets = self._forgotten = False  # is the result to be forgotten, and is it?
        self.kept: bytes | None = None  # what certainly is
        self.partly = False  # some node has a result, and nobody knows whether it is one
        self.had = False  # there was a result to forget, or a part of one

    # ------------------------------------------------ what is known

    @property
    def terms(self) -> Terms:
        """Those of the lock: with what is left of the time to wait, and an ear for whoever stores a result meanwhile."""
        wait = self._deed.terms.wait
        left = None if wait is None else max(0.0, wait - (self._ended - self._began))
        heed = quorum.majority(self._places[0].nodes)
        return self._deed.terms._replace(recipes=(self._recipe,), wait=left, heed=heed)

    @property
    def brief(self) -> Terms:
        """The same, for a caller that waits for no run: one try. While a key moves, callers that complete its result are waited for."""
        patience = self._deed.sites.all[self._places[0].shard].settings.node_timeout
        return self.terms._replace(wait=0.0 if len(self._places) == 1 else patience)

    @property
    def alone(self) -> Terms:
        """The same, for a caller that waits for the lock and for nothing else."""
        return self.terms._replace(heed=0)

    @property
    def value(self) -> Any:
        """The result that is kept. ConfigError if it was kept in another way than it is read; Misuse if there was none that can be kept."""
        assert self.kept is not None
        if (why := recipes.noted(self.kept)) is not None:
            raise self._without_result(why) from self._unfit
        try:
            return self._deed.serializer.loads(self.kept)
        except Exception as error:
            raise ConfigError(
                f"the result of {self._recipe.label!r} cannot be read: {error!r}. All who use it must have the same `serializer`"
            ) from error

    @property
    def result(self) -> Result:
        """The result, if there is any."""
        return Result(False) if self.kept is None else Result(True, self.value)

    # ------------------------------------------------ before the lock is held

    def read(self, surely: bool = False) -> Plan[bool]:
        """Is there a result? `surely`: NoQuorum if too few nodes answer to tell; else they may do so while the lock is waited for."""
        rounds = yield from self._ask([self._register.look()] * len(self._places), recipes.decided, shared=True)
        self._began, self._ended = self._began or rounds[0].began, rounds[-1].ended
        for place, seen in zip(self._places, rounds, strict=True):
            if surely and not seen.sufficient:
                raise unheard(self._deed.sites.all[place.shard].settings, seen, self._recipe.label, "look for the result of")
        agreed = self._agreed(rounds)
        self.partly = agreed is None and _newest(rounds) is not None
        found = self._is_result(agreed)
        if found:
            for place, seen in zip(self._places, rounds, strict=True):
                if recipes.lacking(seen.answers):
                    yield mend(self._deed.sites.all[place.shard].settings, self._register.key, shard=place.shard)
        return found

    # ------------------------------------------------ while it is held

    def look(self, lease: Lease) -> Plan[bool]:
        """Is there a result after all? If any node has one, it is kept now, whoever had begun that. False: it is time to run."""
        agreed = yield from self._promise(lease, lease.fence)
        while not self._is_result(agreed):
            if agreed is not None or self._newest is None:
                self._again, self._since, self._value = agreed is not None, self._ballot, None
                return False
            self._adopt(self._newest)
            yield from self._settle(lease, lambda copy: True)
            if self.kept is None:
                # The note of a forgotten result is settled now, under this caller's ballot. A result needs another ballot.
                agreed = yield from self._promise(lease, self._ballot + self._recipe.horizon * 500, own=True)
        return True

    def keep(self, lease: Lease, outcome: object) -> Plan[None]:
        """It has run: have this kept; or what somebody else, whose result this one has not seen, had stored before."""
        self._value, self._left = self._written(outcome), self._deed.keep

        def adopts(copy: Copy) -> bool:
            if copy.ballot <= self._since:
                # It was there, or on its way, when this run began. What was forgotten before the run stays forgotten, and a note
                # of a lower ballot is one that comes late.
                return not (copy.void or self._again)
            if copy.void:
                # Another caller has held the lock since, and had the result forgotten. To store one now would undo that.
                self._value = None
                told = "its result was forgotten while the function still ran"
                raise LockLost(self._recipe.label, "expired", lease.fence, told)
            return True

        yield from self._settle(lease, adopts)

    def forget(self, lease: Lease) -> Plan[None]:
        """Have the result forgotten, and with it whatever is stored late of an earlier run."""
        self._forgets = True
        yield from self._promise(lease, lease.fence)
        self.had = self._newest is not None and not self._newest.void
        # The note outlasts every copy: those that nodes have, and those that arrive late at nodes which have not promised. Such a node
        # takes a copy for as long as the fence of its run is not too old, and keeps it for that run's `keep`.
        self._value, self._left = recipes.FORGOTTEN, max(self._deed.keep, self._longest) + 4 * self._recipe.horizon
        yield from self._settle(lease, lambda copy: False)

    def last(self, lost: LockLost) -> Plan[None]:
        """The lease is lost. What was to be kept by then is kept all the same, if nobody newer has looked; else LockLost."""
        if not self._settled and self._value is not None:
            yield from self._stores()
        if not self._settled:
            raise lost from (lost.__cause__ if self._unfit is None else self._unfit)

    @property
    def _settled(self) -> bool:
        """Is it done what this caller wants: is a result kept, or forgotten?"""
        return self._forgotten if self._forgets else self.kept is not None

    def _settle(self, lease: Lease, adopts: Callable[[Copy], bool]) -> Plan[None]:
        """Have the value stored. `adopts`: is a copy that turns up meanwhile stored instead?"""
        while True:
            lease.check()
            stored, above = yield from self._stores()
            if stored:
                return
            if above > self._ballot:  # some clock floors are, as in a run that takes long: above them, by as much as claims take for such
                agreed = yield from self._promise(lease, above + self._recipe.horizon * 500, own=True)
                if self._newest is not None and adopts(self._newest):
                    self._adopt(self._newest)
                    if self._is_result(agreed):
                        return
            else:
                yield self._breath

    def _promise(self, lease: Lease, ballot: int, own: bool = False) -> Plan[Copy | None]:
        """Have a majority store nothing below the ballot any more, and see what it has: what it has agreed on, and the newest copy.

        Args:
            lease: The lease of the lock. It is checked before each question.
            ballot: The fence of the lease, or a number that this caller has chosen.
            own: The caller has chosen it. Then nodes promise only while the lock is this caller's.

        Returns:
            The copy that all sets of nodes have agreed on, under one ballot. None if there is none.
        """
        new, old = lease._parts[-1], lease._parts[0]  # (while a key moves, its lock is another one on each set)
        tokens = [it.token.encode() if own else b"" for it in (new, old)]
        while True:
            lease.check()
            commands = [self._register.look(ballot, token) for _, token in zip(self._places, tokens, strict=False)]
            rounds = yield from self._ask(commands, recipes.promised)
            both = zip(self._places, rounds, strict=True)
            if all(recipes.promised(seen.answers, place.nodes) for place, seen in both):
                break
            above = max(recipes.highest(seen.answers) for seen in rounds)
            if own and above > ballot:
                ballot = above + self._recipe.horizon * 500
            yield self._breath
        self._ballot, self._newest = ballot, _newest(rounds)
        self._took = round((rounds[-1].ended - rounds[0].began) * 1000)
        self._longest = max(recipes.longest(seen.answers) for seen in rounds)
        return self._agreed(rounds)

    def _adopt(self, copy: Copy) -> None:
        """Take a copy for what is to be kept, with what is left of its time."""
        self._value, self._left = copy.value, max(copy.left - self._took, 1)

    def _stores(self) -> Plan[tuple[bool, int]]:
        """Store it, once, on each set. Is it stored on all; and what is above its ballot somewhere, if anything is?"""
        ballot, value = self._ballot, self._value
        assert value is not None
        said = self._register.store(ballot, value, self._left)

        def known(answers: recipes.Answers, nodes: int) -> bool:
            return recipes.stored(answers, ballot, nodes) is not None

        rounds = yield from self._ask([said] * len(self._places), known)
        both = zip(self._places, rounds, strict=True)
        stored = all(recipes.stored(seen.answers, ballot, place.nodes) for place, seen in both)
        if stored:
            if value == recipes.FORGOTTEN:
                self._forgotten = True
            else:
                self.kept = value
        return stored, max(recipes.highest(seen.answers) for seen in rounds)

    # ------------------------------------------------ both

    def _ask(
        self, commands: Sequence[bytes], enough: Callable[[recipes.Answers, int], bool], shared: bool = False
    ) -> Generator[Any, Round, list[Round]]:
        """Ask each set of nodes, one after the other. `shared`: callers that ask the same at the same time share the answers."""
        rounds = []
        for command, (shard, nodes) in zip(commands, self._places, strict=True):
            asks = dict.fromkeys(range(nodes), command)
            rounds.append((yield Ask(asks, _of(nodes, enough), shard, command if shared else None)))
        return rounds

    def _agreed(self, rounds: Sequence[Round]) -> Copy | None:
        """The copy that every set has agreed on, under one ballot."""
        both = zip(self._places, rounds, strict=True)
        return recipes.common(recipes.agreed(seen.answers, place.nodes) for place, seen in both)

    def _is_result(self, agreed: Copy | None) -> bool:
        """Is what all have agreed on a result? Then it is kept."""
        if agreed is not None and not agreed.void:
            self.kept = agreed.value
        return self.kept is not None

    @property
    def _breath(self) -> Pause:
        # before nodes that did not answer are asked again
        return Pause(self._deed.terms.ttl / 30)

    def _written(self, outcome: object) -> bytes:
        try:
            data = packed(outcome, self._deed.serializer)
            if recipes.reserved(data):
                raise Unfit("its bytes begin like the notes that holdfast keeps in place of results")
        except Unfit as why:
            # It has run. If the run counted as failed, every other caller would run it again, and charge the customer again.
            self._unfit = why
            return recipes.note(readable(str(why)))
        return data

    def _without_result(self, why: str) -> Misuse:
        name = self._recipe.part if self._deed.schedule is not None else self._recipe.label
        if self._unfit is None:
            return Misuse(
                f"{name!r} was run before, but its result could not be kept, so there is none to return: {why}. It is not "
                f"run again until its caller's `keep` is over ({self._deed.keep / 1000:g} s after the run, if that caller had "
                "the same). To run it again now, call `forget()` first, or use another key"
            )
        return Misuse(
            f"{name!r} has run, but its result cannot be kept: {why}. It counts as done: no other caller runs it, and every "
            "one gets an error like this. Have it return what can be kept (None, if nobody needs a result), or pass a "
            "`serializer=` that can keep it. To run it again, call `forget()` first, or use another key"
        )


def _of(nodes: int, enough: Callable[[recipes.Answers, int], bool]) -> Callable[[recipes.Answers], bool]:
    return lambda answers: enough(answers, nodes)


def _newest(rounds: Sequence[Round]) -> Copy | None:
    """The copy of the highest ballot on any set. (Ballots are fences, and while a key moves these grow over both sets.)"""
    found = [copy for seen in rounds if (copy := recipes.newest(seen.answers)) is not None]
    return max(found, key=lambda it: (it.ballot, it.left), default=None)


# ------------------------------------------------ what users have


class Once(ABC):
    """The description of what is done once: immutable, shared by as many users as you like. `run` does it, or gives the result.

    Of all callers with one key, whichever process they are in, one runs its function, under a lock; the others wait, and get its result.
    When it raises, its own caller gets that, and the next one runs. When its process dies, somebody else is running within its ttl. At
    most one result there is for a key while it is kept and a majority of the nodes remembers it: all callers get the same one.

    That is not "the function runs once": a runner that was cut off, or stopped for longer than its ttl, before its result was stored is
    replaced, and may have done its work already. Inside, `current()` gives the lease, whose fence what it writes can be guarded by: that
    of the later run is greater.
    """

    __slots__ = ("_deed",)

    def __init__(self, options: Deed) -> None:
        self._deed = options

    @property
    def key(self) -> Name:
        """What it is called."""
        return self._deed.key

    @property
    def keep(self) -> float:
        """For how many seconds a result is kept, from when it was stored."""
        return self._deed.keep / 1000

    @property
    def per(self) -> float | str | None:
        """The length of its slots: in seconds, or "day", "week" or "month". None without slots."""
        return None if self._deed.schedule is None else self._deed.schedule.per

    @property
    def zone(self) -> str | None:
        """The time zone whose calendar its slots follow. None for slots of equal length, and without slots."""
        return None if self._deed.schedule is None else self._deed.schedule.zone

    @property
    def slack(self) -> float | None:
        """By how many seconds a slot begins early for a call without `at`. None without slots."""
        return None if self._deed.schedule is None else self._deed.schedule.slack

    def at(self, time: datetime | float) -> Self:
        """The same description for one slot: the slot that `time` lies in.

        Pass the time for which a run was scheduled, however late the call is. `slack` does not apply to it. Without `at`, the median
        clock of the nodes decides, and never the caller's.

        Args:
            time: A datetime with a time zone, or seconds since 1970.

        Returns:
            A description whose `run` and `result` mean that slot.

        Raises:
            ConfigError: The description has no `per`, or the time is no time.
        """
        return self._with(scheduled(self._deed, time))

    @abstractmethod
    def _with(self, options: Deed) -> Self: ...

    @abstractmethod
    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any | Awaitable[Any]:
        """Run the function with these arguments, unless that was done; or wait for whoever does. Returns the result that is kept.

        What all callers get was written by the serializer and read again, also the one whose function it was. The function runs inside of
        the lock, and `current()` is its lease. What it raises is raised here, and here only.

        Raises:
            LockLost: The lease was lost while the function ran, and its result could not be stored all the same.
            LockBusy: `wait` ran out while another caller was still running.
            NoQuorum: Too few nodes answer.
            SelfDeadlock: This thread or task is running it already.
            Cancelled: The event given as `cancel` was set while another caller was still running.
            Misuse: It has run, and its result cannot be kept. That counts as done: nobody runs it again while `keep` lasts, and every
                later caller gets Misuse, too.
            ConfigError: The function is none that this face runs, or the result was kept by another serializer.
        """

    @abstractmethod
    def result(self) -> Result | Awaitable[Result]:
        """Look for the result, without running anything. Does not wait for a run that is under way.

        Returns:
            A `Result`: true if there is one, which is its `value`.

        Raises:
            NoQuorum: Too few nodes answer.
            Misuse: It has run, and its result could not be kept.
            ConfigError: The result was kept by another serializer.
        """

    @abstractmethod
    def forget(self) -> bool | Awaitable[bool]:
        """Forget the result, so that the next caller runs the function again.

        If a caller is running the function, `forget` waits until that run has ended, for at most `wait` seconds, and then forgets its
        result. A result that is stored late, by a run which began before, stays forgotten.

        Returns:
            True if there was a result, or a node had a copy of one. False if there was nothing to forget.

        Raises:
            LockBusy: `wait` ran out while another caller was still running.
            NoQuorum: Too few nodes answer. The result may be forgotten, or not.
            LockLost: The lease was lost before a majority had confirmed. The result may be forgotten, or not.
            SelfDeadlock: This thread or task is running the function.
            Cancelled: The event given as `cancel` was set while `forget` waited.
        """

    def __repr__(self) -> str:
        per, zone = self.per, "" if self.zone is None else f" zone={self.zone!r}"
        length = "" if per is None else f" per={per!r}" if isinstance(per, str) else f" per={per:g}"
        return f"<Once {self.key!r} keep={self.keep:g}{length}{zone}>"
