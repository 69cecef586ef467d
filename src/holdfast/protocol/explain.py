"""What the votes of a claim mean for people: why a lock was not acquired, and what to do about it.

Knows votes and nodes, and only reads them. Must not decide anything: the claim does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..errors import ITSELF, ConfigError, LockBusy, NoQuorum, message_of, readable
from .answer import LASTING, SHOWN
from .command import SHARED, Recipe
from .nodes import NodeSet, Standing, forbidden
from .ticket import TOKEN, inbox_of
from .vote import Vote


def in_vain(
    recipe: Recipe, inbox: bytes, votes: Sequence[Vote], node_set: NodeSet, began: float, now: float
) -> Exception:
    """Return what to tell a caller who waited in vain.

    Args:
        recipe: What was asked for.
        inbox: The inbox of the client that asked.
        votes: What each node has said.
        node_set: How each node stands.
        began: When the claim began.
        now: The time.

    Returns:
        ConfigError if waiting could not help; NoQuorum if too few nodes have an opinion, or none
        says that somebody else has it; else LockBusy, by the holder that most of them name.
    """
    misfit_error = misfit(recipe.label, votes, node_set)
    if misfit_error is not None:
        return misfit_error
    reachable = (Standing.UP, Standing.CONNECTING)
    of_use = {i: v for i, v in enumerate(votes) if v.error is None and node_set.standing[i] in reachable}
    against = [vote for vote in of_use.values() if vote.against]
    if not node_set.quorum.met(of_use) or not against:
        return unheard(recipe.label, votes, node_set, "acquire", began, now)
    holders = [vote for vote in against if vote.holder is not None]
    if not holders:
        return LockBusy(recipe.label, now - began, None, None)
    named = Counter(vote.holder for vote in holders)
    return busy(recipe, inbox, max(holders, key=lambda vote: named[vote.holder]), now - began, now)


def misfit(label: str, votes: Sequence[Vote], node_set: NodeSet) -> ConfigError | None:
    """Return why waiting cannot help, if it cannot.

    Either this client was never able to use a majority of the nodes, or may not call there what
    this lock needs, or a majority has a key of another type under the name.
    """
    if (misconfiguration := node_set.misconfiguration) is not None:
        return misconfiguration
    if (
        wrong := forbidden({node_set.labels[at]: it.error for at, it in enumerate(votes)}, node_set.quorum.least)
    ) is not None:
        return wrong
    unfit = [node for node, vote in enumerate(votes) if vote.no_lock]
    if len(unfit) < node_set.quorum.least:
        return None
    where = ", ".join(node_set.labels[node] for node in unfit)
    return ConfigError(
        f"{label!r} cannot be locked: its key on {where} holds data of another type than a lock's (a string). "
        "Choose another name, or remove that key."
    )


def busy(recipe: Recipe, inbox: bytes, vote: Vote, waited: float, now: float) -> LockBusy:
    """Return the error that names who has the lock, as far as the answer of one node tells.

    Args:
        recipe: What was asked for.
        inbox: The inbox of the client that asked.
        vote: A vote of a node that has denied.
        waited: For how many seconds the caller has waited.
        now: The time.
    """
    value = vote.holder or b""
    if TOKEN.fullmatch(value):
        who = ITSELF if inbox_of(value) == inbox else f"holdfast client {inbox_of(value)[:8].decode()}"
    elif value == SHARED:
        who = "readers of the read-write lock of this name"
    else:
        who = f"another program, which wrote {readable(repr(_text(value)), 80)}"
    advice = ""
    if vote.left == LASTING:
        who += ", without an expiry"
        advice = _removal(recipe, vote)
    left = max(0.0, vote.told + vote.left / 1000 - now) if vote.left >= 0 else None
    return LockBusy(recipe.label, waited, _text(value), left, who=who, advice=advice)


def warning(recipe: Recipe, vote: Vote) -> str:
    """Return what to warn of: a key that is no lock, or a value that never expires."""
    if vote.no_lock:
        return (
            f"the key of {recipe.part!r} holds data of another type than a lock's (a string): "
            "this node grants the lock to nobody. Choose another name, or remove that key."
        )
    shown = readable(repr(_text(vote.holder)), 80)
    return (
        f"{recipe.part!r} is held there by {shown}, a value without an expiry: it stays until it is removed. "
        f"{_removal(recipe, vote)}"
    )


def unheard(label: str, votes: Sequence[Vote], node_set: NodeSet, doing: str, since: float, now: float) -> NoQuorum:
    """Return the error for what too few nodes have answered, with the reason at each node.

    Args:
        label: The lock's name.
        votes: What each node has said.
        node_set: How each node stands.
        doing: What was asked for: "acquire" or "extend".
        since: When the nodes were asked.
        now: The time.
    """
    found = causes(votes, node_set, since, now)
    quorum, away = node_set.quorum, now - node_set.dark
    return NoQuorum(label, now - since, found, quorum.least, doing, away=away, lists=quorum.lists)


def causes(votes: Sequence[Vote], node_set: NodeSet, since: float, now: float) -> dict[str, Exception]:
    """Return what is wrong at each node that has not granted what it was asked since."""
    found: dict[str, Exception] = {}
    for node, vote in enumerate(votes):
        cause = node_set.cause(node, now) or vote.error
        # What was asked at this very moment cannot have been answered.
        if cause is None and vote.sent < since < now:
            cause = TimeoutError("no answer yet")
        if cause is not None:
            found[node_set.labels[node]] = cause
    return found


def obstacles(votes: Sequence[Vote], node_set: NodeSet, patience: float, now: float) -> str:
    """Return on one line what is wrong at nodes that have had `patience` seconds for a renewal."""
    found = causes(votes, node_set, now - patience, now)
    return "; ".join(f"{node}: {message_of(cause)}" for node, cause in found.items())


def too_far_ahead(label: str, fence: int, ahead: float) -> ConfigError:
    """Return the error for a node whose fence no clock allows.

    Args:
        label: The lock's name.
        fence: The fence that the node has granted.
        ahead: By how many seconds the fence is ahead of the clocks.
    """
    return ConfigError(
        f"its fence of {label!r} is {fence}, {ahead:.0f} s ahead of the clocks, and is not used. "
        "Check the node's clock. If it is right, force_release() repairs the fence."
    )


def _removal(recipe: Recipe, vote: Vote) -> str:
    """Return how to remove a value that never expires."""
    value = vote.holder or b""
    only = f", only={_text(value)!r}" if value else ""
    # There may be more of it than the denial showed.
    if len(value) == SHOWN:
        only = f", only=locked_by({recipe.part!r})"
    return f"If the program that wrote it is gone, call force_release({recipe.part!r}, reason{only})."


def _text(value: bytes | None) -> str:
    """Return a holder's value as people see it, and as `force_release` takes it."""
    return (value or b"").decode("utf-8", "backslashreplace")
