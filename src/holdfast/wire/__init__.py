"""Bytes and connections, pure: RESP, addresses, and the connection, which is one ordered stream
to one node.

Knows the server's protocol. Must not know locks or sockets.
"""
