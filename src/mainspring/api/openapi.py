"""OpenAPI 3.1, made of the table of routes: what is described is what is served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

import msgspec

from mainspring.api.requests import VERSION_TAG
from mainspring.domain.job import Json
from mainspring.rest import shapes
from mainspring.rest.problems import MEDIA_TYPE, TITLES, Problem
from mainspring.rest.routes import COMMON, PREFIX, ROUTES, SSE, Route

_REF: Final = "#/components/schemas/{name}"
_IN_PATH: Final = re.compile(r"{(\w+)}")
_PARTS: Final[Mapping[str, str]] = {
    "job": "The name of a job, or its id.",
    "run": "The id of a run.",
    "node": "The id of a node.",
    "pool": "The name of a pool.",
    "tenant": "The name of a tenant.",
    "key": "The id of an API key.",
    "secret": "The name of a secret.",
    "bulk": "The id of a bulk action.",
}
_HEADERS: Final = {
    "RateLimit-Limit": "How many requests the tenant may send at once.",
    "RateLimit-Remaining": "How many of them are left.",
    "RateLimit-Reset": "Seconds until all of them are there again.",
}
_NOUNS: Final = {
    "jobs": "Definitions: what runs, when, and by which policies.",
    "runs": "Slots that fired, and runs that were asked for.",
    "dead_letters": "Runs that came to nothing, and wait for somebody to look.",
    "bulk": "One action on everything that a filter finds.",
    "cluster": "The processes at work.",
    "workers": "What can be asked of a process.",
    "pools": "What waits for which workers.",
    "changes": "Who did what, and why.",
    "events": "What happens, as it happens.",
    "audit": "Proof that no slot was missed and none fired twice.",
    "me": "Who is asking.",
    "tenants": "Those who share this installation.",
    "keys": "API keys.",
    "secrets": "Values that jobs name, and nobody reads back.",
}


def openapi() -> dict[str, Json]:
    """Describe the API."""
    kinds = {
        kind
        for route in ROUTES
        for kind in (route.body, route.query, route.returns, *(route.also or {}).values())
        if kind is not None and kind is not str
    }
    _, components = msgspec.json.schema_components((*sorted(kinds, key=str), Problem), ref_template=_REF)
    paths: dict[str, dict[str, Json]] = {}
    for route in ROUTES:
        paths.setdefault(f"{PREFIX}{route.path}", {})[route.method.lower()] = _operation(route, components)
    asked = {route.query.__name__ for route in ROUTES if route.query is not None}
    used = {name: schema for name, schema in components.items() if name not in asked}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Mainspring",
            "version": metadata.version("mainspring"),
            "summary": "Jobs that fire once, at the right instant, and can prove it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": noun, "description": text} for noun, text in _NOUNS.items()],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": used,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (ms_…) or a JWT. A server on loopback in dev mode asks for none.",
                }
            },
        },
    }
    plain: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(document))  # tuples are lists now
    return plain


def _operation(route: Route, components: Mapping[str, Any]) -> dict[str, Json]:
    parameters = [_in_path(name) for name in _IN_PATH.findall(route.path)]
    if route.query is not None:
        parameters += _in_query(components[route.query.__name__])
    parameters += _in_headers(route)
    written: dict[str, Json] = {
        "operationId": route.name.replace(".", "_"),
        "summary": route.summary,
        "tags": [route.noun],
        "responses": _responses(route),
    }
    if route.scope is not None:
        written["description"] = f"Needs the scope `{route.scope}`."
    if parameters:
        written["parameters"] = parameters
    if route.body is not None:
        needed = bool(components[route.body.__name__].get("required"))
        written["requestBody"] = {"required": needed, "content": {"application/json": {"schema": _ref(route.body)}}}
    return written


def _in_path(name: str) -> dict[str, Json]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": _PARTS[name], "schema": schema}


def _in_query(schema: Mapping[str, Any]) -> list[dict[str, Json]]:
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null({each: value for each, value in of.items() if each != "description"}),
            **({"description": of["description"]} if "description" in of else {}),
        }
        for name, of in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a parameter: one that is not given is left out, and no text says null."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    kept = {name: value for name, value in schema.items() if name != "anyOf" and (name, value) != ("default", None)}
    if not choices:
        return kept
    return {**kept, **choices[0]} if len(choices) == 1 else {**kept, "anyOf": choices}


def _in_headers(route: Route) -> list[dict[str, Json]]:
    wanted: list[tuple[str, str, dict[str, Json]]] = []
    if route.method == "POST":
        text = "Send the same again with the same key, and it is done once and answered the same."
        schema: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
        wanted.append(("Idempotency-Key", text, schema))
    if route.matches:
        text = "The ETag of the version that is to be changed; refused with 412 if there is a newer one."
        wanted.append(("If-Match", text, {"type": "string", "pattern": VERSION_TAG}))
    if route.waits:
        wanted.append(
            (
                "Prefer",
                "wait=10: answer when it has ended, or after so many seconds.",
                {"type": "string", "examples": ["wait=10"]},
            )
        )
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
        for name, text, schema in wanted
    ]


def _responses(route: Route) -> dict[str, Json]:
    good = {route.status: route.returns, **(route.also or {})}
    answers: dict[str, Json] = {}
    for status, kind in good.items():
        schema = {"type": "string"} if kind is str else _ref(kind)
        answers[str(status)] = {
            "description": route.summary,
            "headers": {name: _header(text) for name, text in _HEADERS.items()},
            "content": {route.media if route.media == SSE else "application/json": {"schema": schema}},
            **({"links": links} if (links := _links(route, kind)) else {}),
        }
    for status in sorted({*COMMON, *route.errors}):
        answers[str(status)] = {
            "description": TITLES[status],
            "content": {MEDIA_TYPE: {"schema": _ref(Problem)}},
            **({"headers": {"Retry-After": _header("Seconds to wait.")}} if status in (429, 503) else {}),
        }
    return answers


def _links(route: Route, kind: Any) -> dict[str, Json]:
    """Name what can be done with the job or the run that an answer is about."""
    about = {shapes.JobAnswer: "job", shapes.JobChanged: "job", shapes.RunAnswer: "run"}.get(kind)
    return {
        other.name.replace(".", "_"): {
            "operationId": other.name.replace(".", "_"),
            "parameters": {about: "$response.body#/id"},
        }
        for other in ROUTES
        if about is not None and f"{{{about}}}" in other.path and other.name != route.name
    }


def _header(text: str) -> dict[str, Json]:
    return {"description": text, "schema": {"type": "integer"}}


def _ref(kind: Any) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}
