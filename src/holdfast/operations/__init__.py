"""What operators do: look at locks, release them by force, copy what a node has lost.

In each folder, `commands` is what one node is asked, and `plan` is what is done with its answer.
"""
