"""Paths: from the text of a URL to a route of the table, and what stands in its braces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from mainspring.domain.errors import NotFound
from mainspring.rest.routes import Route

_ANY = "{}"
_NAMES = "{names}"
_OURS = frozenset({"", _ANY, _NAMES})  # no segment of a request's


class Found(NamedTuple):
    """What answers to a path: its routes by method, and the parts of the path that are names."""

    routes: Mapping[str, Route]
    names: Mapping[str, str]


class Paths:
    """A tree of segments: looking a path up costs as many steps as it has, whatever the number of routes.

    Segments are parted before they are decoded, so that a name may have a slash in it.
    """

    def __init__(self, routes: Iterable[Route], prefix: str) -> None:
        self._prefix = f"{prefix}/"
        self._tree: dict[str, Any] = {}
        for route in routes:
            node = self._tree
            for segment in route.path.strip("/").split("/"):
                node = node.setdefault(_ANY if segment.startswith("{") else segment, {})
            node.setdefault("", {})[route.method] = route
            node[_NAMES] = [segment[1:-1] for segment in route.path.split("/") if segment.startswith("{")]

    def find(self, path: str) -> Found:
        """Return what answers to a path, as it stands in the request: each character a byte.

        Raises:
            NotFound: nothing does.
        """
        if not path.startswith(self._prefix):
            raise NotFound("there is no such path")
        node, values = self._tree, []
        for segment in path[len(self._prefix) :].rstrip("/").split("/"):
            below = node.get(segment) if segment not in _OURS else None
            if below is None and segment:
                below = node.get(_ANY)
                values.append(_decoded(segment))
            if below is None:
                raise NotFound("there is no such path")
            node = below
        routes: dict[str, Route] | None = node.get("")
        if routes is None:
            raise NotFound("there is no such path")
        return Found(routes, dict(zip(node[_NAMES], values, strict=True)))


def _decoded(segment: str) -> str:
    if "%" not in segment and segment.isascii():
        return segment
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise NotFound("there is no such path") from None
    if "\0" in text:
        raise NotFound("there is no such path")
    return text
