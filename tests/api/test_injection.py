"""Hostile texts in every place that takes one: they are refused, or kept as they are, and nothing else happens.

Places are found by walking the shapes of the table, so that a new field is tried without anybody thinking of it.
"""

import asyncio
import copy
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
import pytest_asyncio
from msgspec import inspect
from yarl import URL

from mainspring.config import Settings
from mainspring.domain.inline import says_secret
from mainspring.domain.job import check_name
from mainspring.domain.tenants import Quotas
from mainspring.rest.routes import BY_NAME, PREFIX, ROUTES, SSE, Route
from mainspring.store.database import Database
from mainspring.store.tenants import change_tenant

from .conftest import Asker, serve
from .samples import SAMPLES, USES_UP, Got, Maker, Sample, Things, fresh, named_in, path_of, sealing

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = (
    # SQL
    *(
        "'",
        "''",
        '"',
        "\\",
        "\\'",
        "' OR '1'='1",
        "'; DROP TABLE jobs; --",
        "1; SELECT pg_sleep(9)",
        "/* */",
        "--",
        "$$;$$",
    ),
    *(
        "'||(SELECT version())||'",
        ") UNION SELECT null --",
        "E'\\x27'",
        "$1",
        "%s",
        "%(name)s",
        ":name",
        "?",
        "NULL",
        "null",
    ),
    # LIKE, JSON paths, ORDER BY, ranges
    *("%", "_", "%%", "a%", "\\%", "$.*", "$[*] ? (@ > 1)", "{a,b}", "name desc", "(SELECT 1)", "[1,2)", "*"),
    # texts that are none, or look like others
    *("\0", "a\0b", "\ud800", "\udc00\ud800", "\ufeff", "\u202egnp.exe", "\u200b", "e\u0301", "\U0001f4a5", "ﬁ", "İ"),
    # headers and lines
    *(
        "a\r\nX-Injected: 1",
        "a\nX-Injected: 1",
        "a\r\n\r\n<html>",
        "a\u2028b",
        "\x1b[31mred\x1b[0m",
        "\x07",
        "\x7f",
        "\t",
    ),
    # pages
    *(
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "javascript:alert(1)",
        "data:text/html,<b>",
        "&lt;",
    ),
    # paths
    *(
        "../../etc/passwd",
        "..%2f..%2fetc",
        "%2e%2e%2f",
        "/",
        "//",
        ".",
        "..",
        "a/b",
        "~root",
        "C:\\x",
        "file:///etc/passwd",
    ),
    # templates, formats, shells, expansions
    *(
        "{{7*7}}",
        "${7*7}",
        "${jndi:ldap://127.0.0.1/a}",
        "#{7*7}",
        "{0.__class__}",
        "%n%n%n",
        "$(id)",
        "`id`",
        "| id",
        "=1+1",
    ),
    # sizes and words that mean something elsewhere
    *("", " ", "x" * 10_000, "true", "-1", "0", "1e9", "undefined", "__proto__", "constructor", "NaN"),
)
KEY = object()  # in a path: the name of a field of an object is hostile, not its value
MOST = pytest.mark.parametrize("most", [8, pytest.param(len(HOSTILE), marks=pytest.mark.long, id="all")])


@dataclass
class World:
    asker: Asker
    db: Database
    things: Things
    maker: Maker
    before: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(shared_db: Database) -> AsyncIterator[World]:
    await change_tenant(shared_db, "default", quotas=Quotas(requests_per_second=1_000_000, burst=1_000_000))
    with pytest.MonkeyPatch.context() as patch:
        async with serve(shared_db, sealing(Settings(), patch)) as asker:
            maker = Maker(asker, shared_db, "default")
            bystander = await maker.things(payload="untouched")
            world = World(asker, shared_db, await maker.things(), maker, {})
            world.before = {"things": bystander, **await seen_of(world, bystander)}
            yield world


async def seen_of(world: World, things: Things) -> dict[str, Any]:
    """Return all that can be seen of things that nobody means, and of the schema they are in."""
    paths = (
        f"/jobs/{things.job}",
        f"/jobs/{things.job}/versions",
        f"/runs/{things.run}",
        f"/dead-letters/{things.dead}",
    )
    seen = {path: (await world.asker("GET", path)).body for path in (*paths, f"/tenants/{things.own}")}
    async with world.db.connection() as connection:
        counted = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')"
        return seen | {"schema": await connection.fetchval(counted)}


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def untouched(world: World) -> AsyncIterator[None]:
    yield
    bystander = world.before["things"]
    assert {"things": bystander, **await seen_of(world, bystander)} == world.before


def places(info: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give every place in a shape, as the way to it."""
    match info:
        case inspect.StructType():
            for each in info.fields:
                yield from places(each.type, (*at, each.encode_name))
        case inspect.UnionType():
            for choice in info.types:
                yield from places(choice, at)
        case inspect.VarTupleType() | inspect.ListType():
            yield from places(info.item_type, (*at, 0))
        case inspect.DictType():
            yield (*at, KEY)
            yield from places(info.value_type, (*at, "x"))
        case inspect.AnyType():
            yield from (at, (*at, "x"), (*at, KEY))
        case inspect.NoneType():
            return
        case _:
            yield at


def planted(body: Any, way: tuple[Any, ...], text: Any) -> Any:
    """Return a body with a text at a place, and around it what makes the rest of it fit."""
    if not way:
        return text
    step, further = way[0], way[1:]
    if step is KEY:
        return {text: "x"}
    if step == 0:
        return [planted(body[0] if isinstance(body, list) and body else {}, further, text)]
    made = copy.deepcopy(body) if isinstance(body, dict) else {}
    if step == "http":
        made = {name: value for name, value in made.items() if name not in ("task", "payload")}
        made[step] = {"url": "http://127.0.0.1/"}
    made[step] = planted(made.get(step), further, text)
    return made


async def ask(world: World, route: Route, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Got:
    """Ask, and check what holds for any answer to anything."""
    where = URL(f"{world.asker.url}{path}", encoded=True)
    content = None if body is None else json.dumps(body).encode()  # surrogates and all
    given = {"Content-Type": "application/json", **(headers or {})}
    async with world.asker.session.request(route.method, where, data=content, headers=given) as answer:
        stream = route.media == SSE and answer.status == 200
        got = Got(answer.status, dict(answer.headers), await (answer.content.readany() if stream else answer.read()))
    good = got.status in {route.status, *(route.also or {})}
    assert good or 400 <= got.status < 500, (route.name, path, body, got)
    assert stream or got.headers["Content-Type"] == ("application/json" if good else "application/problem+json")
    assert "X-Injected" not in got.headers
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    if not good:
        assert set(msgspec.json.decode(got.content)) <= {
            *("type", "title", "status", "detail", "code", "field", "value", "allowed", "request"),
        }
    if good and route.name in USES_UP:
        world.things = await world.maker.renewed(world.things, USES_UP[route.name])
    return got


def chosen(number: int, *, most: int) -> Iterator[str]:
    """Give the texts for a place: so many of them, others for each place, so that all have their turn."""
    step = 11  # goes through all of them: their number is not a multiple of it
    yield from (HOSTILE[(number * 7 + each * step) % len(HOSTILE)] for each in range(min(most, len(HOSTILE))))


def body_shape_places(route: Route) -> list[tuple[Any, ...]]:
    """Return every place in the body of a route."""
    return [] if route.body is None else list(dict.fromkeys(places(inspect.type_info(route.body))))


def body_places() -> list[tuple[Route, tuple[Any, ...]]]:
    return [(route, way) for route in ROUTES for way in body_shape_places(route)]


async def test_the_walk_finds_the_places() -> None:
    ways = {way for route, way in body_places() if route.name == "jobs.create"}

    assert {
        ("name",),
        ("payload", "x"),
        ("payload", KEY),
        ("http", "headers", "x"),
        ("tags", 0),
        ("schedule", 0, "cron"),
    } <= ways
    assert len(body_places()) > 200
    assert planted({"name": "a", "task": "b"}, ("http", "headers", KEY), "t") == {
        "name": "a",
        "http": {"url": "http://127.0.0.1/", "headers": {"t": "x"}},
    }
    assert len(HOSTILE) == len(set(HOSTILE)) >= 60


@MOST
@pytest.mark.covers("F106", "F112")
@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None], ids=lambda route: route.name)
async def test_in_a_body(world: World, route: Route, most: int) -> None:
    for number, way in enumerate(body_shape_places(route)):
        for text in chosen(number, most=most):
            sample = SAMPLES[route.name](world.things)
            await ask(world, route, path_of(route, world.things, sample), planted(sample.body, way, text))


@MOST
@pytest.mark.covers("F106")
@pytest.mark.parametrize("route", [route for route in ROUTES if route.query is not None], ids=lambda route: route.name)
async def test_in_a_query(world: World, route: Route, most: int) -> None:
    for number, name in enumerate((*route.query.__struct_fields__, "order_by", "a'b")):
        for text in chosen(number + len(route.name), most=3 * most):
            sample = SAMPLES[route.name](world.things)
            query = {**sample.query, name: text.encode(errors="surrogatepass")}
            path = path_of(route, world.things, Sample(sample.body))
            got = await ask(world, route, f"{path}?{urlencode(query)}", sample.body)

            assert name in route.query.__struct_fields__ or got.status == 422


@MOST
@pytest.mark.covers("F106", "F118")
@pytest.mark.parametrize("route", [route for route in ROUTES if named_in(route)], ids=lambda route: route.name)
async def test_in_a_path(world: World, route: Route, most: int) -> None:
    for name in named_in(route):
        for text in chosen(len(route.name), most=5 * most):
            sample = SAMPLES[route.name](world.things)
            path = path_of(route, world.things, sample).split("/")
            place = f"{PREFIX}{route.path}".split("/").index(f"{{{name}}}")
            encoded = quote(text.encode(errors="surrogatepass"), safe="")
            end = f"?{urlencode(sample.query)}" if sample.query and place == len(path) - 1 else ""
            path[place] = f"{encoded}{end}"

            got = await ask_anything(world, route, "/".join(path), sample.body)
            if "\0" in text or not text.isprintable():
                assert got.status >= 400


async def ask_anything(world: World, route: Route, path: str, body: Any) -> Got:
    """Ask for a path that may belong to another route: an empty name is none."""
    try:
        return await ask(world, route, path, body)
    except AssertionError:
        other = next((each for each in ROUTES if f"{PREFIX}{each.path}" == path.partition("?")[0]), None)
        if other is None or other.method != route.method:
            raise
        return await ask(world, other, path, body)


@pytest.mark.covers("F106")
async def test_in_a_header(world: World) -> None:
    names = (
        *("Idempotency-Key", "If-Match", "Prefer", "Last-Event-ID", "Mainspring-Tenant", "Accept", "Origin", "Host"),
        *("Authorization", "Content-Type", "X-Forwarded-For", "Cookie", "User-Agent"),
    )
    fit = [
        text
        for text in HOSTILE
        if text.isascii() and text.isprintable() and text.strip() == text != "" and len(text) < 5_000
    ]
    assert len(fit) >= 40
    for route in (BY_NAME["jobs.trigger"], BY_NAME["jobs.edit"], BY_NAME["events.stream"]):
        for place, name in enumerate(names):
            for text in fit[place % 4 :: 4]:
                sample = SAMPLES[route.name](world.things)
                await ask(world, route, path_of(route, world.things, sample), sample.body, {name: text})


def fits_a_name(text: str) -> bool:
    try:
        check_name(text, "name")
    except Exception:  # noqa: BLE001 - whatever it says, it is no name
        return False
    return True


def storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


@pytest.mark.covers("F106", "F112")
@pytest.mark.parametrize("text", HOSTILE, ids=[f"{number}" for number in range(len(HOSTILE))])
async def test_what_is_kept_comes_back_as_it_was(world: World, text: str) -> None:
    payload = {"text": text, "list": [text, {"deep": text}], **({} if says_secret(text) else {text: 1})}
    name = f"{text} {fresh()}" if fits_a_name(f"{text} x") else fresh()
    labels: dict[str, Any] = {"owner": text, "external_id": text, "tags": [text]} if fits_a_name(text) else {}
    body = {"name": name, "task": "noop", "payload": payload, **labels, "reason": text[:2_000]}
    made = await world.asker(
        "POST", "/jobs", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    if not storable(text):
        assert made.status in (400, 422)
        assert "cannot be stored" in made["detail"]
        return
    assert made.status == 201, made.body

    read = await ask(world, BY_NAME["jobs.get"], f"{PREFIX}/jobs/{quote(name, safe='')}")
    run = await world.asker("POST", f"/jobs/{made['id']}/trigger", {"payload": payload, "reason": text[:2_000]})
    own = [made["definition"], msgspec.json.decode(read.content)["definition"]]
    listed = await ask(world, BY_NAME["jobs.list"], f"{PREFIX}/jobs?{urlencode({'prefix': name, 'limit': '500'})}")

    assert msgspec.json.decode(read.content)["id"] == made["id"]
    for definition in own:
        assert {field: definition[field] for field in ("name", "payload", *labels)} == {
            field: body[field] for field in ("name", "payload", *labels)
        }
    assert made["reason"] == text[:2_000]
    assert run.status == 201
    assert (await world.asker("GET", f"/runs/{run['id']}"))["payload"] == payload
    assert [each["name"] for each in msgspec.json.decode(listed.content)["items"]] == [name]  # no wildcard in it counts
    changed = (await world.asker("GET", "/changes", params={"subject": name}))["items"]
    assert {each["action"] for each in changed} == {"jobs.create", "jobs.trigger"}


async def test_names_with_a_slash_work_in_every_path_of_a_job(world: World) -> None:
    made = await world.asker(
        "POST", "/jobs", {"name": (name := f"a/b/../{fresh()}"), "task": "noop", "schedule": {"every": "1h"}}
    )
    assert made.status == 201
    for route in ROUTES:
        if list(named_in(route)) == ["job"] and route.name != "jobs.delete":
            things = replace(world.things, job=name, name=name)
            sample = SAMPLES[route.name](things)
            got = await ask(world, route, path_of(route, things, sample), sample.body)
            assert got.status < 300, (route.name, got)


@pytest.mark.covers("F106")
async def test_wildcards_find_nothing_but_themselves(world: World) -> None:
    names = [f"{fresh('wild')}{end}" for end in ("%", "_", "\\", "a", "*")]
    for name in names:
        assert (await world.asker("POST", "/jobs", {"name": name, "task": "noop"})).status == 201
    for prefix in ("wild-%", "wild%", "wild_", "%", "_", "wild-*", "WILD"):
        found = await world.asker("GET", "/jobs", params={"prefix": prefix})
        assert not {each["name"] for each in found["items"]} & set(names), prefix
        assert all(each["name"].startswith(prefix) for each in found["items"])
    for name in names:
        found = await world.asker("GET", "/jobs", params={"prefix": name})
        assert [each["name"] for each in found["items"]] == [name]


NEW = b'{"name":"%s","task":"noop","payload":%s}'


def with_payload(payload: bytes) -> bytes:
    return NEW % (fresh("strict").encode(), payload)


STRICT: dict[str, tuple[bytes, int, str]] = {
    "a name twice": (b'{"name":"a","name":"b","task":"noop"}', 400, "malformed_json"),
    "a name twice, spelled otherwise": (b'{"name":"a","n\\u0061me":"b","task":"noop"}', 400, "malformed_json"),
    "a name twice, deep inside": (with_payload(b'[{"a":[{"b":1,"b":1}]}]'), 400, "malformed_json"),
    "NaN": (with_payload(b"NaN"), 400, "malformed_json"),
    "Infinity": (with_payload(b"[Infinity]"), 400, "malformed_json"),
    "-Infinity": (with_payload(b"-Infinity"), 400, "malformed_json"),
    "1e999": (with_payload(b"1e999"), 400, "malformed_json"),
    "-1e999": (with_payload(b"[-1E999]"), 400, "malformed_json"),
    "a number of 5000 digits": (with_payload(b"9" * 5_000), 400, "malformed_json"),
    "65 levels": (with_payload(b"[" * 64 + b"]" * 64), 400, "too_deep"),
    "100000 levels": (with_payload(b"[" * 100_000 + b"]" * 100_000), 400, "too_deep"),
    "100000 levels, never closed": (b'{"a":' * 100_000, 400, "too_deep"),
    "not UTF-8": (with_payload(b'"\xff"'), 400, "malformed_json"),
    "an overlong NUL": (with_payload(b'"\xc0\x80"'), 400, "malformed_json"),
    "half a character in UTF-8": (with_payload(b'"\xed\xa0\x80"'), 400, "malformed_json"),
    "UTF-16": (with_payload(b"1").decode().encode("utf-16"), 400, "malformed_json"),
    "a byte order mark": (b"\xef\xbb\xbf" + with_payload(b"1"), 400, "malformed_json"),
    "something after it": (with_payload(b"1") + b"x", 400, "malformed_json"),
    "two documents": (with_payload(b"1") + with_payload(b"1"), 400, "malformed_json"),
    "a comma too many": (b'{"name":"a","task":"noop",}', 400, "malformed_json"),
    "a comment": (b'{"name":"a"/**/,"task":"noop"}', 400, "malformed_json"),
    "single quotes": (b"{'name':'a'}", 400, "malformed_json"),
    "a raw line feed in a text": (with_payload(b'"a\nb"'), 400, "malformed_json"),
    "a raw NUL": (with_payload(b'"a\x00b"'), 400, "malformed_json"),
    "an escaped NUL": (with_payload(b'"a\\u0000b"'), 422, "invalid_request"),
    "an escaped NUL in a name": (with_payload(b'{"\\u0000":1}'), 422, "invalid_request"),
    "half a character": (with_payload(b'"\\ud800"'), 422, "invalid_request"),
    "a list": (b"[]", 422, "invalid_request"),
    "a text": (b'"{}"', 422, "invalid_request"),
    "null": (b"null", 422, "invalid_request"),
    "nothing": (b"", 422, "invalid_request"),
    "only spaces": (b"   ", 400, "malformed_json"),
    "an unknown field": (b'{"name":"a","task":"noop","admin":true}', 422, "invalid_request"),
    "__proto__": (b'{"name":"a","task":"noop","__proto__":{}}', 422, "invalid_request"),
    "a number for a name": (b'{"name":1,"task":"noop"}', 422, "invalid_request"),
    "a priority of 2^64": (b'{"name":"a","task":"noop","priority":18446744073709551616}', 422, "invalid_request"),
}


@pytest.mark.covers("F111")
@pytest.mark.parametrize("what", STRICT)
async def test_strict_json(world: World, what: str) -> None:
    content, status, code = STRICT[what]

    async with asyncio.timeout(5):
        answer = await world.asker("POST", "/jobs", data=content, headers={"Content-Type": "application/json"})

    assert (answer.status, answer["code"]) == (status, code), answer.body
    assert len(json.dumps(answer.body)) < 1_000


@pytest.mark.covers("F111")
async def test_what_is_just_within_the_limits_is_good(world: World) -> None:
    for payload in (b"[" * 62 + b"]" * 62, b"1e308", b"9" * 300, b'"\\ud83d\\ude00"', b'{"a":{"b":1},"c":{"b":1}}'):
        answer = await world.asker(
            "POST", "/jobs", data=with_payload(payload), headers={"Content-Type": "application/json"}
        )
        assert answer.status == 201, answer.body


@pytest.mark.covers("F111", "F113")
@pytest.mark.parametrize(
    "media",
    [
        *(
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/json",
            "application/xml",
        ),
        *("application/jsonx", "application/json, text/plain", "application/octet-stream", "application/json-seq"),
    ],
)
async def test_other_content_types_are_not_read(world: World, media: str) -> None:
    answer = await world.asker("POST", "/jobs", data=with_payload(b"1"), headers={"Content-Type": media})

    assert (answer.status, answer["code"]) == (415, "not_json")


@pytest.mark.covers("F111")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip"])
async def test_nothing_is_unpacked(world: World, encoding: str) -> None:
    for content in (gzip.compress(with_payload(b"1")), with_payload(b"1")):
        async with raw_connection(world.asker) as (reader, writer):
            head = f"POST {PREFIX}/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(
                f"{head}Content-Encoding: {encoding}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
            )
            assert (await reader.readline()).split()[1] == b"415"


@pytest.mark.covers("F111")
async def test_too_large_is_refused_before_it_is_read(world: World) -> None:
    limit = 16 << 20
    async with raw_connection(world.asker) as (reader, writer):  # it says so
        head = f"POST {PREFIX}/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {limit + 1}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"413"
    async with raw_connection(world.asker) as (reader, writer):  # it does not
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        flooding = asyncio.create_task(flood(writer))
        assert (await reader.readline()).split()[1] == b"413"
        flooding.cancel()


async def flood(writer: asyncio.StreamWriter) -> None:
    """Send more than is taken, in chunks, until it is over."""
    part = b"x" * (1 << 20)
    with suppress(ConnectionError):
        for _ in range(40):
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()


@pytest.mark.covers("F111")
async def test_a_body_in_chunks_is_read_and_so_is_none_at_all(world: World) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for each in (content[:5], content[5:9], content[9:]):
            yield each

    content = with_payload(b"1")
    made = await world.asker("POST", "/jobs", data=parts(), headers={"Content-Type": "application/json"})
    none = await world.asker("POST", f"/jobs/{made['id']}/trigger")

    assert (made.status, none.status) == (201, 201)


SMUGGLED = {
    "two lengths": b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "a length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks, spelled otherwise": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a length with a plus": b"Content-Length: +2\r\n\r\n{}",
    "a space before the colon": b"Content-Length : 2\r\n\r\n{}",
    "a folded header": b"X-A: 1\r\n b\r\nContent-Length : 2\r\n\r\n{}",
    "a NUL in a header": b"X-A: a\x00b\r\n\r\n",
    "a bare CR in a header": b"X-A: a\rX-Injected: 1\r\n\r\n",
}


@pytest.mark.covers("F106")
@pytest.mark.parametrize("what", SMUGGLED)
async def test_a_request_with_two_readings_is_none(world: World, what: str) -> None:
    async with raw_connection(world.asker) as (reader, writer):
        writer.write(f"POST {PREFIX}/jobs HTTP/1.1\r\nHost: localhost\r\n".encode() + SMUGGLED[what])
        async with asyncio.timeout(5):
            status = (await reader.readline()).split()[1]

        assert status in (b"400", b"415", b"422"), status
        assert status == b"400" or "chunks" not in what


class raw_connection:  # noqa: N801 - read as a function
    """A socket to the server, for what no client would send."""

    def __init__(self, asker: Asker) -> None:
        self._url = URL(asker.url)

    async def __aenter__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await asyncio.open_connection(self._url.host, self._url.port)
        return reader, self._writer

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
