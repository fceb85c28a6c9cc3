"""HTTP jobs that try to get inside, made through the front door: refused there, or by the worker that runs them.

The forms and the canary are those of the worker's own test, and so is the net below the guard, but for the socket of
the database. It is under every test here: nothing is dialled off this machine, whatever is broken.
"""

import asyncio
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from mainspring.config import Settings
from mainspring.domain.addresses import parse_address, plain
from mainspring.domain.ids import NodeId
from mainspring.domain.settling import Discarded, Outcome
from mainspring.store import claim as claims
from mainspring.store import settle as settles
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.worker.attempt import Attempt
from mainspring.worker.targets.http import HttpTarget
from tests.process.attempts import Told, result
from tests.process.origin import answers, origin
from tests.process.test_ssrf import FORMS, ON_LOOPBACK, canary_on, reached, target
from tests.store.ledger import Ledger

from .conftest import Answered, Asker, serve
from .samples import ENVIRONMENT, fresh

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.covers("F102")]

HOME = ("127.0.0.1", "::1")


@pytest.fixture(autouse=True)
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that this test dials, in the order of dialling; the database is on a socket without one."""
    seen: list[str] = []
    connect = BaseSelectorEventLoop.sock_connect

    async def sock_connect(loop: BaseSelectorEventLoop, sock: socket.socket, address: Any) -> None:
        if sock.family != socket.AF_UNIX:
            seen.append(address[0])
            found = parse_address(address[0])
            if found is None or not (plain(found).is_loopback or plain(found).is_unspecified):
                raise ConnectionRefusedError(f"{address[0]} is not on this machine")
        await connect(loop, sock, address)

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", sock_connect)
    return seen


@dataclass(frozen=True)
class World:
    asker: Asker
    db: Database
    node: NodeId

    async def make(self, url: str, **more: Any) -> Answered:
        http = {"url": url, "method": "GET", "timeout": "5s", **more}
        return await self.asker("POST", "/jobs", {"name": fresh("call"), "http": http, "retry": {"attempts": 1}})

    async def trigger(self, job: str, body: Any = None) -> None:
        triggered = await self.asker("POST", f"/jobs/{job}/trigger", body or {})
        assert triggered.status == 201, triggered.body

    async def work(self, opened: HttpTarget) -> dict[str, Outcome]:
        """Do what a worker would with all that waits; return how each ended, by the id of its job."""
        runs = await claims.claim(
            self.db, Definitions(), ENVIRONMENT, pool="short", worker=self.node, tasks=["http"], limit=1_000
        )
        ended = {}
        for run in runs:
            async with asyncio.timeout(20):
                ended[str(run.job_id)] = await opened.run(Attempt(run=run, fence="1.1", output=Told()))
        outcomes = [settles.Ended(run, ended[str(run.job_id)]) for run in runs]
        await settles.settle(self.db, ENVIRONMENT, outcomes)
        return ended


@pytest_asyncio.fixture(loop_scope="session")
async def world(db: Database) -> AsyncIterator[World]:
    async with serve(db, Settings()) as asker:
        yield World(asker, db, await Ledger(db, ENVIRONMENT).node())


async def test_the_net_lets_nothing_off_this_machine(dialled: list[str]) -> None:
    with socket.socket() as sock, pytest.raises(ConnectionRefusedError, match="not on this machine"):
        await asyncio.get_running_loop().sock_connect(sock, ("192.0.2.1", 80))

    assert dialled == ["192.0.2.1"]


async def test_a_job_of_the_api_reaches_what_it_may(world: World) -> None:
    async with canary_on(*HOME) as canary, target(canary[0].port, allow=("127.0.0.0/8",)) as opened:
        made = await world.make(canary[0].url())
        await world.trigger(made["id"])

        ended = await world.work(opened)

    assert result(ended[made["id"]])["body"] == "the crown jewels"
    assert reached(canary) == 1  # so that it means something if it is 0


async def test_no_form_of_an_internal_address_is_reached(world: World, dialled: list[str]) -> None:
    async with canary_on(*HOME) as canary, target(canary[0].port) as opened:
        port = canary[0].port
        made: dict[str, str] = {}
        for form in FORMS:
            answer = await world.make(form.format(port=port))
            if answer.status == 422:
                assert answer["field"] == "http.url", answer.body
                continue
            assert answer.status == 201, answer.body
            made[answer["id"]] = form
            await world.trigger(answer["id"])
        dialled.clear()  # so far it was the client that dialled the server

        ended = await world.work(opened)

        assert len(made) > 50
        assert set(ended) == set(made)
        for job, outcome in ended.items():
            assert isinstance(outcome, Discarded), (made[job], outcome)
            assert outcome.reason
        assert dialled == []
        assert reached(canary) == 0
    for job in list(made)[:5]:
        runs = (await world.asker("GET", f"/jobs/{job}/runs"))["items"]
        assert [run["state"] for run in runs] == ["dead"]


async def test_nor_is_it_by_the_payload_of_a_run(world: World) -> None:
    async with canary_on(*HOME) as canary, target(canary[0].port) as opened:
        harmless, refused = await world.make("http://public.example/"), 0
        for form in ON_LOOPBACK:
            payload = {"method": "GET", "url": form.format(port=canary[0].port)}
            job = {"name": fresh("call"), "task": "http", "payload": {"method": "GET", "url": "http://public.example/"}}
            for answer in (
                await world.asker("POST", f"/jobs/{harmless['id']}/trigger", {"payload": payload}),
                await world.asker("POST", "/runs", {"job": job, "runs": [{"payload": payload}]}),
            ):
                assert answer.status in (201, 422), answer.body
                refused += answer.status == 422

        while ended := await world.work(opened):
            assert all(isinstance(outcome, Discarded) for outcome in ended.values())
        assert reached(canary) == 0
    dead = await world.asker("GET", "/dead-letters?limit=500")
    assert len(dead["items"]) + refused == 2 * len(ON_LOOPBACK)
    assert dead["items"], "what is refused at once tells nothing of the worker"


async def test_nor_by_a_redirect(world: World) -> None:
    # 127.0.0.1 stands for the public network here, and 127.0.0.2 and ::1 for what is inside.
    async with canary_on("127.0.0.2", "::1") as canary:
        made = []
        for form in ON_LOOPBACK:
            inside = form.replace("127.0.0.1", "127.0.0.2").format(port=canary[0].port)
            async with (
                origin(answers(302, Location=inside)) as public,
                target(canary[0].port, allow=("127.0.0.1",)) as opened,
            ):
                answer = await world.make(public.url(), redirects=5)
                assert answer.status == 201, answer.body
                await world.trigger(answer["id"])

                ended = await world.work(opened)

                assert len(public.requests) >= 1
                made.append(ended[answer["id"]].word)
        assert set(made) <= {"discarded", "failed"}
        assert reached(canary) == 0


CREDENTIALS = "hunter2-canary"
REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "a user and a password": ({"url": f"https://ann:{CREDENTIALS}@api.example/"}, "http.url"),
    "a user": ({"url": f"https://{CREDENTIALS}@api.example/"}, "http.url"),
    "an empty user": ({"url": f"https://:{CREDENTIALS}@api.example/"}, "http.url"),
    "Authorization": ({"headers": {"Authorization": f"Bearer {CREDENTIALS}"}}, "http.headers"),
    "authorization": ({"headers": {"authorization": CREDENTIALS}}, "http.headers"),
    "X-Api-Key": ({"headers": {"X-Api-Key": CREDENTIALS}}, "http.headers"),
    "Cookie": ({"headers": {"Cookie": f"session={CREDENTIALS}"}}, "http.headers"),
    "X-Auth-Token": ({"headers": {"X-Auth-Token": CREDENTIALS}}, "http.headers"),
    "a secret in the open": ({"secret_headers": {"X-Key": CREDENTIALS}}, "http.secret_headers"),
    "a key to sign with": ({"sign_with": CREDENTIALS}, "http.sign_with"),
    "a password in the body": ({"json": {"smtp": [{"password": CREDENTIALS}]}}, "http.json.smtp[0].password"),
    "CR and LF": ({"headers": {"X-A": f"{CREDENTIALS}\r\nX-B: c"}}, "http.headers"),
    "another scheme": ({"url": "file:///etc/passwd"}, "http.url"),
    "a method that is none": ({"method": "GET / HTTP/1.1"}, "http.method"),
    "a Host": ({"headers": {"Host": "internal"}}, "http.headers"),
}


@pytest.mark.covers("F103")
@pytest.mark.parametrize("what", REFUSED)
async def test_what_does_not_belong_in_a_request_is_refused_by_its_path(world: World, what: str) -> None:
    given, field = REFUSED[what]
    http = {"url": "https://api.example/", **given}
    job = {"name": fresh("call"), "http": http}
    there = await world.make("https://api.example/")
    asked = {
        ("POST", "/jobs"): (job, ""),
        ("PUT", f"/jobs/{job['name']}"): (job, ""),
        ("PATCH", f"/jobs/{there['id']}"): ({"http": http}, ""),
        ("POST", "/jobs:batch"): ({"jobs": [{"name": fresh(), "task": "noop"}, job]}, "jobs[1]."),
        ("POST", "/runs"): ({"job": job, "runs": [{}]}, ""),
    }
    for (method, path), (body, before) in asked.items():
        answer = await world.asker(method, path, body)

        assert answer.status == 422, (method, path, answer.body)
        assert answer["field"].removeprefix("job.") == f"{before}{field}", (method, path)
        assert CREDENTIALS not in msgspec.json.encode(answer.body).decode()
    assert (await world.asker("GET", f"/jobs/{job['name']}")).status == 404
