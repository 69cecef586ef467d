"""The frozen wire: keys, the form of tokens, and each script's digest, as a text. It is compared with tests/wire.txt.

Clients of two versions share nodes. So whatever this shows is a promise to clients that are out there.
It imports nothing but the package, so it runs where only the wheel is installed.
"""

from __future__ import annotations

import re

from holdfast import scripts
from holdfast.protocol import ticket
from holdfast.protocol.exclusive import _OURS, beside, keys_of
from holdfast.protocol.readwrite import rw_keys_of
from holdfast.protocol.ticket import Tickets


def described() -> str:
    """Describe everything that clients of one node have to agree about."""
    lines = ["# keys, of the name n and of the name a{t}b"]
    found = re.search(rb"\(([a-z|]+)\)", _OURS)
    assert found is not None, "the kinds of keys stand elsewhere now"
    for name in (b"n", b"a{t}b"):
        lines.append(f"lock {b' '.join(keys_of(name)).decode()}")
        lines.append(f"rwlock {b' '.join(rw_keys_of(name)).decode()}")
        lines += [f"{kind.decode()} {beside(name, kind).decode()}" for kind in sorted(found[1].split(b"|"))]
    tickets = Tickets(b"0123456789abcdef" * 2)
    lines += [
        "",
        "# tokens and fences",
        f"token {tickets.token(tickets.ticket(1.5)).decode()}",
        f"tokens {ticket.TOKEN.pattern.decode()}",
        f"fences {ticket.FENCE.pattern.decode()}",
        f"last {ticket.LAST}",
        "",
        "# scripts: digest, number of keys, arguments",
    ]
    every = {it.name: it for it in vars(scripts).values() if isinstance(it, scripts.Script)}
    lines += [f"{name} {it.sha.decode()} {it.keys} {' '.join(it.arguments)}".rstrip() for name, it in sorted(every.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(described(), end="")
