"""Jobs as those may see them who ask."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mainspring.api.requests import Call
from mainspring.domain.job import Job
from mainspring.domain.schedule import Schedule
from mainspring.domain.views import JobView
from mainspring.insight import wording


@lru_cache(maxsize=10_000)
def in_words(schedule: Schedule) -> str:
    """Put a schedule into a sentence; schedules are far fewer than jobs."""
    return wording.explain(schedule)


def seen(view: JobView, call: Call) -> JobView:
    """Return a job as the caller may see it."""
    return view if call.principal.sees_payloads else replace(view, definition=hidden(view.definition))


def hidden(job: Job) -> Job:
    """Return a definition without its payload, which for an HTTP job is all of the request."""
    return replace(job, payload=None)
