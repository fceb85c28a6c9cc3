"""Making jobs: those that are asked for while others are being written are written together, next.

Promise. A request's jobs are all there or none is, with its entry in the log and the answer to its idempotency key in
the same transaction. Whoever asks again with the key after a crash learns which it was.

Together, because a durable commit costs a millisecond however little it holds: at a thousand requests a second they
share a few hundred. A name that is taken is refused to the one who asked for it, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from mainspring.api.answering import again, answer_of, fingerprint
from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.api.seeing import in_words
from mainspring.api.together import Together
from mainspring.domain.errors import AlreadyExists, MainspringError, StoreUnavailable
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job
from mainspring.domain.views import JobView
from mainspring.rest import shapes
from mainspring.store import answers
from mainspring.store.answers import Remembered
from mainspring.store.database import Connection
from mainspring.store.jobs import make_jobs, taken_names
from mainspring.store.log import Entry, write_many

_APART: Final = 0.006  # seconds, from the beginning of one write of many to the next


class _Wanted(NamedTuple):
    call: Call
    job: Job
    reason: str


class Making:
    """Writes new jobs, for all tenants."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._together = Together(self._write, apart=_APART)

    async def one(self, call: Call, job: Job, reason: str) -> Reply:
        """Make a job.

        Raises:
            AlreadyExists: its name is taken.
        """
        return await self._together.ask(call.principal.tenant, _Wanted(call, job, reason))

    async def _write(self, tenant: str, wanted: Sequence[_Wanted]) -> Sequence[Reply | MainspringError]:
        db = self._desk.scoped(wanted[0].call)
        said: dict[int, Reply | MainspringError] = {}
        async with db.transaction() as tx:
            keys = [each.call.key for each in wanted if each.call.key is not None]
            known = await answers.known(tx, tenant, keys) if keys else set()
            for place, each in enumerate(wanted):
                if each.call.key in known and (answer := await self._known(tx, each.call)) is not None:
                    said[place] = answer
            left = [(place, each) for place, each in enumerate(wanted) if place not in said]
            replies = await self._made(tx, [each for _, each in left])
            said |= {place: reply for (place, _), reply in zip(left, replies, strict=True) if reply is not None}
            await self._desk.env.reach("create.commit")
        await self._desk.env.reach("create.committed")
        for place, each in enumerate(wanted):
            if place not in said:
                said[place] = await self._refused(each)
        return [said[place] for place in range(len(wanted))]

    async def _made(self, tx: Connection, wanted: Sequence[_Wanted]) -> list[Reply | None]:
        """Write what can be written; None for what cannot, as its name is taken."""
        replies: list[Reply | None] = []
        ids = [JobId(each) for each in self._desk.env.new_ids(len(wanted))]
        made: dict[JobId, JobView] = {}
        by_author: dict[tuple[str, str], list[tuple[JobId, Job]]] = {}
        names: set[str] = set()
        keys: set[str] = set()
        for job_id, each in zip(ids, wanted, strict=True):
            key = each.call.key
            if each.job.name not in names and key not in keys:  # the second with one of these is refused
                names.add(each.job.name)
                keys |= set() if key is None else {key}
                by_author.setdefault((each.call.principal.subject, each.reason), []).append((job_id, each.job))
        for (author, reason), jobs in by_author.items():
            made |= await make_jobs(tx, jobs, author=author, reason=reason)
        keyed: list[Remembered] = []
        entries: list[Entry] = []
        for job_id, each in zip(ids, wanted, strict=True):
            view = made.get(job_id)
            if view is None:
                replies.append(None)
                continue
            reply = _reply(view)
            replies.append(reply)
            entries.append(self._desk.entry(each.call, view.name, after={"id": str(job_id)}, reason=each.reason))
            if each.call.key is not None:
                keyed.append(_remembered(each.call, reply))
        if entries:
            await write_many(tx, wanted[0].call.principal.tenant, entries)
        await _remember(tx, keyed)
        return replies

    async def _refused(self, wanted: _Wanted) -> Reply | MainspringError:
        """Say why a job was not made: somebody has its name, unless that was the same request."""
        if wanted.call.key is not None:
            async with self._desk.scoped(wanted.call).transaction() as tx:
                known = await self._known(tx, wanted.call)
            if known is not None:
                return known
        return AlreadyExists(f'there is a job "{wanted.job.name}" already; edit it, or choose another name')

    async def answered(self, call: Call) -> Reply | None:
        """Return what this very request was answered before; None: nothing.

        Raises:
            KeyReused: its key came with another request.
        """
        if call.key is None:
            return None
        async with self._desk.scoped(call).transaction() as tx:
            known = await self._known(tx, call)
        if isinstance(known, MainspringError):
            raise known
        return known

    async def _known(self, tx: Connection, call: Call) -> Reply | MainspringError | None:
        try:
            known = await answers.find(tx, call.principal.tenant, call.key or "", fingerprint(call))
        except MainspringError as error:
            return error
        return None if known is None else again(known)

    async def many(self, call: Call, jobs: Sequence[Job], reason: str) -> Reply:
        """Make all of a batch, or none.

        Raises:
            AlreadyExists: a name is taken, or is there twice.
        """
        try:
            return await self._all_of(call, jobs, reason)
        except AlreadyExists:
            # It may be by this very request, which came elsewhere at this moment: then it has its answer.
            known = await self.answered(call)
            if known is None:
                raise
            return known

    async def _all_of(self, call: Call, jobs: Sequence[Job], reason: str) -> Reply:
        env, tenant = self._desk.env, call.principal.tenant
        named: set[str] = set()
        for job in jobs:
            if job.name in named:
                raise AlreadyExists(f'there are two jobs "{job.name}" in the batch; none was made')
            named.add(job.name)
        ids = [JobId(each) for each in env.new_ids(len(jobs))]
        async with self._desk.scoped(call).transaction() as tx:
            if call.key is not None and (known := await self._known(tx, call)) is not None:
                if isinstance(known, MainspringError):
                    raise known
                return known
            made = await make_jobs(tx, list(zip(ids, jobs, strict=True)), author=call.principal.subject, reason=reason)
            if len(made) < len(jobs):
                taken = await taken_names(tx, tenant, [job.name for job in jobs])
                left = [
                    job.name for job_id, job in zip(ids, jobs, strict=True) if job_id not in made and job.name in taken
                ]
                few = ", ".join(f'"{name[:60]}"' for name in left[:5])
                raise AlreadyExists(f"{len(jobs) - len(made)} names are taken, {few} among them; none was made")
            await env.reach("create_many.made")
            entries = [
                self._desk.entry(call, job.name, after={"id": str(job_id)}, reason=reason)
                for job_id, job in zip(ids, jobs, strict=True)
            ]
            await write_many(tx, tenant, entries)
            answer = shapes.MadeJobs(
                jobs=tuple(shapes.MadeJob(id=job_id, name=job.name) for job_id, job in zip(ids, jobs, strict=True))
            )
            reply = json_reply(answer, status=201)
            if call.key is not None:
                await _remember(tx, [_remembered(call, reply)])
            await env.reach("create_many.commit")
        await env.reach("create_many.committed")
        return reply


def _reply(view: JobView) -> Reply:
    answer = shapes.job_answer(view, in_words(view.definition.schedule))
    headers = {"ETag": f'"{view.version}"', "Location": f"/api/v1/jobs/{view.id}"}
    return json_reply(answer, status=201, headers=headers)


def _remembered(call: Call, reply: Reply) -> Remembered:
    kept = answer_of(reply)
    return Remembered(call.principal.tenant, call.key or "", fingerprint(call), kept.status, kept.body, kept.headers)


async def _remember(tx: Connection, keyed: Sequence[Remembered]) -> None:
    if keyed and await answers.remember(tx, keyed):
        # The same request at this very moment, elsewhere. Undone, and asked again it finds that one's answer.
        raise StoreUnavailable("a request with the same key was answered at this moment; try again")
