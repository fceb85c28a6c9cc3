"""Tasks in processes of their own: ``process``, in a child that is warm already, and ``isolated``, in a fresh one.

Promise. However a task ends, its worker goes on, knows how it ended, and has what it wrote; and when ``run``
returns or is cancelled, nothing that the task started is left.

By what. A template process, single-threaded and with the modules imported, forks the children: a run takes 6 ms in
a fresh one and 0.5 in a warm one, where a new interpreter takes 250. Each child is a session of its own and the
adopter of its orphans; the template adopts those of the children that have ended, and kills them. A child answers one
request at a time.

Failures.
  the task crashes         the template tells how the child ended; the attempt has failed, nothing else
  it does not stop         TERM, then its grace, then KILL for its group and all its descendants
  it is over a limit       MemoryError, SIGXCPU or too many open files, in its own child: see ``limits``
  it writes without end    its pipe is full, and it waits; the worker reads a piece at a time
  the worker is killed     its template notices, and ends all of them
  the template is killed   the kernel kills its children; their attempts have failed, the next starts another
  modules do not import    the attempt has failed, with the reason; the next one tries again

Not promised. If worker and template are killed at one instant, a process that a task has put into a session of its
own may be left. A process that the kernel cannot kill yet is waited for some seconds only.
"""

from __future__ import annotations

from asyncio import CancelledError, shield, wait
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from mainspring.domain.job import schedule_to_json
from mainspring.domain.schedule import Schedule
from mainspring.domain.settling import ErrorInfo, Failed, Outcome
from mainspring.service import shielded
from mainspring.store.claim import ClaimedRun
from mainspring.store.settle import lease_of
from mainspring.tasks.context import LastSuccess
from mainspring.tasks.task import Mode, Task, TaskOptions
from mainspring.worker import wire
from mainspring.worker.attempt import Attempt
from mainspring.worker.forks import Forks
from mainspring.worker.limits import limited
from mainspring.worker.link import Link
from mainspring.worker.outcomes import not_started, outcome_of_exit

RECYCLE_AFTER: Final = 1_000  # runs
RECYCLE_ABOVE: Final = 512 * 1024 * 1024  # bytes of resident memory
_TRIES: Final = 3  # with children that had died in their sleep; if one more had, something else is wrong


class Children:
    """Child processes of one worker, forked from a template that has imported the tasks."""

    def __init__(
        self,
        modules: Sequence[str],
        *,
        warm: int,
        recycle_after: int = RECYCLE_AFTER,
        recycle_above: int = RECYCLE_ABOVE,
    ) -> None:
        """Keep up to ``warm`` children waiting for work. The first run starts the template."""
        self._modules = tuple(modules)
        self._warm = warm
        self._recycle_after = recycle_after
        self._recycle_above = recycle_above
        self._forks: Forks | None = None
        self._spare: Link | None = None  # settled in already: 6 ms instead of 10
        self._idle: list[Link] = []  # the last to have worked is the first to work again: its memory is in the caches

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Kill whatever is left."""
        if self._forks is not None:
            await shielded(self._forks.close())

    async def run(self, task: Task[..., Any], attempt: Attempt, *, last_success: LastSuccess | None = None) -> Outcome:
        """Run one attempt in a process. Raises nothing but cancellation, and that when the process has ended."""
        fresh = task.declared.mode is Mode.ISOLATED or limited(task.declared)
        request = _request(task, attempt, last_success, only=fresh)
        tries = _TRIES
        while True:
            tries -= 1
            link = await self._fresh() if fresh or not self._idle else self._idle.pop()
            if isinstance(link, Failed):
                return link
            answer = await _asked(link, request, task, attempt)
            if not (link.missed and tries):
                return self._told(link, answer, task.declared)

    def _told(self, link: Link, answer: wire.Ended | wire.Exited, options: TaskOptions) -> Outcome:
        if isinstance(answer, wire.Exited):
            return outcome_of_exit(answer, options)
        self._keep(link, answer)
        return wire.outcome_in(answer)

    async def _fresh(self) -> Link | Failed:
        """Return a child that has served nobody: the spare one, while the next is being forked, or a new one."""
        forks = await self._ready()
        if isinstance(forks, Failed):
            return forks
        try:
            link, self._spare = self._spare or self._forked(forks), None
        except OSError as error:
            return not_started(str(error))
        with suppress(OSError):  # no descriptor left: then there is no spare one
            self._spare = self._forked(forks)
        return link

    async def _ready(self) -> Forks | Failed:
        if self._forks is not None and self._forks.ended:
            await wait([self._forks.gone])  # with all that is its
        if self._forks is None or self._forks.gone.done():
            self._forks = Forks(self._modules)
        forks = self._forks
        reason = await shield(forks.ready)  # others wait for it, too
        if reason is None:
            return forks
        await wait([forks.gone])  # so that the next one tries again
        return Failed(error=ErrorInfo(type="mainspring.domain.errors.InvalidRequest", message=reason))

    def _forked(self, forks: Forks) -> Link:
        link = Link(forks)
        link.exited.add_done_callback(lambda _: self._forget(link))
        return link

    def _keep(self, link: Link, answer: wire.Ended) -> None:
        spent = link.served >= self._recycle_after or answer.resident >= self._recycle_above
        if not answer.reusable or link.exited.done():
            return  # it ends, or has ended
        if spent or len(self._idle) >= self._warm:
            link.dismiss()
        else:
            self._idle.append(link)

    def _forget(self, link: Link) -> None:
        if link is self._spare:
            self._spare = None
        if link in self._idle:
            self._idle.remove(link)


async def _asked(link: Link, request: bytes, task: Task[..., Any], attempt: Attempt) -> wire.Ended | wire.Exited:
    try:
        return await link.ask(request, attempt.output)
    except CancelledError:
        await shielded(link.stop(task.declared.grace))
        raise


def _request(task: Task[..., Any], attempt: Attempt, last: LastSuccess | None, *, only: bool) -> bytes:
    run = attempt.run
    told = task.arguments.context_name is not None
    return msgspec.msgpack.encode(
        wire.Request(
            task=task.name,
            payload=msgspec.json.encode(run.payload),
            run_id=run.id,
            job_id=run.job_id,
            job=run.name,
            slot=run.slot,
            attempt=run.attempt,
            kind=run.kind.value,
            fence=attempt.fence,
            only=only,
            schedule=_schedule(run.job.schedule) if told else b"",
            last_success=wire.LastSuccessSent(last.run_id, last.at, msgspec.json.encode(last.result)) if last else None,
            lease=_lease(run) if told else None,
            hidden=attempt.hidden,
        )
    )


def _lease(run: ClaimedRun) -> wire.LeaseSent:
    lease = lease_of(run)
    return wire.LeaseSent(lease.token, lease.failures, lease.joined)


@lru_cache(maxsize=100)
def _schedule(schedule: Schedule) -> bytes:
    return msgspec.json.encode(schedule_to_json(schedule))
