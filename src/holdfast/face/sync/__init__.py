"""Locks and leases in the hands of threads.

Knows the threads driver. Must not know the other half of the face, `aio`, or any primitive.
"""
