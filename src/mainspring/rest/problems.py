"""Problems: errors as they travel (RFC 9457), with a stable code, and the way back into errors for the client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from mainspring.domain import errors
from mainspring.domain.durations import format_duration
from mainspring.domain.errors import MainspringError
from mainspring.rest.reading import shown

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final[Mapping[int, str]] = {
    400: "The request cannot be read",
    401: "It is not known who is asking",
    403: "Not allowed",
    404: "There is no such thing",
    405: "The method does not exist here",
    408: "The request did not arrive in time",
    409: "The state of things does not allow it",
    412: "It was changed meanwhile",
    413: "The request is too large",
    415: "The body is not JSON",
    422: "A field has to be changed",
    429: "Too many requests",
    431: "The headers are too large",
    500: "A fault of the server",
    503: "Not available at the moment",
}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, and what to change."""

    title: str
    status: int
    detail: str
    code: str  # stable: programs go by it
    type: str = "about:blank"
    field: str | None = None  # what has to be changed
    value: Any = None  # what was there
    allowed: str | None = None  # what would be right
    request: str | None = None  # under which name to look for it in the log


# The first that fits counts: special ones before general ones.
_STATUS: Final[tuple[tuple[type[MainspringError], int], ...]] = (
    (errors.WrongDatabase, 503),
    (errors.InvalidRequest, 422),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.StaleVersion, 412),
    (errors.Conflict, 409),
    (errors.RateLimited, 429),
    (errors.Unavailable, 503),
)
_STATUS_BY_CODE: Final[Mapping[str, int]] = {"malformed_json": 400, "too_deep": 400, "too_large": 413, "not_json": 415}


def status_of(error: MainspringError) -> int:
    """Return the status that an error travels under; 500 for one that is a fault of ours."""
    known = _STATUS_BY_CODE.get(error.code)
    if known is not None:
        return known
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: MainspringError, *, request: str) -> Problem:
    """Write an error so that whoever asked can mend it; of a fault of ours nothing but its name in the log."""
    status = status_of(error)
    if status == 500:
        return fault(request)
    if status == 503:  # the reason may name hosts and users: it is in the log
        detail = "a part of the server is away; try the same again"
        return Problem(title=TITLES[status], status=status, detail=detail, code=_public(error.code), request=request)
    given: dict[str, Any] = {}
    if isinstance(error, errors.InvalidRequest):
        given = {"field": error.field, "value": shown(_plain(error.value)), "allowed": error.allowed}
    detail = str(error)
    return Problem(title=TITLES[status], status=status, detail=detail, code=error.code, request=request, **given)


def fault(request: str) -> Problem:
    detail = f"the server failed; its log has the reason under {request}"
    return Problem(title=TITLES[500], status=500, detail=detail, code="internal", request=request)


def error_of(problem: Problem, *, retry_after: timedelta | None = None) -> MainspringError:
    """Return the error that a problem stands for, as the server raised it."""
    known = _BY_CODE.get(problem.code)
    if problem.status == 429:
        return errors.RateLimited(problem.detail, retry_after=retry_after or timedelta(seconds=1))
    if problem.field is not None:
        return _invalid(known, problem)
    if known is not None and not issubclass(known, errors.InvalidRequest):
        made = known.__new__(known)
        Exception.__init__(made, problem.detail)
        return made
    kind = next((kind for kind, status in reversed(_STATUS) if status == problem.status), MainspringError)
    made = kind.__new__(kind)
    Exception.__init__(made, problem.detail)
    return made


def _invalid(known: type[MainspringError] | None, problem: Problem) -> errors.InvalidRequest:
    kind = known if known is not None and issubclass(known, errors.InvalidRequest) else errors.InvalidRequest
    made = kind.__new__(kind)
    allowed = problem.allowed or ""
    reason = problem.detail.removeprefix(f"{problem.field}: ").removesuffix(f"; {allowed}")
    errors.InvalidRequest.__init__(made, reason, field=problem.field or "", value=problem.value, allowed=allowed)
    return made


def _plain(value: object) -> Any:
    """Return a value about as it was written in the request."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return format_duration(value)
    return value if isinstance(value, str | int | float | bool | dict | list | None) else str(value)


def _public(code: str) -> str:
    return "store_unavailable" if code == "wrong_database" else code


def _tree(kind: type[MainspringError]) -> Iterator[type[MainspringError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _tree(each)


_BY_CODE: Final[Mapping[str, type[MainspringError]]] = {kind.code: kind for kind in _tree(MainspringError)}
