"""The whole client, pure: connections and claims joined into an engine.

Knows core and wire. Must not know sockets, threads, tasks or clocks: a driver moves bytes and time.
"""
