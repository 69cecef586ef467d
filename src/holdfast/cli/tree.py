"""Processes and what descends from them: who they are, what state they are in, and their end.

Knows `/proc`, `prctl` and signals. Must not know locks. On Linux everything that a command has
started is found, however it was detached: the supervisors are subreapers, so that orphans become
their children. Elsewhere only the process group is known.
"""

import os
import signal
import sys
from collections.abc import Collection
from typing import NamedTuple

LINUX = sys.platform == "linux"
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


class ProcessEntry(NamedTuple):
    """One line of `/proc/PID/stat`, as far as it is needed here."""

    pid: int
    name: str
    state: str
    parent: int
    group: int

    @property
    def dead(self) -> bool:
        """Does it run nothing any more? (Its parent may still ask for its status.)"""
        return self.state in "ZXx"


def adopt() -> None:
    """Become the parent of every orphan among the descendants of this process (Linux)."""
    if LINUX:
        _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends (Linux)."""
    if LINUX:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def process(pid: int) -> ProcessEntry | None:
    """Return what a process is now; None if it is gone."""
    try:
        text = _text(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name is in parentheses, and may have parentheses and spaces in it.
    head, _, rest = text.rpartition(")")
    state, parent, group = rest.split()[:3]
    return ProcessEntry(pid, head.partition("(")[2], state, int(parent), int(group))


def _text(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                found += map(int, _text(f"/proc/{pid}/task/{thread}/children").split())
            except FileNotFoundError:
                if os.path.exists(f"/proc/{pid}/task/{thread}"):
                    # This kernel has no such file.
                    return [it.pid for it in everybody() if it.parent == pid]
            except OSError:
                continue
    except OSError:
        return found
    return found


def everybody() -> list[ProcessEntry]:
    """Return all processes that this one can see."""
    if not LINUX:
        return []
    found = (process(int(it)) for it in os.listdir("/proc") if it.isdigit())
    return [it for it in found if it is not None]


def descendants(root: int, without: Collection[int] = ()) -> list[ProcessEntry]:
    """Return all processes below this one that are not dead, parents before children."""
    if not LINUX:
        return []
    found: list[ProcessEntry] = []
    seen = {root, *without}
    ahead = [it for it in children(root) if it not in seen]
    while ahead:
        pid = ahead.pop(0)
        seen.add(pid)
        it = process(pid)
        if it is None:
            continue
        if not it.dead:
            found.append(it)
        ahead += [child for child in children(pid) if child not in seen]
    return found


def send(pid: int, number: int) -> None:
    """Send a signal to a process, or with a negative number to a group, if it is still there."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # A program of another user (set-uid) cannot be signalled.
        return


def kill(root: int, without: Collection[int] = ()) -> list[ProcessEntry]:
    """Kill everything below a process, once.

    Returns:
        What was there. Call it again until nothing is.
    """
    found = descendants(root, without)
    for it in found:
        send(it.pid, signal.SIGKILL)
    return found


def members(group: int) -> set[int]:
    """Return the process ids in a process group."""
    return {it.pid for it in everybody() if it.group == group and not it.dead}


def ancestors(pid: int) -> set[int]:
    """Return the process ids of the parents of a process, up to the first process."""
    found = set[int]()
    at = process(pid)
    while at is not None and at.parent > 0:
        found.add(at.parent)
        at = process(at.parent)
    return found


def waits_in(pid: int) -> str:
    """Return where in the kernel a process waits, for a process that does not die."""
    try:
        return _text(f"/proc/{pid}/wchan").strip() or "?"
    except OSError:
        return "?"


def reap(without: Collection[int] = ()) -> None:
    """Take the status of dead children of this process, so that they are gone."""
    for pid in children(os.getpid()):
        if pid not in without:
            it = process(pid)
            if it is not None and it.dead:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue


def childless() -> bool:
    """Take the status of all dead children, and say whether there are no others.

    A subreaper without children has no descendants either: orphans would be its children. (Reading
    `/proc` can miss a process that is just being made.)
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return True
    return False


class News(NamedTuple):
    """What happened to a child: "stopped" or "continued", with the signal; or "ended", with its
    exit status, or the signal that it died of.
    """

    what: str
    status: int | None = None
    signal: int | None = None


def news(child: int) -> News | None:
    """Return what happened to a child since the last call; None if nothing did.

    A child that ended stays a zombie (Linux), so that its process id, which is also that of its
    group, cannot be used again.

    Raises:
        ChildProcessError: Its status was taken already, so nobody knows how it ended.
    """
    if not LINUX:
        return _news_reaped(child)
    changed = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
    while (found := os.waitid(os.P_PID, child, changed | os.WEXITED | os.WNOWAIT)) is not None:
        if found.si_code == os.CLD_EXITED:
            return News("ended", status=found.si_status)
        if found.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            return News("ended", signal=found.si_status)
        try:
            taken = os.waitid(os.P_PID, child, changed)
        except ChildProcessError:
            # It has died since we looked. The kernel answers so if only its death is left to tell.
            continue
        if taken is not None:
            return News("stopped", signal=taken.si_status) if taken.si_code != os.CLD_CONTINUED else News("continued")
    return None


def _news_reaped(child: int) -> News | None:
    pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
    if pid == 0:
        return None
    if os.WIFSTOPPED(status):
        return News("stopped", signal=os.WSTOPSIG(status))
    if os.WIFCONTINUED(status):
        return News("continued")
    return (
        News("ended", signal=os.WTERMSIG(status))
        if os.WIFSIGNALED(status)
        else News("ended", status=os.WEXITSTATUS(status))
    )
