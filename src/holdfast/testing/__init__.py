"""The third driver: the engine in virtual time, against simulated nodes that run the shipped scripts, in a world full of faults.

Knows drivers' business, and faults. Must not know faces. `python -m holdfast.testing --help` explores.

For your own code there is `simulation`, which docs/testing.md shows: it alone uses a face.

Read `server` (one node), `world` (time), `chance` (which faults), `network` (nodes and connections in it), `driver` (a client in it),
`laws` (what must hold), `faults`, `stage`, `scenes` and `explore` (what a seed stands for), `campaign` (many of them), `shrink` (a failing
one made small), `timeline` and `picture` (telling it).
"""
