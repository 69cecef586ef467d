"""How the simulated servers of the scripts' tests differ: they answer as these versions of real ones.

Knows what clients and scripts see of a version. Must not know which tests run on it.
"""

from __future__ import annotations

from holdfast.testing.values import Dialect, exact


def scientific(number: float) -> bytes:
    """The same as Redis 7.2.0 to 7.2.4 write it (redis#13113): 1.8e+15, where commands expect
    digits.
    """
    digits = b"%.0f" % abs(number)
    told = digits.rstrip(b"0")
    if number % 1 or len(digits) < len(told) + 8:
        return exact(number)
    return b"-"[: number < 0] + told[:1] + b"."[: len(told) > 1] + told[1:] + b"e+%d" % (len(digits) - 1)


REDIS_6_2 = Dialect(b"redis", b"6.2.14", own_push_last=False, takes_setinfo=False, takes_sections=False, wraps_errors=True)
REDIS_7_2 = Dialect(b"redis", b"7.2.4", number=scientific)
VALKEY_9 = Dialect(b"valkey", b"9.1.2")
