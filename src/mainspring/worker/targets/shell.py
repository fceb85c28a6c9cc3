"""The shell target: runs a command that the operator has put on a list, with the arguments that a job gives.

Promise. A job picks a name from the list and adds arguments; no shell reads either, so that nothing in them is more
than text. When ``run`` returns or is cancelled, nothing the command started is left. It sees none of the worker's
environment: what it needs beyond the variables below, its own entry in the list has to bring along.

::

    ShellTarget({"backup": ["/usr/local/bin/backup", "--quiet", "--"]})  # the operator
    {
        "command": "backup",
        "args": ["customers"],
        "stdin": "…",
    }  # the job; {"$secret": "env:NAME"} as stdin, if open to it

Not promised. What a program makes of its arguments: where they must not be options, end the entry with ``--``.

Failures.
  it does not stop      TERM to its group, its grace, then KILL for all it started, in whatever session
  the worker is killed  the supervisor of the command is told by the kernel, and ends everything
  it writes no end      its pipe is full, and it waits; the worker reads a piece at a time
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import slot_text
from mainspring.domain.job import Json
from mainspring.domain.references import names_secret
from mainspring.domain.settling import Discarded, ErrorInfo, Failed, Outcome, Succeeded
from mainspring.service import shielded
from mainspring.tasks.context import Output
from mainspring.worker.attempt import Attempt
from mainspring.worker.opening import with_secrets
from mainspring.worker.pipes import Pipe
from mainspring.worker.secrets import Secrets, SecretsByScheme

USUAL_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_ARGUMENTS: Final = 100
LONGEST_ARGUMENT: Final = 4_000
LONGEST_INPUT: Final = 1 << 20
_SUPERVISOR: Final = str(Path(__file__).with_name("supervisor.py"))
_LAST_WORDS: Final = 10  # lines of stderr in the message of a failure
_INSIST_FOR: Final = timedelta(seconds=10)  # how long all it started may take to be killed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRequest:
    """What a job wants run."""

    command: str
    args: tuple[str, ...] = ()
    stdin: str = ""


class ShellTarget:
    """Runs commands from a list. Without an entry for it, nothing runs."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        grace: timedelta = timedelta(seconds=5),
        path: str = USUAL_PATH,
        directory: Path = Path("/"),
        secrets: Secrets | None = None,
    ) -> None:
        """Take the list: names, each with the program and its first arguments.

        Raises:
            InvalidRequest: an entry has no program, or is a text where a list belongs.
        """
        for name, argv in commands.items():
            if isinstance(argv, str) or not argv or not all(argv):
                allowed = 'use a list, such as ["/usr/bin/rsync", "--archive", "--"]'
                raise InvalidRequest("this is no command", field=f"shell.commands.{name}", value=argv, allowed=allowed)
        self._commands = {name: tuple(argv) for name, argv in commands.items()}
        self._grace = grace
        self._path = path
        self._directory = directory
        self._with_secrets = with_secrets(self._run, secrets or SecretsByScheme())

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the command to its end. Raises nothing but cancellation, and that when all it started has ended."""
        payload = attempt.run.payload
        if not names_secret(payload):
            return await self._run(attempt)
        if not isinstance(payload, Mapping) or names_secret([payload[name] for name in payload if name != "stdin"]):
            reason = "a secret there would be seen by everybody on the machine"
            return Discarded(f"payload: {reason}; use one as stdin, which nobody else can read")
        return await self._with_secrets(attempt)

    async def _run(self, attempt: Attempt) -> Outcome:
        try:
            request = read_request(attempt.run.payload)
            if request.command not in self._commands:
                _refuse(
                    "command", f'"{request.command}" is not open to jobs', "its operator lists it in shell.commands"
                )
        except InvalidRequest as error:
            return Discarded(str(error))
        argv = (*self._commands[request.command], *request.args)
        output = _Tee(attempt.output)
        try:
            command = _Command(argv, request.stdin, self._variables(attempt), self._directory, output)
        except OSError as error:
            return _failed("crashed", f"no process could be started: {error.strerror}")
        status = await command.ended(self._grace)
        if status == 0:
            return Succeeded({"exit": 0})
        if status < 0:
            return _failed("crashed", f'"{request.command}" was killed by {_signal_name(-status)}{output.last_words}')
        return _failed(f"exit_{status}", f'"{request.command}" exited with status {status}{output.last_words}')

    def _variables(self, attempt: Attempt) -> dict[str, str]:
        run = attempt.run
        return {
            "PATH": self._path,
            "MAINSPRING_RUN_ID": str(run.id),
            "MAINSPRING_JOB_ID": str(run.job_id),
            "MAINSPRING_SLOT": slot_text(run.slot),
            "MAINSPRING_ATTEMPT": str(run.attempt),
            "MAINSPRING_FENCE": attempt.fence,
        }


def read_request(payload: Json) -> ShellRequest:
    """Read the payload of a shell job.

    Raises:
        InvalidRequest: a field is missing, unknown or out of bounds; it is named ``payload.<field>``.
    """
    given = payload if isinstance(payload, Mapping) else {}
    if unknown := set(given) - {"command", "args", "stdin"}:
        _refuse(str(min(unknown, key=str))[:40], "there is no such field", "use command, args and stdin")
    command, args, text = given.get("command"), given.get("args", ()), given.get("stdin")
    if not isinstance(command, str) or not command.isprintable():
        _refuse("command", "it is missing or no name", 'use {"command": "<a name>"}')
    if not isinstance(args, list | tuple) or len(args) > MOST_ARGUMENTS or not all(map(_is_argument, args)):
        allowed = f"use up to {MOST_ARGUMENTS} texts of up to {LONGEST_ARGUMENT} characters, without NUL"
        _refuse("args", "these cannot be passed on", allowed)
    if text is not None and (not isinstance(text, str) or not _is_text(text) or len(text) > LONGEST_INPUT):
        _refuse("stdin", "this cannot be passed on", f"use text of up to {LONGEST_INPUT} characters")
    return ShellRequest(command=command, args=tuple(args), stdin=text or "")


def _refuse(field: str, reason: str, allowed: str) -> NoReturn:
    raise InvalidRequest(reason, field=f"payload.{field}", value=None, allowed=allowed)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeError:  # half of a surrogate pair
        return False
    return True


def _is_argument(value: Json) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_ARGUMENT and "\0" not in value and _is_text(value)


def _failed(kind: str, message: str) -> Failed:
    return Failed(error=ErrorInfo(type=kind, message=message, bases=("shell_error",)))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


class _Tee:
    """Passes all on, and remembers the last of what went wrong."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._errors = deque[str](maxlen=_LAST_WORDS)

    @property
    def full(self) -> bool:
        return False  # what no longer fits is still wanted for the last words

    @property
    def last_words(self) -> str:
        return ": " + "\n".join(self._errors) if self._errors else ""

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        if stream == "stderr":
            self._errors.append(text)
        self._output.line(text, stream=stream, level=level, at=at)

    def progress(self, done: float, note: str) -> None:
        self._output.progress(done, note)


class _Command:
    """A command at work, below its supervisor."""

    def __init__(
        self, argv: Sequence[str], stdin: str, variables: Mapping[str, str], directory: Path, output: Output
    ) -> None:
        """Start it.

        Raises:
            OSError: there is no descriptor or no process left, or the arguments are too many.
        """
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        with ExitStack() as theirs, ExitStack() as ours:
            self._pipes = [Pipe("stdout"), Pipe("stderr")]
            for pipe in self._pipes:
                ours.callback(pipe.close)
                theirs.callback(os.close, pipe.theirs)
                pipe.output = output
            self._process = subprocess.Popen(  # noqa: S603 - a list of arguments from the operator's own list
                [sys.executable, "-I", "-S", _SUPERVISOR, str(os.getpid()), *argv],
                stdin=_readable(stdin, theirs),
                stdout=self._pipes[0].theirs,
                stderr=self._pipes[1].theirs,
                cwd=directory,
                env=variables,
                start_new_session=True,
            )
            ours.callback(self._process.wait)  # if it cannot be followed, it has to go
            ours.callback(self._process.kill)
            self._pidfd = os.pidfd_open(self._process.pid)
            self._loop.add_reader(self._pidfd, self._reap)
            ours.pop_all()

    async def ended(self, grace: timedelta) -> int:
        """Return its status, below zero for a signal. Cancelled, it ends the command and all it started first."""
        try:
            return await asyncio.shield(self.exited)
        except asyncio.CancelledError:
            await shielded(self._stop(grace))
            raise
        finally:
            for pipe in self._pipes:
                pipe.drain()
                pipe.close()

    async def _stop(self, grace: timedelta) -> None:
        for send, number, wait in (
            (os.killpg, signal.SIGTERM, grace),
            (os.kill, signal.SIGUSR1, _INSIST_FOR),  # the supervisor kills whatever is left
            (os.killpg, signal.SIGKILL, _INSIST_FOR),
        ):
            if not self.exited.done():  # nor reaped: the number is still its own
                with suppress(ProcessLookupError, PermissionError):
                    send(self._process.pid, number)
                await asyncio.wait([self.exited], timeout=wait.total_seconds())

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        with suppress(ProcessLookupError, PermissionError):  # of use only if the supervisor was killed
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()  # it has ended: this does not block
        if not self.exited.done():
            self.exited.set_result(status)


def _readable(text: str, stack: ExitStack) -> int:
    """Return a descriptor to read ``text`` from. Memory, not a pipe: nobody has to stand by and write."""
    if not text:
        return subprocess.DEVNULL
    descriptor = os.memfd_create("stdin")
    stack.callback(os.close, descriptor)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
