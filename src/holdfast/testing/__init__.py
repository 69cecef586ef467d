"""The third driver: the engine in virtual time, against simulated nodes that run the shipped scripts, in a world full of faults.

Knows drivers' business, and faults. Must not know faces. `python -m holdfast.testing --help` explores.

Read `server` (one node), `world` (time and chance), `network` (nodes and connections in it), `driver` (a client in it), `laws` (what must
hold), `faults`, `stage`, `scenes` and `explore` (what a seed stands for), `timeline` (telling it).
"""
