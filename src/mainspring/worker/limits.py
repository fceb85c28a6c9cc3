"""What a task may use of the machine, set in the process that runs it."""

from __future__ import annotations

import resource
from math import ceil

from mainspring.tasks.task import TaskOptions


def limited(options: TaskOptions) -> bool:
    """Return whether a task has limits. Then it gets a process of its own, whatever its mode.

    In one that others have used it would start with their memory and their seconds, and some limits cannot be
    raised again for whoever comes next. A limit means the same in every run.
    """
    return not (options.memory is None and options.cpu is None and options.files is None)


def impose(options: TaskOptions) -> None:
    """Set the limits of a task, for this process and all it starts; never above those of the worker."""
    if options.memory is not None:
        _set(resource.RLIMIT_AS, options.memory, resource.RLIM_INFINITY)  # the hard one stays: see lift_memory
    if options.cpu is not None:
        seconds = ceil(options.cpu.total_seconds())
        _set(resource.RLIMIT_CPU, seconds, seconds + 1)  # XCPU, and KILL for whoever ignores it
    if options.files is not None:
        _set(resource.RLIMIT_NOFILE, options.files, options.files)


def lift_memory() -> None:
    """Make room to say that there was none."""
    _set(resource.RLIMIT_AS, resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def _set(limit: int, soft: int, hard: int) -> None:
    _, most = resource.getrlimit(limit)
    soft, hard = (_lower(each, most) for each in (soft, hard))
    resource.setrlimit(limit, (soft, hard))


def _lower(wanted: int, most: int) -> int:
    if resource.RLIM_INFINITY in (wanted, most):  # which is -1
        return max(wanted, most)
    return min(wanted, most)
