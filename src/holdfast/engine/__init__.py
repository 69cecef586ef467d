"""The whole client, pure: lanes and claims joined into a crew.

Knows core and wire. Must not know sockets, threads, tasks or clocks: a driver moves bytes and time.
"""
