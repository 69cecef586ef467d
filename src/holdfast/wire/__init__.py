"""Bytes and connections, pure: RESP, addresses, and the lane, which is one ordered connection to
one node.

Knows the server's protocol. Must not know locks or sockets.
"""
