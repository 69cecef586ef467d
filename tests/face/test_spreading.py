"""Which set a name lives on: balance, what a new set takes, tags; and what may be said of sets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

import holdfast
import holdfast.aio
from holdfast.errors import ConfigError
from holdfast.face import spreading
from holdfast.face.spreading import Spread, listed, shards
from holdfast.node import Node

patient = effort(deadline=None, max_examples=60)
FACES = pytest.mark.parametrize("kind", [holdfast.Holdfast, holdfast.aio.Holdfast])
SETS = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True)
NAMES = st.text(min_size=1, max_size=40)
MANY = [f"invoice:{number}" for number in range(20_000)]


# ------------------------------------------------ where names live


def test_the_places_of_names_are_for_ever() -> None:
    """Clients of two versions must agree: what changes here puts the same name on two sets at once."""
    spread = Spread(["a", "b", "c"])
    assert [spread.of(it) for it in ("invoice:42", "{user}:1", "x", "\u00e9")] == [2, 1, 0, 0]
    assert (spread.digest, Spread(["a"]).digest, Spread(["redis1:6379 redis2:6379", "b"]).digest) == ("080492c2", "0", "e2372d7b")


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_every_set_has_its_share(count: int) -> None:
    spread = Spread([f"set{number}" for number in range(count)])
    homes = Counter(map(spread.of, MANY))
    fair = len(MANY) / count
    assert all(abs(homes[it] - fair) < 5 * fair**0.5 for it in range(count)), homes  # five standard deviations


@patient
@given(SETS, st.text(min_size=1, max_size=20), st.lists(NAMES, max_size=30))
def test_a_new_set_takes_names_and_moves_no_other(sets: list[str], new: str, names: list[str]) -> None:
    if new in sets:
        return
    before, after = Spread(sets), Spread([*sets, new])
    for name in names:
        assert after.of(name) in (before.of(name), len(sets))


def test_a_new_set_takes_its_share_and_no_more() -> None:
    before, after = Spread("abcd"), Spread("abcde")
    moved = Counter(before.of(it) for it in MANY if after.of(it) != before.of(it))
    assert all(abs(it - len(MANY) / 20) < 5 * (len(MANY) / 20) ** 0.5 for it in moved.values()), "from each of the four the same"
    assert sum(moved.values()) == sum(after.of(it) == 4 for it in MANY)


@patient
@given(SETS.flatmap(lambda them: st.tuples(st.just(them), st.permutations(them))), NAMES)
def test_the_order_of_sets_means_nothing(sets: tuple[list[str], list[str]], name: str) -> None:
    one, other = map(Spread, sets)
    assert one.names[one.of(name)] == other.names[other.of(name)]
    assert one.digest == other.digest


@pytest.mark.parametrize("names", [["{user:7}:mail", "{user:7}:profile", "inbox of {user:7}", "{user:7}{x}"]])
def test_names_with_one_tag_live_together(names: list[str]) -> None:
    spread = Spread("abcdefgh")
    assert len({spread.of(it) for it in names}) == 1
    assert {spread.of(f"{{user:{number}}}") for number in range(100)} == set(range(8)), "and others elsewhere"
    assert len({spread.of(f"{{user{number}") for number in range(100)}) > 1, "an open brace is no tag"


# ------------------------------------------------ what may be said


A, B = ["redis://a1", "redis://a2:7000", "redis://a3"], ["unix:///run/b.sock"]


def test_sets_by_name_and_without() -> None:
    named = shards({"left": A, "right": B}, "shards")
    assert [(it.name, it.nodes) for it in named] == [("left", tuple(map(Node, A))), ("right", tuple(map(Node, B)))]
    bare = shards([A, tuple(B)], "shards")
    assert [it.name for it in bare] == ["a1:6379 a2:7000 a3:6379", "/run/b.sock:0"]
    assert [it.places for it in bare] == [it.places for it in named]
    assert shards([A[::-1]], "shards")[0].name == bare[0].name, "in whatever order"
    assert shards([["redis://me:secret@a1/3", *A[1:]]], "shards")[0].name == bare[0].name, "and whoever one is there"
    (only,) = shards(A, "previous", flat=True)
    assert only.name == bare[0].name


REFUSED: dict[str, tuple[Any, str]] = {
    "a text": ("redis://a", "shards is a list of shards"),
    "a number": (5, "shards is a list of shards"),
    "nothing": ([], "shards has no shard"),
    "nodes": (A, "a shard is a list of addresses, not 'redis://a1'"),
    "a set that is a number": ({"a": 5}, "a shard is a list of addresses, not 5"),
    "an empty set": ({"a": A, "b": []}, "a shard is empty"),
    "no address": ({"a": ["http://a"]}, "'http://a'"),
    "no name": ({"": A}, "cannot be the name of a shard"),
    "a name of two lines": ({"a\nb": A}, "cannot be the name of a shard"),
    "a long name": ({"a" * 65: A}, "at most 64"),
    "a number for a name": ({1: A}, "the name of a shard is text"),
    "one node twice": ({"a": A, "b": [*B, A[0]]}, "'b' and 'a' have a node in common"),
    "one set twice": ([A, A[::-1]], "have a node in common"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_list_of_sets(what: str) -> None:
    given, complaint = REFUSED[what]
    with pytest.raises(ConfigError) as caught:
        shards(given, "shards")
    assert complaint in str(caught.value)


def test_a_former_node_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="redis://d:6379 is named twice"):
        holdfast.Holdfast("redis://a", "redis://b", "redis://c", previous=["redis://a", "redis://d", "redis://d"])


def test_what_an_environment_variable_lists() -> None:
    assert listed("") == listed(" ; ,") == []
    assert listed("redis://a, redis://b") == [["redis://a", "redis://b"]]
    assert listed("redis://a redis://b; redis://c;") == [["redis://a", "redis://b"], ["redis://c"]]
    assert listed("x=redis://a redis://b?db=1; y=unix:///c") == {"x": ["redis://a", "redis://b?db=1"], "y": ["unix:///c"]}
    for wrong in ("x=redis://a; redis://b", "x=redis://a; x=redis://b"):
        with pytest.raises(ConfigError, match="every shard has a name of its own"):
            listed(wrong)
    watched = "redis+sentinel://s1,s2:5/a"
    assert listed(f"redis://a,{watched}, redis://b {watched},,") == [["redis://a", watched, "redis://b", watched]]
    assert listed(f"x={watched};y=redis://b") == {"x": [watched], "y": ["redis://b"]}
    assert spreading.only(listed("x=redis://a")) == ["redis://a"]


# ------------------------------------------------ a client of several sets


@FACES
def test_a_client_says_its_sets(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = kind(shards={"left": A, "right": B})
    assert list(locks.shards) == ["left", "right"]
    assert locks.shards["right"] == ("unix:///run/b.sock",)
    assert locks.urls == ("redis://a1:6379", "redis://a2:7000", "redis://a3:6379", "unix:///run/b.sock")
    monkeypatch.setenv("HOLDFAST_NODES", f"left={' '.join(A)}; right={' '.join(B)}")
    monkeypatch.setenv("HOLDFAST_PREVIOUS", " ".join(A))
    moving = kind()
    assert moving.shards == locks.shards, "the former set is one of them"
    names = [f"n{number}" for number in range(50)]
    assert {locks.shard_of(it) for it in names} == {"left", "right"}
    assert [int(moving.lock(it)._moves is not None) for it in names] == [int(locks.shard_of(it) == "right") for it in names]
    assert not any(kind(previous=()).lock(it)._moves for it in names)
    assert not any(kind(shards={"left": A, "right": B}).lock(it)._moves for it in names), "that variable is about the other one"
    assert list(kind(A).shards.values()) == [("redis://a1:6379", "redis://a2:7000", "redis://a3:6379")]
    with pytest.raises(ConfigError, match="name"):
        locks.shard_of("")


@FACES
def test_one_set_may_take_the_place_of_another(kind: Any) -> None:
    locks = kind("redis://d", "redis://e", previous=A)
    assert [it.settings.leaving for it in locks._shards.all] == [False, True]
    assert [it.settings.shard for it in kind(A, previous=A[:2])._shards.all] == [""], "one set needs no name"
    assert locks.lock("a", "b")._moves is not None
    assert kind(A, previous=A[::-1]).lock("a")._moves is None, "the same nodes: nothing moves"


# What is named now and what was before, by servers; and which sets, by their numbers, can have a name at the same time.
MOVES = [
    ("a b", "a", [(1, 0)]),
    ("a", "a b", [(0, 1)]),
    ("a b c", "a b", [(2, 0), (2, 1), (2, 0, 1)]),
    ("a=x b", "a b", [(0, 2)]),
]


@pytest.mark.parametrize("now, before, parts", MOVES)
def test_names_move_from_sets_that_had_them_and_no_others(now: str, before: str, parts: list[tuple[int, ...]]) -> None:
    sets = [{it[0]: [f"redis://{it[-1]}"] for it in text.split()} for text in (now, before)]
    found = holdfast.Holdfast(shards=sets[0], previous=sets[1])._shards
    assert found.parts == tuple(parts)
    assert [found.together(home, {*former}) for home, *former in parts] == [len(found.all) + it for it in range(len(parts))]


@FACES
def test_what_cannot_be_held_on_two_sets_is_refused_while_it_moves(kind: Any) -> None:
    locks = kind(shards={"left": A, "right": B}, previous=A)
    stays, moves = [next(it for it in map(str, range(50)) if locks.shard_of(it) == home) for home in ("left", "right")]
    kinds = {
        "semaphore": lambda name: locks.semaphore(name, 2),
        "read-write lock": locks.rwlock,
        "election": locks.election,
        "latch": lambda name: locks.latch(name, 2),
        "barrier": lambda name: locks.barrier(name, 2),
    }
    for what, describe in kinds.items():
        describe(stays)
        with pytest.raises(ConfigError, match=f"^{what} '{moves}' moves"):
            describe(moves)
    after = kind(shards={"left": A, "right": B})
    assert after.rwlock(moves).write()._driver is not after.rwlock(stays).write()._driver
    assert after.election(moves)._driver is not after.election(stays)._driver


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nodes, too": ({"shards": {"a": A}, "_nodes": B}, "shards= is instead of nodes"),
    "nodes of two sets": ({"shards": {"a": A, "b": B}, "previous": [A[0], *B]}, "with 'a' and with 'b'"),
    "a former set twice": ({"shards": {"a": A, "b": B}, "previous": [A[:1], A[1:]]}, "previous names the shard 'a' twice"),
    "nodes and sets change": ({"shards": {"a": A, "b": B}, "previous": {"a": A[:1]}}, "make one change after the other"),
    **{
        f"previous is {wrong!r}": ({"_nodes": A, "previous": wrong}, "previous is a list of shards")
        for wrong in (5, 0, False, "", b"", "redis://a", 1.5)
    },
    "previous has a password": ({"_nodes": A, "previous": "redis://me:secret@a"}, "not 'redis://a'"),
    "shards is no list": ({"shards": 0}, "shards is a list of shards"),
    "no sets": ({"shards": {}}, "shards has no shard"),
    "a node twice in a set": ({"shards": {"a": A, "b": ["redis://b", "redis://b"]}}, "is named twice"),
}


@FACES
@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be(kind: Any, what: str) -> None:
    options, complaint = WRONG[what]
    options = dict(options)
    with pytest.raises(ConfigError) as caught:
        kind(*options.pop("_nodes", ()), **options)
    assert complaint in str(caught.value)
    assert "secret" not in str(caught.value)


@FACES
@pytest.mark.parametrize("count", [0, -1, True, 2.0, "2"])
def test_local_wants_a_number_of_sets(kind: Any, count: Any) -> None:
    with pytest.raises(ConfigError, match="shards cannot be started"):
        kind.local(1, shards=count)
