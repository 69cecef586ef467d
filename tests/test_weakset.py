"""Objects that somebody still uses: who adds to them disturbs nobody who looks through them."""

from __future__ import annotations

import gc

from holdfast.weakset import SafeWeakSet


class Thing:
    pass


def test_what_nobody_uses_any_more_is_gone() -> None:
    kept, dropped = Thing(), Thing()
    things = SafeWeakSet([kept, dropped])
    assert len(things) == 2
    del dropped
    gc.collect()
    assert list(things) == [kept]
    assert len(things) == 1


def test_what_was_discarded_is_gone_and_twice_does_not_matter() -> None:
    one, other = Thing(), Thing()
    things = SafeWeakSet([one, other])
    things.add(one)
    assert len(things) == 2
    for _ in range(2):
        things.discard(one)
    assert list(things) == [other]


def test_one_may_be_added_while_somebody_looks_through_them() -> None:
    """As another thread may do at any moment. A WeakSet raises."""
    added = [Thing()]
    things = SafeWeakSet(added)
    seen = []
    for it in things:
        seen.append(it)
        added.append(Thing())
        things.add(added[-1])
    assert seen == added[:1]
