"""Locks and leases in the hands of tasks.

Knows the asyncio driver. Must not know the other half of the face, `sync`, or any primitive.
"""
