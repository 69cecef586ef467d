"""How all states of a `Model` are visited: breadth first, or depth first to find circles."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .explorer import Bounds, Broken, Model, Situation


@dataclass
class Explored:
    """What an exploration has found. `states` and `events`: how many; `seen`: what happened."""

    states: int = 0
    events: int = 0
    seen: Counter[str] = field(default_factory=Counter)


class Search:
    """Breadth first: so a broken law is shown by a shortest history."""

    def __init__(self, bounds: Bounds) -> None:
        self.model = Model(bounds)
        self.states: list[Situation] = []
        self._parents = array("q")

    def run(self, most: int | None = None, first: Situation | None = None) -> Explored:
        """Visit every state (`most`: at most so many), beginning with the `first`. Raises Broken, with its trace."""
        model, explored = self.model, Explored()
        first = first or model.first()
        known, states, parents = {first}, self.states, self._parents
        states.append(first)
        parents.append(-1)
        at = 0
        while at < len(states) and (most is None or at < most):
            state = states[at]
            try:
                model.look(state)
                if model.bounds.recovery and not model.bounds.faultless:
                    model.recovers(state)
                stuck = True
                for label, after in model.successors(state):
                    explored.events += 1
                    stuck = stuck and label[0] in ("gives it back", "time passes", "begins", "extends", "downgrades", "gives up")
                    after = model.ordered(after)
                    if after not in known:
                        known.add(after)
                        states.append(after)
                        parents.append(at)
                if stuck and model.bounds.faultless and model.waits(state) and not model.holds(state):
                    raise Broken("idle: nothing is under way, nobody holds it, and somebody waits")
            except Broken as broken:
                broken.trace = self.trace(at)
                raise
            at += 1
        explored.states, explored.seen = at, model.seen
        return explored

    def trace(self, at: int) -> list[str]:
        """How it came to a state."""
        path = [at]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        path.reverse()
        names = list(range(self.model.bounds.nodes))  # which node is where: states have them in order
        told = []
        for here, there in pairwise(path):
            for label, after in self.model.successors(self.states[here]):
                if self.model.ordered(after) == self.states[there]:
                    told.append(" ".join(map(str, label)) + f"   (nodes are {names})")
                    order = sorted(range(len(names)), key=after[4].__getitem__)
                    names = [names[i] for i in order]
                    break
        return told


def walk(first: Any, follow: Callable[[Any], Iterator[Any]], most: int) -> tuple[int, bool]:
    """Depth first, so that what leads back to itself is found on the way to it. How many states there are, and whether those are all."""
    on_the_way, done = {first}, set[Any]()
    path = [(first, follow(first))]
    for _ in range(most * 50):
        state, rest = path[-1]
        after = next(rest, None)
        if after is None:
            path.pop()
            on_the_way.discard(state)
            done.add(state)
            if not path or len(done) >= most:
                break
        elif after in on_the_way:
            raise Broken("circle: it goes on for ever")
        elif after not in done:
            on_the_way.add(after)
            path.append((after, follow(after)))
    return len(done), not path
