"""Work that is done once: its options, and the turn of a caller that runs it or finds its result.

For threads and for asyncio. Knows recipes, queries, and what a lease tells. Must not know who
waits, or how a function is run: `sync` and `aio` hold the lock while they run one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from ... import checks
from ...checks import Seconds
from ...engine.plans import Ask, Do, Pause, Plan
from ...errors import ConfigError, LockLost, Misuse, readable
from ...events import Called
from ...face.decorators import OBJECT, Function, Kind, Name, fields, fillable, kind_of_call, label, varies
from ...face.lease import Lease
from ...face.migration import place
from ...face.schedule import EPOCH, SECOND, Calendar, Schedule, schedule
from ...face.shards import Shards
from ...face.terms import Description, ElectionOptions, LockTerms, noted, terms
from ...face.tracing import ObservedCall
from ...face.values import JSON, Serializer, Unfit, checked, packed, verdicts
from ...operations.inspection.plan import unheard
from ...operations.repair.plan import mend
from ...protocol.exclusive import Exclusive, key_of
from ...protocol.query import Query
from ...protocol.quorum import Quorum
from ...protocol.timing import Timing
from ...wire.resp import pack
from . import commands as recipes
from .commands import OnceCopy, Register

if TYPE_CHECKING:
    from ...drivers.threads import Cancel

SHORTEST = 0.05  # seconds, for which a result is kept
LONGEST = 1e8
LATEST = 1e11  # seconds since 1970: some thousand years


@dataclass(frozen=True, slots=True)
class Result:
    """The result of work that is done once. True if there is one, whatever its value is.

    Attributes:
        known: Whether there is a result.
        value: Its value. None if there is none.
    """

    known: bool
    value: Any = None

    def __bool__(self) -> bool:
        return self.known


@dataclass(frozen=True, slots=True)
class OnceTerms:
    """The options of what is done once, checked.

    Attributes:
        keep: Milliseconds for which a result is kept.
        schedule: The slots. None if there are none.
        slot: The slot that the caller has named by `at`. None: the time decides.
        terms: Those of its lock, whose name depends on the slot.
        serializer: Turns a result into bytes.
        filled: What the key was filled from for this call, a template or a function. Then braces in
            it are part of a value.
        same: Whether all calls of a key must have the same arguments. None: if it was filled from a
            template.
        call: A digest of this call's arguments. Empty: they are not compared.
        note: What the caller whose function runs says of itself.
    """

    shards: Shards
    key: Name
    keep: int
    schedule: Schedule | None
    slot: str | None
    terms: LockTerms
    serializer: Serializer
    filled: Name | bool = False
    same: bool | None = None
    call: bytes = b""
    note: str | None = None

    def lock(self, name: str, slot: str | None = None) -> Exclusive:
        """Return the lock under which it is done.

        Users cannot write the name of a slot's lock: it ends like those of other primitives.
        """
        settings = self.shards.all[0].settings
        own = "once" if slot is None else f"once {slot}"
        return Exclusive(name, prefix=settings.prefix, ttl=self.terms.timing.ttl, horizon=settings.horizon, own=own)


class OnceOptions(ElectionOptions, total=False):
    """The options of `once`, for type checkers.

    Attributes:
        note: What the caller whose function runs says of itself.
        per: What a slot is: seconds, or "hour", "day", "week" or "month".
        zone: The time zone of an hour, day, week or month.
        slack: Seconds by which a slot begins early for calls that name no time.
        serializer: Anything with `dumps` and `loads`.
        same: Whether all calls of a key must have the same arguments.
        cancel: An event that ends the wait of threads.
    """

    note: str | None
    per: Seconds | Calendar | None
    zone: str | None
    slack: Seconds | None
    serializer: Serializer | None
    same: bool | None
    cancel: Cancel | None


def described(
    shards: Shards,
    key: Name,
    *,
    keep: Seconds,
    per: Seconds | str | None = None,
    zone: str | None = None,
    slack: Seconds | None = None,
    serializer: Serializer | None = None,
    cancel: Cancel | None = None,
    note: str | None = None,
    same: bool | None = None,
    **options: Any,
) -> OnceTerms:
    """Check the options of a `once`. A template is checked when it decorates.

    Args:
        shards: Where keys live.
        key: What is done once.
        keep: See `Client.once`, and so for the others.
        options: Those of the lease of a run.

    Returns:
        The checked options.

    Raises:
        ConfigError: An option cannot work. The message says what to write instead.
    """
    kept = checks.seconds(keep, "keep", least=SHORTEST, most=LONGEST)
    slots = schedule(per, zone, slack)
    if slots is not None and kept < slots.longest:
        length, least = slots.per, checks.number(slots.longest)
        said = f"one {length}, which can last {least} s" if isinstance(length, str) else f"per={least}"
        raise ConfigError(
            f"keep={checks.number(kept)} is less than {said}: the result would be forgotten within its slot, and it "
            f"would run again. Keep it as long as somebody may ask for it, and at least keep={least}"
        )
    checks.cancel(cancel)
    # The name of the lock is not known yet, so the note is only checked here.
    held = terms(shards.all[0].settings, lambda ttl: (), note=note, **options)
    held = held._replace(cancel=cancel)
    kind = JSON if serializer is None else checked(serializer)
    checks.flags(same=same is None or same)
    made = OnceTerms(shards, key, round(kept * 1000), slots, None, held, kind, same=same, note=note)
    if not callable(key) and "{" not in str(key):
        made.lock(key)
    return made


def scheduled(options: OnceTerms, time: object) -> OnceTerms:
    """Return the same options for the slot that this time lies in.

    Raises:
        ConfigError: There are no slots, or it is no time.
    """
    if options.schedule is None:
        raise ConfigError("`at` needs slots, and this has none: pass `per=` to `once`")
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ConfigError(f"{time} has no time zone: say which moment is meant, as with datetime.now(timezone.utc)")
        micros = (time - EPOCH) // timedelta(microseconds=1)
    elif isinstance(time, bool) or not isinstance(time, int | float) or not -LATEST < time < LATEST:
        raise ConfigError(f"a time is a datetime, or seconds since 1970; not {checks.shown(time)}")
    else:
        micros = round(time * SECOND)
    return replace(options, slot=options.schedule.of(micros))


def runs(function: Function, kind: Kind, options: OnceTerms, args: Any = (), kwargs: Any = None) -> OnceTerms:
    """Check what `run` was called with.

    Args:
        function: The function to run.
        kind: The kind of functions that the caller can run: plain ones, or coroutine functions.
        options: What is done once.
        args: The function's positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The options of this call, with a digest of the arguments that are not in the key.

    Raises:
        ConfigError: It is no such function; or the key was meant as a template: its braces name a
            parameter of the function; or an argument cannot be compared with those of others.
    """
    if not callable(function):
        raise ConfigError(f"`run` is given a function and its arguments, not {checks.shown(function)}")
    if kind_of_call(function) is not kind:
        raise ConfigError(f"{label(function)} is {kind_of_call(function).value}, and what is run here is {kind.value}")
    key = options.key
    if not options.filled and isinstance(key, str) and "{" in key and (field := fillable(key, function)) is not None:
        raise ConfigError(
            f"`run` takes the key {key!r} as it is written, so all calls of {label(function)} would share one "
            f"result: {field} is not filled in. Write once(f{key!r}, ...).run(...), or decorate the function with "
            f"@locks.once({key!r}, ...), which fills it from each call's arguments. If the braces belong to the "
            "key, run a function without that parameter: functools.partial, with its positional arguments, makes "
            "one"
        )
    # A key that the user's own code has made says which calls are the same.
    same = isinstance(options.filled, str) if options.same is None else options.same
    return replace(options, call=digest(function, options.filled, args, kwargs or {})) if same else options


def digest(function: Function, template: object, args: Any, kwargs: Any) -> bytes:
    """Return a digest of the arguments that are not in the key. Empty if there can be none."""
    import inspect
    import json

    found = list(fields(template)) if isinstance(template, str) else []
    # Fields without a name or number count from 0. The object of a method is no argument.
    named = {*OBJECT, *found, *map(str, range(found.count("")))}
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
        parameters = enumerate(signature.parameters.items())
        left = {name: it.default for place, (name, it) in parameters if not {name, str(place)} & named}
        # An argument that equals its default counts as left out: a later version may have more
        # parameters.
        pairs = [(name, given[name], default) for name, default in left.items() if name in given]
        told = {name: it for name, it, default in pairs if (type(it), it) != (type(default), default)}
        text = json.dumps(told, sort_keys=True, default=_plain)
    except (TypeError, ValueError) as error:
        said = f"`once` cannot compare the arguments of {label(function)} with those of other calls: {error}"
        raise ConfigError(f"{said}. Pass what identifies a thing, or write same=False to compare nothing") from error
    return sha256(text.encode()).hexdigest()[:32].encode() if left else b""


def _plain(value: object) -> object:
    """Return what JSON writes for a value that it does not know, and every process alike."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if varies(value, text := repr(value)):
        raise TypeError(f"another process would write {checks.shown(value)} differently")
    return text


def begin(options: OnceTerms) -> Plan[Turn]:
    """Begin a caller's turn: find its slot, and the shard that keeps its result.

    Asks the nodes for the time if the caller has not named one.
    """
    name = options.key
    times = options.schedule
    if callable(name):
        raise ConfigError(
            "a function of the arguments names what is decorated: to `run` something, or for a `result`, say the "
            "key itself"
        )
    shards = options.shards
    key_of(name, shards.all[0].settings.prefix)
    slot = options.slot
    home = shards.home(name)
    at = shards.locking(home, name)
    if at != home:
        at, _ = yield from place(shards, at, name, options.terms.timing)
    yield Do(lambda it: it.keeps("once"), at)
    if times is not None and slot is None:
        slot = times.of((yield from _time(shards, name)), early=True)
    return Turn(options, name, at, slot)


def _time(shards: Shards, name: str) -> Plan[int]:
    """Return the median of the nodes' clocks, in microseconds.

    It lies between two clocks that are right, as long as a majority of them are.
    """
    at = shards.home(name)
    settings = shards.all[at].settings
    seen: Query = yield Ask(dict.fromkeys(range(len(settings.addresses)), pack(b"TIME")), shard=at)
    clocks: list[Any] = list(seen.answers.values())
    told = sorted(int(seconds) * SECOND + int(micros) for seconds, micros in clocks)
    if not seen.sufficient:
        raise unheard(settings, seen, name, "find the slot of")
    return told[len(told) // 2]


class Turn:
    """One caller's turn: what it has read, what it has run, and what is kept.

    Before a value is stored, a majority promises to accept nothing older than the caller's ballot.
    If they report a value then, the caller stores that one, and not its own. So all callers agree
    on one value, whatever happens in between.

    While a key moves to another shard, the number `at` is that of a joint shard, so a majority of
    each of the two promises and stores.
    """

    def __init__(self, options: OnceTerms, name: str, at: int, slot: str | None = None) -> None:
        self._deed, self._recipe = options, options.lock(name, slot)
        self._register = Register(self._recipe.name, self._recipe.horizon)
        self._at, self._settings = at, options.shards.every[at].settings
        self._quorum = self._settings.quorum
        self._began = self._ended = 0.0
        self._ballot = 0
        # What the last question has found: the newest copy, for how many milliseconds some node has
        # one, and how many milliseconds the question took.
        self._newest: OnceCopy | None = None
        self._longest = self._took = 0
        # Before the function ran: the ballot that was promised then, and whether a result had been
        # forgotten.
        self._since = 0
        self._again = False
        # What is to be kept, and for how many more milliseconds.
        self._value: bytes | None = None
        self._left = 0
        # Why the outcome of this caller's function cannot be kept.
        self._unfit: Unfit | None = None
        # Whether the result is to be forgotten, and whether it is.
        self._forgets = False
        self._forgotten = False
        # The bytes that are certainly kept.
        self.kept: bytes | None = None
        # Whether some node has a copy, and too few have answered to know whether it is the result.
        self.partly = False
        # Whether there was a result to forget, or a copy on some node.
        self.had = False
        # Where the result comes from, as in `Called.how`. A result that the first question finds
        # was kept.
        self.how = "kept"

    # ------------------------------------------------ what is known

    @property
    def terms(self) -> LockTerms:
        """The terms of the lock: with what is left of the time to wait.

        The wait also ends when another caller stores a result.
        """
        wait = self._deed.terms.timing.wait
        left = None if wait is None else max(0.0, wait - (self._ended - self._began))
        return self._on(self._deed.terms.timing._replace(wait=left, news_needed=self._quorum.least))

    @property
    def brief(self) -> LockTerms:
        """The same, for a caller that waits for no run: one try.

        While there are two lists of nodes, it waits for callers that complete its result.
        """
        return self._on(self.terms.timing._replace(wait=self._settings.node_timeout if self._settings.lists else 0.0))

    @property
    def alone(self) -> LockTerms:
        """The same, for a caller that waits for the lock and for nothing else."""
        return self._on(self.terms.timing._replace(news_needed=0))

    def _on(self, timing: Timing) -> LockTerms:
        """Return the terms of this turn's lock, with another timing."""
        return self._deed.terms._replace(recipes=noted((self._recipe,), self._deed.note), timing=timing)

    @property
    def value(self) -> Any:
        """The result that is kept.

        Raises:
            ConfigError: It was kept by another serializer.
            Misuse: The function has run, and its result could not be kept; or it is that of a call
                with other arguments.
        """
        assert self.kept is not None
        call, data = recipes.parted(self.kept)
        if call and self._deed.call not in (b"", call):
            raise Misuse(
                f"{self._recipe.label!r} has the result of a call with other arguments than this one. Put all that "
                "tells calls apart into the key, or write same=False, with which no arguments are compared"
            )
        if (why := recipes.noted(data)) is not None:
            raise self._without_result(why) from self._unfit
        try:
            return self._deed.serializer.loads(data)
        except verdicts() as error:
            raise ConfigError(
                f"the result of {self._recipe.label!r} cannot be read: {error!r}. All who use it must have the "
                "same `serializer`"
            ) from error

    @property
    def result(self) -> Result:
        """The result, if there is one."""
        return Result(False) if self.kept is None else Result(True, self.value)

    # ------------------------------------------------ before the lock is held

    def read(self, surely: bool = False) -> Plan[bool]:
        """Look for a result before the lock is held.

        Args:
            surely: Raise NoQuorum if too few nodes answer to know. Otherwise they may answer while
                the caller waits for the lock.

        Returns:
            Whether there is a result.
        """
        seen = yield from self._ask(self._register.look(), recipes.decided, shared=True)
        self._began, self._ended = self._began or seen.began, seen.ended
        if surely and not seen.sufficient:
            raise unheard(self._settings, seen, self._recipe.label, "look for the result of")
        agreed = recipes.agreed(seen.answers, self._quorum)
        self.partly = agreed is None and recipes.newest(seen.answers) is not None
        found = self._is_result(agreed)
        if not found:
            self.how = "waited"
        elif recipes.lacking(seen.answers):
            yield mend(self._settings, self._register.key, shard=self._at)
        return found

    # ------------------------------------------------ while it is held

    def look(self, lease: Lease) -> Plan[bool]:
        """Look for a result under the lock. If any node has one, store it on a majority now.

        Args:
            lease: The lease of the lock.

        Returns:
            Whether there is a result. False: run the function.
        """
        agreed = yield from self._promise(lease, lease.fence)
        while not self._is_result(agreed):
            if agreed is not None or self._newest is None:
                self._again, self._since, self._value = agreed is not None, self._ballot, None
                return False
            self._adopt(self._newest)
            yield from self._settle(lease, lambda copy: True)
            if self.kept is None:
                # The note of a forgotten result is settled now, under this caller's ballot. A
                # result needs another ballot.
                agreed = yield from self._promise(lease, self._ballot + 1, own=True)
        return True

    def served(self) -> Plan[None]:
        """Have observers hear where the result comes from, and how long it took."""
        facts: dict[str, Any] = {"name": self._recipe.label, "kind": "once", "how": self.how}
        yield Do(lambda it: it.offer(lambda now: Called(**facts, took=now - self._began)), self._at)

    def keep(self, lease: Lease, outcome: object) -> Plan[None]:
        """Store the outcome of the function, after it has run.

        If another caller had stored a result that this one has not seen, that result is kept.

        Args:
            lease: The lease of the lock.
            outcome: What the function has returned.

        Raises:
            LockLost: The lease is lost, or the result was forgotten meanwhile.
        """
        self.how = "ran"
        self._value, self._left = self._written(outcome), self._deed.keep

        def adopts(copy: OnceCopy) -> bool:
            if copy.ballot <= self._since:
                # It was there, or on its way, when this run began. What was forgotten before the
                # run stays forgotten, and a note of a lower ballot is one that comes late.
                return not (copy.void or self._again)
            if copy.void:
                # Another caller has held the lock since, and had the result forgotten. To store one
                # now would undo that.
                self._value = None
                told = "its result was forgotten while the function still ran"
                raise LockLost(self._recipe.label, "expired", lease.fence, told)
            return True

        yield from self._settle(lease, adopts)

    def forget(self, lease: Lease) -> Plan[None]:
        """Have the result forgotten, and with it what an earlier run stores late."""
        self._forgets = True
        yield from self._promise(lease, lease.fence)
        self.had = self._newest is not None and not self._newest.void
        # The note outlasts every copy: those that nodes have, and those that arrive late at nodes
        # which have not promised. Such a node takes a copy for as long as the fence of its run is
        # not too old, and keeps it for that run's `keep`.
        self._value, self._left = recipes.FORGOTTEN, max(self._deed.keep, self._longest) + 4 * self._recipe.horizon
        yield from self._settle(lease, lambda copy: False)

    def last(self, lost: LockLost) -> Plan[None]:
        """Store what is left to store after the lease was lost, if no newer caller has looked.

        Args:
            lost: The loss.

        Raises:
            LockLost: It could not be stored.
        """
        if not self._settled and self._value is not None:
            yield from self._stores()
        if not self._settled:
            raise lost from (lost.__cause__ if self._unfit is None else self._unfit)

    @property
    def _settled(self) -> bool:
        """Whether this caller has what it wants: the result is kept, or forgotten."""
        return self._forgotten if self._forgets else self.kept is not None

    def _settle(self, lease: Lease, adopts: Callable[[OnceCopy], bool]) -> Plan[None]:
        """Store the value, and ask again until a majority has it.

        Args:
            lease: The lease of the lock. It is checked before each question.
            adopts: Decides for a copy that turns up meanwhile whether it is stored in place of the
                value.
        """
        while True:
            lease.check()
            stored, above = yield from self._stores()
            if stored:
                return
            # The floors of some nodes are above the ballot, as after a run that takes long.
            if above > self._ballot:
                agreed = yield from self._promise(lease, above + 1, own=True)
                if self._newest is not None and adopts(self._newest):
                    self._adopt(self._newest)
                    if self._is_result(agreed):
                        return
            else:
                yield self._breath

    def _promise(self, lease: Lease, ballot: int, own: bool = False) -> Plan[OnceCopy | None]:
        """Have a majority promise to store nothing below the ballot, and see what copies they have.

        Args:
            lease: The lease of the lock. It is checked before each question.
            ballot: The fence of the lease, or a number that this caller has chosen.
            own: The caller has chosen it. Then nodes promise only while the lock is this caller's.

        Returns:
            The copy that a majority has under one ballot. None if there is none.
        """
        token = lease.token.encode() if own else b""
        while True:
            lease.check()
            if own:
                lease._expects(ballot)
            seen = yield from self._ask(self._register.look(ballot, token), recipes.promised)
            if recipes.promised(seen.answers, self._quorum):
                break
            above = recipes.highest(seen.answers)
            if own and above > ballot:
                ballot = above + 1
            yield self._breath
        self._ballot, self._newest = ballot, recipes.newest(seen.answers)
        self._took = round((seen.ended - seen.began) * 1000)
        self._longest = recipes.longest(seen.answers)
        return recipes.agreed(seen.answers, self._quorum)

    def _adopt(self, copy: OnceCopy) -> None:
        """Take over a copy as what is to be kept, with what is left of its time."""
        self._value, self._left = copy.value, max(copy.left - self._took, 1)

    def _stores(self) -> Plan[tuple[bool, int]]:
        """Store the value once.

        Returns:
            Whether a majority has stored it, and the highest ballot of any node.
        """
        ballot, value = self._ballot, self._value
        assert value is not None
        said = self._register.store(ballot, value, self._left)

        def known(answers: recipes.Answers, decides: Quorum) -> bool:
            return recipes.stored(answers, ballot, decides) is not None

        seen = yield from self._ask(said, known)
        stored = recipes.stored(seen.answers, ballot, self._quorum) is True
        if stored:
            if value == recipes.FORGOTTEN:
                self._forgotten = True
            else:
                self.kept = value
        return stored, recipes.highest(seen.answers)

    # ------------------------------------------------ both

    def _ask(
        self, command: bytes, enough: Callable[[recipes.Answers, Quorum], bool], shared: bool = False
    ) -> Plan[Query]:
        """Ask all nodes.

        Args:
            command: The bytes for them.
            enough: Whether the answers suffice, given which nodes decide.
            shared: Callers that ask the same at the same time share the answers.
        """
        asks = dict.fromkeys(range(len(self._settings.addresses)), command)
        share = command if shared else None
        seen: Query = yield Ask(asks, lambda answers: enough(answers, self._quorum), self._at, share)
        return seen

    def _is_result(self, agreed: OnceCopy | None) -> bool:
        """Return whether what all have agreed on is a result. If so, it is kept."""
        if agreed is not None and not agreed.void:
            self.kept = agreed.value
        return self.kept is not None

    @property
    def _breath(self) -> Pause:
        # How long to wait before nodes that did not answer are asked again.
        return Pause(self._deed.terms.timing.ttl / 30)

    def _written(self, outcome: object) -> bytes:
        try:
            data = packed(outcome, self._deed.serializer)
            if recipes.reserved(data):
                raise Unfit("its bytes begin like the notes that holdfast keeps in place of results")
        except Unfit as why:
            # The function has run. If the run counted as failed, every other caller would run it
            # again, and charge the customer again.
            self._unfit = why
            return recipes.note(readable(str(why)))
        return recipes.called(data, self._deed.call)

    def _without_result(self, why: str) -> Misuse:
        name = self._recipe.part if self._deed.schedule is not None else self._recipe.label
        if self._unfit is None:
            return Misuse(
                f"{name!r} was run before, but its result could not be kept, so there is none to return: {why}. It "
                f"is not run again until its caller's `keep` is over ({self._deed.keep / 1000:g} s after the run, "
                "if that caller had the same). To run it again now, call `forget()` first, or use another key"
            )
        return Misuse(
            f"{name!r} has run, but its result cannot be kept: {why}. It counts as done: no other caller runs it, "
            "and every one gets an error like this. Have it return what can be kept (None, if nobody needs a "
            "result), or pass a `serializer=` that can keep it. To run it again, call `forget()` first, or use "
            "another key"
        )


# ------------------------------------------------ what users have


class Once(Description, ABC):
    """The description of work that is done once. It is immutable, and callers may share it.

    `run` does the work, or returns the result of the caller that did. Of all callers with the same
    key, in all processes, one runs its function, under a lock. The others wait and get its result.
    If the function raises, its own caller gets the exception, and the next caller runs. If the
    process dies, another caller runs within the ttl. While the result is kept and a majority of the
    nodes remembers it, all callers get the same one.

    The function itself may run more than once. If its process is cut off, or paused for longer than
    its ttl, before the result is stored, another caller runs, although the first may have done its
    work. Inside the function, `current()` returns the lease. Guard what the function writes by the
    lease's fence: that of a later run is greater.
    """

    __slots__ = ("_lock",)
    _terms: OnceTerms

    def __init__(self, terms: OnceTerms, drivers: Sequence[Any], lock: Callable[[LockTerms], Any]) -> None:
        super().__init__(terms, drivers)
        # Describes the lock under which a function runs.
        self._lock = lock

    @property
    def key(self) -> Name:
        """The key."""
        return self._terms.key

    @property
    def keep(self) -> float:
        """Seconds for which a result is kept, from when it was stored."""
        return self._terms.keep / 1000

    @property
    def per(self) -> float | str | None:
        """The length of its slots: in seconds, or a word such as "day". None without slots."""
        return None if self._terms.schedule is None else self._terms.schedule.per

    @property
    def zone(self) -> str | None:
        """The time zone whose calendar its slots follow.

        None for slots of equal length, and without slots.
        """
        return None if self._terms.schedule is None else self._terms.schedule.zone

    @property
    def slack(self) -> float | None:
        """By how many seconds a slot begins early for a call without `at`. None without slots."""
        return None if self._terms.schedule is None else self._terms.schedule.slack

    def at(self, time: datetime | float) -> Self:
        """The same description for one slot: the slot that `time` lies in.

        Pass the time for which a run was scheduled, however late the call is. `slack` does not
        apply to it. Without `at`, the median clock of the nodes decides, and never the caller's.

        Args:
            time: A datetime with a time zone, or seconds since 1970.

        Returns:
            A description whose `run` and `result` mean that slot.

        Raises:
            ConfigError: The description has no `per`, or the time is no time.
        """
        return self._with(scheduled(self._terms, time))

    def _surrounded(self) -> ObservedCall:
        """What hears of a call's beginning and end in its caller's context."""
        return ObservedCall(self._terms.shards.all[0].settings.around, "once", (str(self.key),))

    def _with(self, terms: OnceTerms) -> Self:
        return type(self)(terms, self._drivers, self._lock)

    def _filled(self, key: str) -> Self:
        """The description for a call of a decorated function, whose arguments make this key."""
        return self._with(replace(self._terms, key=key, filled=self.key))

    @abstractmethod
    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any | Awaitable[Any]:
        """Run the function, unless that was done, and return the result.

        If another caller is running it, wait for its result. Every caller gets what the serializer
        wrote and read again, also the caller whose function ran. The function runs under the lock,
        and `current()` returns its lease. What it raises is raised by this call only.

        Args:
            function: A function. With asyncio, a coroutine function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            The result that is kept.

        Raises:
            LockLost: The lease was lost while the function ran, and its result could not be stored.
            LockBusy: `wait` ran out while another caller was still running.
            NoQuorum: Too few nodes answer.
            Misuse: This thread or task is running it already (`self_deadlock`).
            Cancelled: The event given as `cancel` was set while another caller was still running.
            Misuse: It has run, and its result cannot be kept. That counts as done: no caller runs
                it again while `keep` lasts, and every later caller gets Misuse, too. Or the result
                is that of a call with other arguments.
            ConfigError: It is no function of that kind, the result was kept by another serializer,
                or an argument has no text that is the same in every process (see `same`).
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

        If a caller is running the function, `forget` waits until that run has ended, for at most
        `wait` seconds, and then forgets its result. A result that is stored late, by a run which
        began before, stays forgotten.

        Returns:
            True if there was a result, or a node had a copy of one. False if there was nothing to
            forget.

        Raises:
            LockBusy: `wait` ran out while another caller was still running.
            NoQuorum: Too few nodes answer. The result may be forgotten, or not.
            LockLost: The lease was lost before a majority had confirmed. The result may be
                forgotten, or not.
            Misuse: This thread or task is running the function (`self_deadlock`).
            Cancelled: The event given as `cancel` was set while `forget` waited.
        """

    def __repr__(self) -> str:
        per, zone = self.per, "" if self.zone is None else f" zone={self.zone!r}"
        length = "" if per is None else f" per={per!r}" if isinstance(per, str) else f" per={per:g}"
        return f"<Once {self.key!r} keep={self.keep:g}{length}{zone}>"
