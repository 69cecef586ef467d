"""What moves bytes and time between an engine and the world: threads, asyncio.

Knows sockets, threads, event loops and the clock. Must not know the protocol.
"""
