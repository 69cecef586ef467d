"""The guardian: a small process beside the client's, which frees the locks of a client's process
that was killed.

- `records`: the memory in which a client notes what it has asked the nodes for.
- `keeper`: what the client does. It starts the process, and writes the records.
- `program`: what that process runs.

**What is written.** Before a request leaves, the client writes the release of its token into memory
that both processes share, and clears it some requests after the release has left. To write takes no
system call and wakes nobody, so that a guardian that is stopped, or dead, keeps no client waiting.
What the kernel has of a killed process is whole: a record counts once its first byte says so, and
that byte is written last.

**When a lock is freed.** The guardian releases what is recorded once these three hold:

1. The process is dead, with all its threads: its pidfd says so.
2. No fork of it lives: all have inherited one end of a socket, of which the guardian has the other.
3. No program lives that the process has started: `/proc` shows the environment of each, in which
   the process left a mark. (This also finds a fork that has closed its files: it shares the
   memory.)

If one of them does not hold before the lease has run out, the guardian ends without a word, and the
lock is free after its ttl, as without a guardian. To release a token that is not held does nothing.
"""
