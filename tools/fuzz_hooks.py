"""What Schemathesis cannot know, or gets wrong."""

from typing import Any
from urllib.parse import quote

import schemathesis


@schemathesis.hook
def filter_headers(_context: Any, headers: dict[str, Any] | None) -> bool:
    """Leave out headers that would arrive as others: white space around them is gone before anybody reads it."""
    return all(value == value.strip() for value in (headers or {}).values() if isinstance(value, str))


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Keep a list that a link has put into a path within its place: written as it is, it may go on as a query."""
    for name, value in (case.path_parameters or {}).items():
        if isinstance(value, list | dict):
            case.path_parameters[name] = quote(str(value)[:100], safe="")
