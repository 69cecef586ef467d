"""Lost updates: the experiment that Jepsen ran on etcd's locks, on holdfast and its peers: `./task bench lost-updates`.

As in the rest of the bench, the harness runs in the project's own environment and each contender in one of its own, where of this package
only `client` and `storage` are imported. So this file imports nothing.
"""
