"""What users say and see of locks: everything but waiting.

Knows options, descriptions, and what a lease knows of itself. Must not know threads or tasks:
`sync` and `aio` in this folder do, and add nothing but waiting.
"""
