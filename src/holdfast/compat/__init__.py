"""Other libraries' locks, made of holdfast's: the same names and arguments.

`redis` has redis-py's Lock, `redis.aio` the same for asyncio, and `pottery` has Redlock and
AIORedlock. Only programs that use the other library import them.
"""
