"""A simulated node of a read-write lock: what docs/protocol.md says of its scripts, in a page. Nothing here is shared with `src`."""

from __future__ import annotations

from collections.abc import Callable

from protocol.nodes import HORIZON, Node

from holdfast.protocol.command import CEDE, GRANTED, INQUIRY, TRY, Command

SHARED = b"shared"


def reads(token: bytes) -> bool:
    return token.endswith(b":r")


def twin(token: bytes) -> bytes:
    """The writer that a reader was before its downgrade."""
    return token[:-1] + b"w"


class RWNode(Node):
    """One master, and one name on it. The readers are there while the name is `shared`."""

    def __init__(self, publish: Callable[[bytes, bytes, int], bool], horizon: int = HORIZON) -> None:
        super().__init__(publish, horizon)
        self._readers: dict[bytes, int] = {}  # token -> lease deadline
        self._rfence, self._rforgotten = 0, 0

    def state(self, now: int) -> tuple[object, ...]:
        rfence = self._rfence if now <= self._rforgotten else 0
        self._drop(now)
        readers = tuple(sorted(self._readers.items())) if self._name == SHARED else ()
        return *super().state(now), rfence, self._rforgotten if rfence else 0, readers

    def become(self, state: tuple[object, ...]) -> None:
        super().become(state[:6])
        self._rfence, self._rforgotten, readers = state[6:]  # type: ignore[assignment]  # (what `state` gave)
        self._readers = dict(readers)  # type: ignore[call-overload]  # (pairs)

    def _drop(self, now: int) -> None:
        """What has run out does not count."""
        if now > self._until:
            self._name = b""
        if self._name == SHARED:
            self._readers = {token: deadline for token, deadline in self._readers.items() if deadline > now}
            if not self._readers:
                self._name = b""

    def _enqueue(self, token: bytes, deadline: int) -> bool:
        new = super()._enqueue(token, deadline)
        if new and reads(token):
            self._waiters.pop(twin(token), None)
        return new

    def _holds(self, token: bytes) -> bool:
        return token in self._readers and self._name == SHARED if reads(token) else self._name == token

    def _fits(self, token: bytes) -> bool:
        return not self._name or (self._name == SHARED and reads(token))

    def _put(self, token: bytes, deadline: int) -> None:
        value = SHARED if reads(token) else token
        if self._name != value:
            self._name, self._until, self._readers = value, deadline, {}
        self._until = max(self._until, deadline)
        if reads(token):
            self._readers[token] = max(deadline, self._readers.get(token, 0))

    def _read(self, proposed: int, deadline: int, now: int) -> int:
        """A reader's fence: above every writer's here, and the same for as long as it holds."""
        self._fence = self._known(now)
        if self._forgotten < deadline:
            self._forgotten = min(deadline + self._horizon, now + 2 * self._horizon)
        fence = max(self._fence + 1, proposed)
        if fence > (self._rfence if now <= self._rforgotten else 0):
            self._rfence, self._rforgotten = fence, max(fence // 1000 + self._horizon, deadline)
        return fence

    def _known_readers(self, now: int) -> int:
        return self._rfence if now <= self._rforgotten else now * 1000 - self._horizon * 500 - 1

    def _give(self, token: bytes, deadline: int, proposed: int, now: int) -> int:
        if reads(token):
            fence = self._read(proposed, deadline, now)
        else:
            fence = self._fence = max(self._known(now) + 1, self._known_readers(now) + 1, proposed)
            self._forgotten = max(fence // 1000 + self._horizon, deadline)
        self._put(token, deadline)
        return fence

    def _give_up(self, token: bytes) -> None:
        if reads(token):
            del self._readers[token]
            if self._readers:
                return
        self._name = b""

    def _promote(self, now: int, caller: bytes = b"", proposed: int = 0, forgotten: int = 0) -> int:
        got = 0
        while self._waiters:
            head = min(self._waiters)
            deadline = self._waiters[head]
            if deadline > now and not self._fits(head):
                break
            del self._waiters[head]
            if deadline <= now:
                continue
            fence = self._give(head, min(deadline, now + 2 * self._horizon), proposed if head == caller else int(head[:16]), now)
            if head == caller:
                got = fence
            elif not self._publish(GRANTED, head, fence):
                self._give_up(head)
        return got

    def execute(self, command: Command, now: int) -> object:
        self._drop(now)
        return super().execute(command, now)

    def _request(self, token: bytes, ttl: int, mode: bytes, proposed: int, now: int, clock: int) -> object:
        if reads(token) and self._name == twin(token):
            deadline = max(now + ttl, self._until)
            self._put(token, deadline)
            fence = self._read(proposed, deadline, now)
            self._promote(now)
            return [fence, 0, 0]
        if self._holds(token):
            lower = bool(self._waiters) and min(self._waiters) < token
            if not (mode == CEDE and lower):
                self._put(token, now + ttl)
                if reads(token):
                    return [self._read(proposed, now + ttl, now), int(lower), 0]
                self._renew(proposed, now, mode)
                return [self._fence, int(lower), 0]
            self._give_up(token)
            self._enqueue(token, now + ttl)
            if fence := self._promote(now, token, proposed):
                return [fence, 0, 1]
        elif self._fits(token) and not self._waiters:
            fence = self._give(token, now + ttl, proposed, now)
            return b"%016d" % fence if fence == proposed else [fence, 0, 1]
        elif mode == TRY:
            if fence := self._promote(now, token, proposed):
                return [fence, 0, 1]
            if self._fits(token) and not self._waiters:
                return [self._give(token, now + ttl, proposed, now), 0, 1]
        else:
            new = self._enqueue(token, now + ttl)
            if fence := self._promote(now, token, proposed):
                return [fence, 0, 1]
            asked = (
                [self._name]
                if self._name != SHARED
                else []
                if reads(token)
                else sorted(self._readers, key=lambda it: (self._readers[it], it))
            )
            for other in asked if new and self._name else []:
                if token < other:
                    self._publish(INQUIRY, other, 0)
        place = sorted(self._waiters).index(token) if token in self._waiters else -1
        told = self._fence if now <= self._forgotten else 0
        if not reads(token):
            told = max(told, self._rfence if now <= self._rforgotten else 0)
        if self._name == SHARED:
            left, holder = max((deadline, it) for it, deadline in self._readers.items())
            return [0, left - now, place, holder, told]
        return [0, self._until - now if self._name else -2, place, self._name or None, told]

    def _release(self, token: bytes, now: int) -> int:
        mine = 0
        for it in (token, twin(token)) if reads(token) else (token,):
            if self._holds(it):
                self._give_up(it)
                mine = 1
            self._waiters.pop(it, None)
        self._promote(now)
        return mine


__all__ = ["SHARED", "RWNode", "reads", "twin"]
