"""What is served beside the API: health, metrics, the description of the API and a page to read it on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Final

import msgspec

from mainspring.api.app import Page
from mainspring.api.metrics import Metrics
from mainspring.api.openapi import openapi
from mainspring.api.patience import within
from mainspring.api.requests import Reply, json_reply
from mainspring.domain.access import Scope
from mainspring.domain.errors import Unavailable
from mainspring.rest.routes import PREFIX
from mainspring.rest.shapes import Health, Ready
from mainspring.store.database import Database

_MEDIA: Final = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css"}
_FILES: Final = {"/docs": "docs.html", "/docs/docs.js": "docs.js", "/docs/docs.css": "docs.css"}
# Nothing from elsewhere, nothing inline.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ANSWER_WITHIN: Final = 2.0


def pages(db: Database, metrics: Metrics, *, docs: bool) -> Mapping[str, Page]:
    """Return the pages by their path."""
    described = msgspec.json.encode(openapi())

    async def healthy() -> Reply:
        return json_reply(Health(status="ok"))

    async def ready() -> Reply:
        try:
            await within(_ANSWER_WITHIN, _asked(db))
        except (Unavailable, TimeoutError):
            return json_reply(Ready(ready=False, database="away"), status=503, headers={"Retry-After": "2"})
        return json_reply(Ready(ready=True, database="ok"))

    async def description() -> Reply:
        return Reply(body=described)

    async def measured() -> Reply:
        return Reply(body=await metrics.text(), media="text/plain; version=0.0.4; charset=utf-8")

    found = {
        "/healthz": Page(healthy),
        "/readyz": Page(ready),
        "/metrics": Page(measured, Scope.CLUSTER_READ),
        f"{PREFIX}/openapi.json": Page(description),
    }
    return {**found, **{path: Page(_file(name)) for path, name in _FILES.items()}} if docs else found


async def _asked(db: Database) -> None:
    async with db.connection() as connection:
        await connection.fetchval("SELECT 1")


def _file(name: str) -> Callable[[], Awaitable[Reply]]:
    content = resources.files("mainspring.api").joinpath("static", name).read_bytes()
    media = _MEDIA[name.rpartition(".")[2]]

    async def read() -> Reply:
        return Reply(body=content, media=media, headers={"Content-Security-Policy": _POLICY})

    return read
