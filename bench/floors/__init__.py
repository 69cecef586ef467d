"""The least that a lock over these nodes can cost: all nodes at once, every answer read, and nothing else.

No floor reconnects, times out or looks at validity; none renews. `floor.c` is the same in C. Each floor comes twice: `plain` is
SET NX PX and the compare-and-delete script, `scripts` our `request` and `release`, with tickets and a fence.
"""
