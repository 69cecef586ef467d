"""The driver for asyncio: one for a client and event loop.

- `driver`: what the face calls.
- `sockets`: the connections.
- `run`: how a task carries out a plan.
"""
