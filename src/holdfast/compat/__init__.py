"""Other libraries' locks, made of holdfast's: the same names and arguments, for programs that move over.

`redis` has redis-py's Lock, `redis.aio` the same for asyncio, `pottery` Redlock and AIORedlock. Only programs that use
the other library import them.
"""
