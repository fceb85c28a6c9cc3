"""The table of routes. It makes the server's dispatch, OpenAPI, authorisation and its tests, and the client's requests.

A route that is not in here does not exist; one that is here without a handler, or the other way round, fails when the
server is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mainspring.domain.access import Scope
from mainspring.rest import admin, asked, bulk, shapes
from mainspring.rest.definitions import Edit, NewJob

PREFIX: Final = "/api/v1"
SSE: Final = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    name: str  # a noun and a verb, the same as in SDK and CLI
    method: str
    path: str  # below the prefix
    summary: str
    scope: Scope | None  # None: whoever is known may
    returns: Any
    status: int = 200
    also: Mapping[int, Any] | None = None  # further good statuses
    body: Any = None
    query: Any = None
    errors: tuple[int, ...] = ()  # besides those that every route may answer with
    matches: bool = False  # If-Match is understood
    waits: bool = False  # Prefer: wait is understood
    media: str = "application/json"  # of the answer
    hides: bool = False  # the body holds a secret: no problem repeats a value of it

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def noun(self) -> str:
        return self.name.partition(".")[0]


COMMON: Final = (400, 401, 403, 408, 413, 415, 422, 429, 503)  # any route may answer so

_S: Final = Scope


def _route(name: str, where: str, summary: str, scope: Scope | None, returns: Any, **more: Any) -> Route:
    method, _, path = where.partition(" ")
    return Route(name=name, method=method, path=path, summary=summary, scope=scope, returns=returns, **more)


ROUTES: Final[tuple[Route, ...]] = (
    # jobs
    _route(
        "jobs.create",
        "POST /jobs",
        "Make a job",
        _S.JOBS_WRITE,
        shapes.JobAnswer,
        status=201,
        body=NewJob,
        errors=(409,),
    ),
    _route(
        "jobs.create_many",
        "POST /jobs:batch",
        "Make many jobs, all or none",
        _S.JOBS_WRITE,
        shapes.MadeJobs,
        status=201,
        body=asked.NewJobs,
        errors=(409,),
    ),
    _route("jobs.list", "GET /jobs", "List jobs by name", _S.JOBS_READ, shapes.JobPage, query=asked.JobsQuery),
    _route(
        "jobs.get",
        "GET /jobs/{job}",
        "Read a job, by its name or its id",
        _S.JOBS_READ,
        shapes.JobAnswer,
        errors=(404,),
    ),
    _route(
        "jobs.put",
        "PUT /jobs/{job}",
        "Write a job under its name: a new one, or a new version of the one that has it",
        _S.JOBS_WRITE,
        shapes.JobChanged,
        body=NewJob,
        also={201: shapes.JobChanged},
        errors=(404, 409, 412),
        matches=True,
    ),
    _route(
        "jobs.edit",
        "PATCH /jobs/{job}",
        "Change some fields of a job's definition",
        _S.JOBS_WRITE,
        shapes.JobChanged,
        body=Edit,
        errors=(404, 409, 412),
        matches=True,
    ),
    _route(
        "jobs.delete",
        "DELETE /jobs/{job}",
        "Fire nothing any more, cancel what waits, ask what runs to stop",
        _S.JOBS_WRITE,
        shapes.JobChanged,
        query=asked.WhyQuery,
        errors=(404, 409, 412),
        matches=True,
    ),
    _route("jobs.status", "GET /jobs/{job}/status", "How a job stands", _S.JOBS_READ, shapes.JobStatus, errors=(404,)),
    _route(
        "jobs.set_status",
        "PATCH /jobs/{job}/status",
        "Pause a job or let it go on",
        _S.JOBS_OPERATE,
        shapes.JobChanged,
        body=asked.NewStatus,
        errors=(404, 409, 412),
        matches=True,
    ),
    _route(
        "jobs.pause",
        "POST /jobs/{job}/pause",
        "Fire nothing until it is resumed, or until a given time",
        _S.JOBS_OPERATE,
        shapes.JobChanged,
        body=asked.Pause,
        errors=(404, 409, 412),
        matches=True,
    ),
    _route(
        "jobs.resume",
        "POST /jobs/{job}/resume",
        "Go on with the next slot; what was passed over is not caught up",
        _S.JOBS_OPERATE,
        shapes.JobChanged,
        body=asked.Why,
        errors=(404, 409, 412),
        matches=True,
    ),
    _route(
        "jobs.trigger",
        "POST /jobs/{job}/trigger",
        "Run it now, besides its schedule; with Prefer: wait=10 the answer waits for the end",
        _S.JOBS_OPERATE,
        shapes.RunAnswer,
        status=201,
        body=asked.Trigger,
        errors=(404, 409),
        waits=True,
    ),
    _route(
        "jobs.cancel",
        "POST /jobs/{job}/cancel",
        "Cancel the runs of a job that are in motion; the job stays",
        _S.RUNS_OPERATE,
        shapes.Cancelled,
        body=asked.Why,
        errors=(404, 409),
    ),
    _route(
        "jobs.backfill",
        "POST /jobs/{job}/backfill",
        "Run slots of the past after all; dry_run counts them only",
        _S.JOBS_OPERATE,
        shapes.Backfilled,
        body=asked.Backfill,
        errors=(404, 409),
    ),
    _route(
        "jobs.runs",
        "GET /jobs/{job}/runs",
        "List the runs of a job, newest slot first",
        _S.RUNS_READ,
        shapes.RunPage,
        query=asked.RunsOfJobQuery,
        errors=(404,),
    ),
    _route(
        "jobs.slots",
        "GET /jobs/{job}/slots",
        "What became of the slots in a range, newest first",
        _S.JOBS_READ,
        shapes.Slots,
        query=asked.SlotsQuery,
        errors=(404,),
    ),
    _route(
        "jobs.upcoming",
        "GET /jobs/{job}/upcoming",
        "The next slots, with notes on changes of the clock",
        _S.JOBS_READ,
        shapes.Upcoming,
        query=asked.UpcomingQuery,
        errors=(404,),
    ),
    _route(
        "jobs.explain",
        "GET /jobs/{job}/explain",
        "What happened at an instant, and why",
        _S.JOBS_READ,
        shapes.Explained,
        query=asked.ExplainQuery,
        errors=(404,),
    ),
    _route(
        "jobs.versions",
        "GET /jobs/{job}/versions",
        "The versions of a job, newest first",
        _S.JOBS_READ,
        shapes.Versions,
        query=asked.VersionsQuery,
        errors=(404,),
    ),
    # runs
    _route(
        "runs.submit",
        "POST /runs",
        "Ask for runs of a job by its name; the job is made if there is none",
        _S.JOBS_OPERATE,
        shapes.Submitted,
        status=201,
        body=asked.Submit,
        errors=(404, 409),
    ),
    _route(
        "runs.list",
        "GET /runs",
        "List runs, newest slot first",
        _S.RUNS_READ,
        shapes.RunPage,
        query=asked.RunsQuery,
        errors=(404,),
    ),
    _route("runs.get", "GET /runs/{run}", "Read a run", _S.RUNS_READ, shapes.RunAnswer, errors=(404,)),
    _route(
        "runs.attempts",
        "GET /runs/{run}/attempts",
        "Every attempt of a run, oldest first",
        _S.RUNS_READ,
        shapes.Attempts,
        errors=(404,),
    ),
    _route(
        "runs.logs",
        "GET /runs/{run}/logs",
        "What the attempts of a run said",
        _S.PAYLOADS_READ,
        shapes.Lines,
        query=asked.LinesQuery,
        errors=(404,),
    ),
    _route(
        "runs.cancel",
        "POST /runs/{run}/cancel",
        "Ask a run to stop",
        _S.RUNS_OPERATE,
        shapes.RunStopped,
        body=asked.Why,
        errors=(404, 409),
    ),
    _route(
        "runs.retry",
        "POST /runs/{run}/retry",
        "Try again: at once if it waits for that, else as a new run, with the same payload or another",
        _S.RUNS_OPERATE,
        shapes.RunAnswer,
        status=201,
        body=asked.Again,
        errors=(404, 409),
    ),
    # dead letters
    _route(
        "dead_letters.list",
        "GET /dead-letters",
        "List the open dead letters, newest first",
        _S.LETTERS_READ,
        shapes.LetterPage,
        query=asked.LettersQuery,
        errors=(404,),
    ),
    _route(
        "dead_letters.get",
        "GET /dead-letters/{run}",
        "Read a dead letter",
        _S.LETTERS_READ,
        shapes.LetterAnswer,
        errors=(404,),
    ),
    _route(
        "dead_letters.replay",
        "POST /dead-letters/{run}/replay",
        "Run it again: a new run, a fresh budget, the recorded payload or another. Twice is once",
        _S.LETTERS_OPERATE,
        shapes.RunAnswer,
        status=201,
        body=asked.Again,
        errors=(404, 409),
    ),
    _route(
        "dead_letters.discard",
        "POST /dead-letters/{run}/discard",
        "Close it for good",
        _S.LETTERS_OPERATE,
        shapes.Discarded,
        body=asked.Why,
        errors=(404, 409),
    ),
    _route(
        "dead_letters.replay_many",
        "POST /dead-letters/replay",
        "Run many again, by their ids or by a filter: as a bulk action; dry_run counts them only",
        _S.LETTERS_OPERATE,
        bulk.BulkAnswer,
        status=202,
        body=bulk.ReplayLetters,
        also={200: bulk.BulkCounted},
        errors=(404, 409),
    ),
    _route(
        "dead_letters.discard_many",
        "POST /dead-letters/discard",
        "Close many for good, by their ids or by a filter: as a bulk action; dry_run counts them only",
        _S.LETTERS_OPERATE,
        bulk.BulkAnswer,
        status=202,
        body=bulk.DiscardLetters,
        also={200: bulk.BulkCounted},
        errors=(404, 409),
    ),
    # bulk actions
    _route(
        "bulk.start",
        "POST /bulk",
        "Do one thing to all that a filter finds; dry_run counts it only. Some actions need more than this scope",
        _S.JOBS_OPERATE,
        bulk.BulkAnswer,
        status=202,
        body=bulk.NewBulk,
        also={200: bulk.BulkCounted},
        errors=(404, 409),
    ),
    _route("bulk.list", "GET /bulk", "Bulk actions, newest first", _S.JOBS_READ, bulk.BulkPage, query=asked.PageQuery),
    _route(
        "bulk.get", "GET /bulk/{bulk}", "How far a bulk action has come", _S.JOBS_READ, bulk.BulkAnswer, errors=(404,)
    ),
    _route(
        "bulk.stop",
        "POST /bulk/{bulk}/stop",
        "Do nothing more of it; what is done stays done",
        _S.JOBS_OPERATE,
        bulk.BulkAnswer,
        body=asked.Why,
        errors=(404, 409),
    ),
    # the cluster
    _route("cluster.show", "GET /cluster", "The processes at work", _S.CLUSTER_READ, shapes.ClusterAnswer),
    _route(
        "workers.quiesce",
        "POST /cluster/nodes/{node}/quiesce",
        "Ask a worker to take nothing more",
        _S.CLUSTER_WRITE,
        shapes.Health,
        body=asked.Why,
        errors=(404, 409),
    ),
    _route(
        "workers.stop",
        "POST /cluster/nodes/{node}/stop",
        "Ask a process to drain and end",
        _S.CLUSTER_WRITE,
        shapes.Health,
        body=asked.Why,
        errors=(404, 409),
    ),
    _route(
        "cluster.changes",
        "GET /cluster/changes",
        "Who did what to the cluster itself: its tenants, keys, pools and workers; newest first",
        _S.CLUSTER_CHANGES,
        shapes.ChangePage,
        query=asked.ChangesQuery,
    ),
    _route(
        "pools.list", "GET /pools", "Pools, what waits in them, and who works for them", _S.CLUSTER_READ, shapes.Pools
    ),
    _route(
        "pools.pause",
        "POST /pools/{pool}/pause",
        "Let nothing more be claimed from a pool",
        _S.CLUSTER_WRITE,
        shapes.Health,
        body=asked.Why,
        errors=(409,),
    ),
    _route(
        "pools.resume",
        "POST /pools/{pool}/resume",
        "Let a pool go on",
        _S.CLUSTER_WRITE,
        shapes.PoolResumed,
        body=asked.Why,
        errors=(409,),
    ),
    _route(
        "pools.scaling",
        "GET /scaling/{pool}",
        "What an autoscaler wants to know of a pool",
        _S.CLUSTER_READ,
        shapes.Scaling,
    ),
    # who
    _route("me.get", "GET /me", "Who is asking, and what they may", None, shapes.MeAnswer),
    _route(
        "changes.list",
        "GET /changes",
        "Who did what, before, after, and why; newest first",
        _S.CHANGES_READ,
        shapes.ChangePage,
        query=asked.ChangesQuery,
    ),
    # tenants, keys, secrets
    _route(
        "tenants.list",
        "GET /tenants",
        "List tenants by name",
        _S.TENANTS_READ,
        admin.TenantPage,
        query=admin.TenantsQuery,
    ),
    _route("tenants.get", "GET /tenants/{tenant}", "Read a tenant", _S.TENANTS_READ, admin.TenantAnswer, errors=(404,)),
    _route(
        "tenants.create",
        "POST /tenants",
        "Make a tenant",
        _S.TENANTS_WRITE,
        admin.TenantAnswer,
        status=201,
        body=asked.NewTenant,
        errors=(409,),
    ),
    _route(
        "tenants.edit",
        "PATCH /tenants/{tenant}",
        "Change quotas, note or state; what is left out stays",
        _S.TENANTS_WRITE,
        admin.TenantAnswer,
        body=asked.TenantEdit,
        errors=(404, 409),
    ),
    _route(
        "tenants.delete",
        "DELETE /tenants/{tenant}",
        "Close a tenant that has no jobs left, for good",
        _S.TENANTS_WRITE,
        admin.TenantAnswer,
        query=asked.WhyQuery,
        errors=(404, 409),
    ),
    _route(
        "keys.list", "GET /keys", "List API keys, oldest first", _S.KEYS_WRITE, admin.KeyPage, query=admin.KeysQuery
    ),
    _route(
        "keys.create",
        "POST /keys",
        "Make an API key; this answer shows it, and no other ever does",
        _S.KEYS_WRITE,
        admin.NewKeyAnswer,
        status=201,
        body=asked.NewKey,
        errors=(409,),
    ),
    _route(
        "keys.revoke",
        "DELETE /keys/{key}",
        "Let nobody in with a key any more",
        _S.KEYS_WRITE,
        admin.KeyAnswer,
        query=asked.WhyQuery,
        errors=(404,),
    ),
    _route(
        "secrets.list", "GET /secrets", "List secrets by name, without their values", _S.SECRETS_WRITE, admin.Secrets
    ),
    _route(
        "secrets.put",
        "PUT /secrets/{secret}",
        "Keep a new version of a secret; nobody can read it back",
        _S.SECRETS_WRITE,
        admin.SecretAnswer,
        body=asked.NewSecret,
        hides=True,
    ),
    _route(
        "secrets.delete",
        "DELETE /secrets/{secret}",
        "Delete a secret with all its versions",
        _S.SECRETS_WRITE,
        admin.SecretDeleted,
        query=asked.WhyQuery,
        errors=(404,),
    ),
    # proof
    _route(
        "audit.run",
        "POST /audit",
        "Recompute every slot of a range, and hold it against the ledger",
        _S.JOBS_READ,
        admin.AuditAnswer,
        body=asked.AuditRange,
    ),
    # live
    _route(
        "events.stream",
        "GET /events",
        "Server-sent events: runs as they end, changes as they happen; all states with job or run",
        _S.RUNS_READ,
        str,
        query=asked.EventsQuery,
        errors=(404,),
        media=SSE,
    ),
)

BY_NAME: Final[Mapping[str, Route]] = {route.name: route for route in ROUTES}
