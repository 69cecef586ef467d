"""How each primitive is made of claims: what it asks of one node, and where it keeps things there.

Knows scripts, their arguments and answers. Must not know nodes, retries or clocks.
"""
