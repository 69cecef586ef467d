"""The lock protocol's client side: pure, from the quorum's arithmetic to the claim.

Knows the protocol. Must not know bytes, addresses of nodes, or time that passes by itself.
Read `quorum`, `ticket`, `reach`, `command`, then `claim`.
"""
