"""What a contender is put through, in a process of its own: one module for each kind of work.

Runs in the contenders' environments: only the standard library, `bench.contenders` and `bench.floors`. A module has `threads` or `tasks`
or both, functions of an adapter's class and parameters, or `alone`, of parameters only. They return figures: times in microseconds.
"""
