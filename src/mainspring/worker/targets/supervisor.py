"""The supervisor of one command: starts it, ends all it has started once it is over, and then ends as it did.

Run as a script, by ``python -I -S``: without the site and our package it starts in 20 ms. It leads the session and the
group that the command is in, and adopts what gets away from both.

  TERM     is meant for the command, which gets it with its group
  USR1     ends everything now; the kernel sends it as well, when the worker is gone
  killed   the kernel kills the command, and the worker the group; what has left the group may be left
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn

NOT_STARTED: Final = 127  # as shells have it
_HEARD: Final = {signal.SIGCHLD, signal.SIGUSR1}
_BLOCKED: Final = {*_HEARD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def main() -> NoReturn:
    """Supervise the command in the arguments, on behalf of the process named by the first."""
    worker, command = int(sys.argv[1]), sys.argv[2:]
    descendants = _beside("descendants.py")
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    descendants.adopt_orphans()
    descendants.die_with_parent(worker, signal.SIGUSR1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        descendants.die_with_parent(supervisor, signal.SIGKILL)
        _become(command)
    status = _wait_for(child)
    descendants.end_descendants()
    _end_as(status)


def _beside(name: str) -> ModuleType:
    # By its path: the package is out of reach, and importing it would take ten times as long.
    spec = spec_from_file_location(Path(name).stem, Path(__file__).parents[1] / name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _become(command: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    variables = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}  # Python adds it
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(NOT_STARTED)


def _wait_for(child: int) -> int:
    """Return how the child ended; killed, if it has not when everything has to end."""
    while signal.sigwait(_HEARD) is signal.SIGCHLD:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)  # orphans as well
            if pid == child:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                break
    return -signal.SIGKILL


def _end_as(status: int) -> NoReturn:
    if status < 0:
        number = -status
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
