"""holdfast and its peers: one module a library, each a thin adapter (`bench.work.adapter`) with the library's own defaults.

Imported only in the library's own environment. Most of these libraries have no types: what they give is Any, here and nowhere else.
"""
