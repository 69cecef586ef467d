"""The whole client, pure: connections, and the claims that use them.

`engine` routes what claims and queries ask for. `upkeep` keeps the connections, `health` knows how
the nodes stand, and `notices` asks what no caller waits for.

Knows the protocol and the wire. Must not know sockets, threads, tasks or clocks: a driver moves
bytes and time.
"""
