"""Descendants: how a process ends all that it started, also what tried to get away. Linux.

A process that sets its own session, or whose parent ends before it, leaves its group, not its ancestors: the
nearest of them that is a *subreaper* becomes its parent. Every child of the template is one, and so is the
template. So what a task left behind is at any time among the children of its process, and when that ends,
among those of the template, which knows its own: the rest are orphans, and are killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PDEATHSIG: Final = 1
_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")
_LISTED: Final = Path(f"/proc/self/task/{os.getpid()}/children").exists()  # not in every kernel
_LOOK_EVERY: Final = 0.005
_PATIENCE: Final = 5.0


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own one ends."""
    _prctl(_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Ask for a signal when the thread that started us ends, which may have happened already."""
    _prctl(_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(0)


def offer_to_the_kernel() -> None:
    """Be what goes first when the machine runs out of memory, before the worker."""
    with suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"500")
        os.close(score)


def flush_c_streams() -> None:
    """Write out what extensions and C libraries hold back in their own buffers."""
    _LIBC.fflush(None)


def own_children() -> set[int]:
    """Return the processes whose parent is this one, also those that have ended and wait to be reaped.

    Complete if nobody reaps meanwhile: only that takes one off the kernel's list.
    """
    if not _LISTED:
        return {pid for pid in _processes() if _parent(pid) == os.getpid()}
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():  # each lists what it started itself
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def end_descendants() -> None:
    """Kill every child, and theirs as they become ours; return when none is left."""
    with suppress(ChildProcessError):  # there is none: one system call, when a task behaved
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for pid in own_children():
                    kill(pid)
                os.waitpid(-1, 0)


def kill(pid: int) -> None:
    """Kill a child that is not reaped yet, so that its number means nobody else."""
    with suppress(ProcessLookupError, PermissionError):  # the latter for programs that run as somebody else
        os.kill(pid, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill every process with this in its environment, and wait until there is none, for a few seconds at most.

    For when the one who knew them is gone. A process started with an environment of its own is not found.
    """
    until = time.monotonic() + _PATIENCE
    while (found := [pid for pid in _processes() if _is_marked(pid, mark.encode())]) and time.monotonic() < until:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _processes() -> Iterator[int]:
    return (int(each.name) for each in _PROC.iterdir() if each.name.isdigit())


def _parent(pid: int) -> int:
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(b")")[2].split()[1])  # the name before may hold anything


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
