"""What a contender is put through, in a process of its own: one module for each kind of work.

Runs in the contenders' environments: only the standard library, `bench.contenders` and `bench.floors`. Each module has `threads`, `asyncio`,
or both: a function that takes an adapter's class and parameters, and returns figures. Times are in microseconds unless a name says otherwise.
"""
