"""One attempt: find its target, call it within its time, and say how it ended. Never raises but when cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final, TypeAlias

from mainspring.domain.errors import InvalidRequest, Unavailable
from mainspring.domain.references import names_secret
from mainspring.domain.settling import (
    Completed,
    Discarded,
    ErrorInfo,
    Failed,
    GivenBack,
    JsonText,
    Outcome,
    Succeeded,
    TimedOut,
)
from mainspring.environment import Environment
from mainspring.store.claim import ClaimedRun
from mainspring.store.settle import LONGEST_RESULT, lease_of
from mainspring.tasks.arguments import written
from mainspring.tasks.context import Completion, Context, LastSuccess
from mainspring.tasks.hooks import Hook
from mainspring.tasks.loading import Registry
from mainspring.tasks.task import Mode, Task
from mainspring.worker.attempt import Attempt, Target
from mainspring.worker.capture import CURRENT, Capture, install
from mainspring.worker.completion import LeaseCompletion
from mainspring.worker.isolation import Children
from mainspring.worker.masking import Mask, MaskedCompletion
from mainspring.worker.opening import with_secrets
from mainspring.worker.outcomes import outcome_of
from mainspring.worker.secrets import Secrets, SecretsByScheme
from mainspring.worker.targets.threads import Threads
from mainspring.worker.transcript import AttemptOutput

MOST_WARM: Final = 16  # idle child processes that are kept for the next run
COMPLETED: Final = Completed()
_DONE: Final = Succeeded()
_STOPPED: Final = GivenBack()  # cancelled; why, the pool knows
_logger = logging.getLogger(__name__)
_Run: TypeAlias = Callable[[Attempt], Awaitable[Outcome]]
FindLastSuccess: TypeAlias = Callable[[ClaimedRun], Awaitable[LastSuccess | None]]


class Runner:
    """Runs attempts of the tasks a worker knows, each where it belongs."""

    def __init__(
        self,
        registry: Registry,
        *,
        env: Environment,
        targets: Mapping[str, Target] | None = None,
        children: Children | None = None,
        timeline: int = 1,
        resources: Mapping[str, Any] | None = None,
        find_last_success: FindLastSuccess | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._registry = registry
        self._secrets = secrets or SecretsByScheme()
        self._env = env
        self._targets = dict(targets or {})
        self._children = children
        self._threads = Threads()
        self._timeline = timeline
        self._resources = resources or {}
        self._find_last_success = find_last_success
        self._hooks: dict[str, list[Hook]] = {}
        if registry.hooks:
            self._hooks = {when: [hook for hook in registry.hooks if hook.when == when] for when in ("start", "end")}
        self._ways: dict[str, _Run] = {}
        limited = {task.name: task.declared.concurrency for task in registry if task.declared.concurrency}
        self.limits: Mapping[str, int] = limited  # how many of a task may be at work here
        self.names = tuple(sorted({*registry.names, *self._targets}))
        self.unlimited = tuple(name for name in self.names if name not in limited)

    async def run(self, run: ClaimedRun, output: AttemptOutput) -> Outcome:
        """Run one attempt to its end."""
        way = self._ways.get(run.job.task) or self._way(run.job.task)
        attempt = Attempt(run=run, fence=f"{self._timeline}.{run.attempt}", output=output)
        # Targets know where in their payloads a secret may stand, and look them up themselves.
        if run.payload is not None and run.job.task not in self._targets and names_secret(run.payload):
            way = with_secrets(way, self._secrets)
        if self._hooks:
            return await self._hooked(way, attempt)
        return await _timed(way, attempt)

    async def _hooked(self, way: _Run, attempt: Attempt) -> Outcome:
        context = self._context(attempt)
        CURRENT.set(attempt.output)
        outcome: Outcome = _STOPPED
        try:
            for hook in self._hooks["start"]:
                await hook.call(context)
            outcome = await _timed(way, attempt)
        except Exception as error:  # noqa: BLE001 - a hook's, which is theirs as the task is
            outcome = outcome_of(error)
        finally:
            for hook in self._hooks["end"]:
                try:
                    await hook.call(context, outcome.word)
                except Exception:
                    _logger.exception("a hook at the end of a run failed")
        return outcome

    def _way(self, name: str) -> _Run:
        if name in self._targets:
            way: _Run = self._targets[name].run
        else:
            way = self._way_of(self._registry.get(name))
        self._ways[name] = way
        return way

    def _way_of(self, task: Task[..., Any]) -> _Run:
        way = self._way_by_mode(task)
        return way if not task.declared.last_success else _with_last_success(way, self._find_last_success)

    def _way_by_mode(self, task: Task[..., Any]) -> _Run:
        match task.declared.mode:
            case Mode.INLINE:
                return _inline(task, self._context)
            case Mode.THREAD:
                return _threaded(task, self._threads, self._context)
            case Mode.PROCESS | Mode.ISOLATED:
                children = self._children
                assert children is not None, "a worker with such tasks has children"
                return lambda attempt: children.run(task, attempt, last_success=attempt.last_success)

    def _context(self, attempt: Attempt) -> Context:
        """Return what a run tells its task."""
        run = attempt.run
        completion: Completion = LeaseCompletion(lease_of(run), self._env)
        return Context(
            run_id=run.id,
            job_id=run.job_id,
            job=run.name,
            slot=run.slot,
            attempt=run.attempt,
            payload=run.payload,
            kind=run.kind,
            fence=attempt.fence,
            last_success=attempt.last_success,
            schedule=run.job.schedule,
            tell=attempt.output,
            resources=self._resources,
            completion=MaskedCompletion(completion, Mask(attempt.hidden)) if attempt.hidden else completion,
        )


def _with_last_success(way: _Run, find: FindLastSuccess | None) -> _Run:
    async def run(attempt: Attempt) -> Outcome:
        try:
            attempt.last_success = None if find is None else await find(attempt.run)
        except Unavailable as error:
            return outcome_of(error)
        return await way(attempt)

    return run


def _inline(task: Task[..., Any], context_of: Callable[[Attempt], Context]) -> _Run:
    function, arguments, takes_context = task.function, task.arguments, task.arguments.context_name

    async def run(attempt: Attempt) -> Outcome:
        context: Context | None = None
        try:
            given = arguments.read(attempt.run.payload)
        except InvalidRequest as error:
            return Discarded(str(error))  # trying again is of no use
        if takes_context is not None:
            context = given[takes_context] = context_of(attempt)
        CURRENT.set(attempt.output)  # no need to take it back: every attempt is a task of its own
        try:
            result = await function(**given)
        except Exception as error:  # noqa: BLE001 - whatever user code raises is an outcome
            return COMPLETED if _completed(context) else outcome_of(error)
        finally:
            said = CURRENT.get()
            if isinstance(said, Capture):
                said.close()
        if _completed(context):
            return COMPLETED
        return _DONE if result is None else Succeeded(result)

    return run


def _completed(context: Context | None) -> bool:
    return context is not None and context.completion is not None and context.completion.asked


def _threaded(task: Task[..., Any], threads: Threads, context_of: Callable[[Attempt], Context]) -> _Run:
    async def run(attempt: Attempt) -> Outcome:
        context = context_of(attempt)
        outcome = await threads.run(task, attempt, context)
        return COMPLETED if _completed(context) else outcome

    return run


async def _timed(way: _Run, attempt: Attempt) -> Outcome:
    limit = attempt.run.job.run_timeout
    outcome = await (way(attempt) if limit is None else _within(limit, way(attempt)))
    return _kept(outcome) if isinstance(outcome, Succeeded) else outcome


async def _within(limit: timedelta, work: Awaitable[Outcome]) -> Outcome:
    timeout = asyncio.timeout(limit.total_seconds())
    try:
        async with timeout:
            return await work
    except TimeoutError:
        if timeout.expired():
            return TimedOut()
        raise


def _kept(outcome: Succeeded) -> Outcome:
    """Return a success with its result as text, or say why that cannot be kept: it is not cut in silence."""
    if outcome.result is None:
        return outcome
    try:
        text = written(outcome.result)
    except TypeError as error:
        return _unkept("result_without_json", f"the result has no JSON form: {error}; return plain values")
    if len(text.encode()) > LONGEST_RESULT:
        size = f"the result has {len(text.encode())} bytes as JSON, {LONGEST_RESULT} are kept"
        return _unkept("result_too_large", f"{size}; store it elsewhere and return where it is")
    return Succeeded(JsonText(text.replace("\\u0000", "\\ufffd")))


def _unkept(kind: str, message: str) -> Failed:
    return Failed(error=ErrorInfo(type=kind, message=message))


async def open_runner(stack: AsyncExitStack, registry: Registry, *, room: int, **given: Any) -> Runner:
    """Make a runner with what its tasks need, closed with the stack; ``room`` is how many may run at once."""
    stack.callback(install())
    needs_children = any(task.declared.mode in (Mode.PROCESS, Mode.ISOLATED) for task in registry)
    children = (
        await stack.enter_async_context(Children(registry.modules, warm=min(room, MOST_WARM)))
        if needs_children
        else None
    )
    resources = {
        name: await stack.enter_async_context(resource.open()) for name, resource in registry.resources.items()
    }
    return Runner(registry, children=children, resources=resources, **given)
