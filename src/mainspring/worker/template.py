"""The template: a process that has imported the tasks, and forks a child for each request.

A fork copies memory as it is, and of all threads only one: from a worker, with its loop, its drivers and its
threads, it would copy locks that nobody ever releases. Here there is one thread, and nothing is going on. And it
is quick: the modules are there already.

The template is the parent of its children, and as a subreaper of whatever they leave behind. It alone signals
them, so a pid never means somebody else, and it reports the end of one when its orphans have ended, too.

Failures.
  the worker is gone     its end of the socket closes, or the kernel sends TERM: all are killed, then it ends
  it is killed itself    the kernel kills its children; the worker finds their descendants by a mark
  a descendant that the kernel cannot kill yet (a hanging disk) is waited for, but not for ever
"""

from __future__ import annotations

import faulthandler
import gc
import io
import logging
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mainspring.domain.errors import InvalidRequest
from mainspring.tasks.loading import Registry, load
from mainspring.worker import wire
from mainspring.worker.child import live
from mainspring.worker.descendants import adopt_orphans, die_with_parent, end_descendants, kill, own_children

_MESSAGES: Final = msgspec.msgpack.Decoder(wire.FromWorker)
_LONGEST: Final = 1024 * 1024
_PATIENCE: Final = 5.0  # seconds, with a process that does not die of KILL
_FAILED: Final = 70  # EX_SOFTWARE


def main() -> None:
    """Serve the worker at the other end of the descriptor given, until it is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]), signal.SIGTERM)
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for stream in (sys.stdout, sys.stderr):  # as every child will have them: nothing lost when one dies
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="replace")
    with suppress(ValueError, AttributeError, io.UnsupportedOperation):  # no standard error
        faulthandler.enable()  # a child that crashes says where
    adopt_orphans()
    registry = _loaded(control)
    if registry is not None:
        Template(control, registry).serve()


def _loaded(control: socket.socket) -> Registry | None:
    packet = control.recv(_LONGEST)
    if not packet:
        return None  # the worker is gone already
    first = _MESSAGES.decode(packet)
    assert isinstance(first, wire.Load)
    sys.path[:] = first.path
    try:
        registry = load(first.modules)
    except InvalidRequest as error:
        control.sendall(msgspec.msgpack.encode(wire.Refused(str(error))))
        return None
    root = logging.getLogger()
    if root.level == logging.WARNING:  # as it comes; what somebody has set is left alone
        root.setLevel(logging.INFO)
    control.sendall(msgspec.msgpack.encode(wire.Ready()))
    return registry


class Template:
    """Forks, signals and reaps."""

    def __init__(self, control: socket.socket, registry: Registry) -> None:
        self._control = control
        self._registry = registry
        self._pids: dict[int, int] = {}  # by the worker's number
        self._numbers: dict[int, int] = {}
        self._helpers = own_children()  # of the modules: started when they were imported
        self._ended: list[tuple[float, wire.Exited]] = []  # until when they wait for their orphans
        self._home = str(Path.cwd())
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Do what the worker asks, until it is gone."""
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        gc.collect()
        gc.freeze()  # so that a collection in a child does not touch, and copy, every page
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while self._heard({fd for fd, _ in poll.poll(self._patience())}):
                self._reap()
                self._end_orphans()
        finally:
            for pid in self._numbers:
                self._signal(pid, signal.SIGKILL)
            end_descendants()

    def _heard(self, ready: set[int]) -> bool:
        """Answer what there is to read; return whether to go on."""
        if self._woken in ready and signal.SIGTERM in os.read(self._woken, 4096):
            return False
        if self._control.fileno() not in ready:
            return True
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST, 3, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:  # gone, with words of ours unread
            return False
        if not packet:
            return False
        match _MESSAGES.decode(packet):
            case wire.Fork(child=child):
                self._fork(child, descriptors)
            case wire.Send(child=child, signal=number) if child in self._pids:  # else it has ended meanwhile
                self._signal(self._pids[child], number)
        return True

    def _fork(self, child: int, descriptors: Sequence[int]) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # in the child, until it has a handler of its own
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(wire.Exited(child, 0, reason=f"no process could be started: {error}"))
        else:
            if pid == 0:
                self._become_child(descriptors)
            self._pids[child], self._numbers[pid] = pid, child
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_child(self, descriptors: Sequence[int]) -> None:
        """Turn into a child; never return."""
        status = _FAILED
        try:
            template = os.getppid()
            line, out, err = descriptors
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(out, 1)
            os.dup2(err, 2)
            for descriptor in (self._control.detach(), self._woken, self._wake, out, err):
                os.close(descriptor)
            live(socket.socket(fileno=line), self._registry, template=template, home=self._home)
            status = 0
        except BaseException:  # noqa: BLE001 - it must not run on as a second template
            traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Take the dead off the list. What is left of the group goes first, while its number is still taken."""
        with suppress(ChildProcessError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                child = self._numbers.pop(dead.si_pid, None)
                if child is not None:
                    self._signal(dead.si_pid, signal.SIGKILL)
                _, status, usage = os.wait4(dead.si_pid, 0)
                if child is not None:
                    del self._pids[child]
                    end = wire.Exited(
                        child,
                        os.waitstatus_to_exitcode(status),
                        usage.ru_utime + usage.ru_stime,
                        usage.ru_maxrss * 1024,
                    )
                    self._ended.append((time.monotonic() + _PATIENCE, end))

    def _end_orphans(self) -> None:
        """Kill what the dead have left, and report those that have left nothing more."""
        if not self._ended:
            return  # what lives has its orphans itself
        orphans = own_children() - self._numbers.keys() - self._helpers
        for pid in orphans:
            kill(pid)
        now = time.monotonic()
        for until, end in list(self._ended):
            if not orphans or now >= until:
                self._ended.remove((until, end))
                self._tell(end)

    def _patience(self) -> float | None:
        """Return for how many milliseconds to wait; the death of an orphan wakes us sooner."""
        if not self._ended:
            return None
        return max(0.0, min(until for until, _ in self._ended) - time.monotonic()) * 1000 + 1

    def _signal(self, pid: int, number: int) -> None:
        """Signal a child that is not reaped yet, with its group once it has one."""
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)

    def _tell(self, message: wire.FromTemplate) -> None:
        with suppress(ConnectionError):  # the worker is gone; we shall hear of it
            self._control.sendall(msgspec.msgpack.encode(message))


if __name__ == "__main__":
    main()
    os._exit(0)  # without waiting for threads that the modules may have started
