"""What is built on locks, a folder for each. No primitive imports another one.

In each folder:

- `commands`: what it asks of one node, as bytes, and what the answers mean.
- `plan`: what it does, step by step, on any number of nodes. It waits for nothing by itself.
- `sync`, `aio`: how a thread, or a task, carries out the plan.
"""
