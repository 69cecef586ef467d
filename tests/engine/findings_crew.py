"""A finding in engine/crew.py: this fails today."""

from __future__ import annotations

from engine.world import World


def test_closing_says_nothing_of_a_claim_that_has_ended() -> None:
    """It was released, and only its confirmation is waited for: `close` tells a Refused on top of the Released."""
    world = World(telling=True).connect()
    claim = world.claim()
    world.run(0.1)
    for node in world.nodes:
        node.mute = True
    world.end(claim, heard=True)
    world.events.clear()
    world.crew.close(world.now)
    world.run(0.0)
    assert world.events == []
