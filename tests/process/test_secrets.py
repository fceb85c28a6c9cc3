"""Secrets at work: looked up for the tenant of a run, in the store and in a vault, and seen nowhere afterwards.

The vault here is a server that speaks the answers of HashiCorp Vault's KV version 2 as they are on the wire: what is
tested is that we read those, not Vault.
"""

import asyncio
import base64
import html
import io
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from mainspring import Client, RetryPolicy, Schedule, task
from mainspring.domain.asking import Request
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import RunId
from mainspring.domain.job import Job, Json
from mainspring.domain.run import FINAL
from mainspring.domain.schedule import OnDemand
from mainspring.domain.views import RunView
from mainspring.environment import SystemEnvironment
from mainspring.roles import NodeSettings, Targets, run_node
from mainspring.sdk.direct import Direct, open_direct
from mainspring.sealing import Sealer
from mainspring.service import Stop
from mainspring.store.database import Database
from mainspring.store.secrets import put_secret
from mainspring.tasks.loading import Registry, load
from mainspring.telemetry.events import Events
from mainspring.telemetry.log import log_to
from mainspring.testing import ManualEnvironment
from mainspring.worker.pool import PoolConfig
from mainspring.worker.secrets import (
    EnvironmentSecrets,
    FileSecrets,
    Remembered,
    SecretRefused,
    SecretsByScheme,
    SecretUnavailable,
)
from mainspring.worker.targets.http import HttpConfig
from mainspring.worker.vault import LARGEST_ANSWER, VaultConfig, VaultSecrets

from .calling import LOOPBACK
from .leaky import ENDS, MODES, digest
from .origin import Answer, Origin, Received, answers, never, origin

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENV = SystemEnvironment()
SEALER = Sealer(b"k" * 32)
VAULT_TOKEN = "hvs.token-0451"


# The vault.


def kv(data: Json, status: int = 200) -> tuple[int, bytes]:
    """What Vault answers to a read of KV version 2."""
    metadata = {"created_time": "2027-03-14T07:00:00.1Z", "deletion_time": "", "destroyed": False, "version": 1}
    answer = {"request_id": "1", "lease_id": "", "renewable": False, "data": {"data": data, "metadata": metadata}}
    return status, json.dumps({**answer, "wrap_info": None, "warnings": None, "auth": None}).encode()


ERRORS = b'{"errors":[]}\n'  # what Vault says of what is not there


@asynccontextmanager
async def vault_with(secrets: dict[str, Any], *, token: str = VAULT_TOKEN) -> AsyncIterator[Origin]:
    """Serve a KV store, for whoever has the token."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.headers.get("x-vault-token") != token:
            await answers(403, b'{"errors":["permission denied"]}')(request, writer)
        elif request.path.removeprefix("/v1/") in secrets:
            status, body = kv(secrets[request.path.removeprefix("/v1/")])
            await answers(status, body, content_type="application/json")(request, writer)
        else:
            await answers(404, ERRORS)(request, writer)

    async with origin(answer) as server:
        yield server


@asynccontextmanager
async def reading(server: Origin, **config: Any) -> AsyncIterator[VaultSecrets]:
    made = VaultConfig(**{"url": server.url().rstrip("/"), "token": lambda: VAULT_TOKEN, **config})
    async with VaultSecrets(made) as opened:
        yield opened


async def test_a_secret_is_read_below_the_prefix_of_its_tenant() -> None:
    kept = {"secret/data/mainspring/acme/mail/smtp": {"password": "0451", "user": "ann"}}

    async with vault_with(kept) as server, reading(server) as vault:
        assert await vault.resolve("vault:mail/smtp#password", tenant="acme") == "0451"
        with pytest.raises(SecretRefused, match="is not there"):
            await vault.resolve("vault:mail/smtp#password", tenant="evil")

    paths = [request.path for request in server.requests]
    assert paths == [f"/v1/secret/data/mainspring/{tenant}/mail/smtp" for tenant in ("acme", "evil")]


@pytest.mark.parametrize("prefix", ["{tenant}", "/{tenant}/", "a/{tenant}"])
async def test_mount_and_prefix_are_the_operators_and_no_tenant_begins_another(prefix: str) -> None:
    below = prefix.strip("/").replace("{tenant}", "acme")
    kept = {f"kv/data/{below}/x": {"k": "0451"}, f"kv/data/{below}corp/x": {"k": "theirs"}}

    async with vault_with(kept) as server, reading(server, mount="/kv/", prefix=prefix) as vault:
        assert await vault.resolve("vault:x#k", tenant="acme") == "0451"
        with pytest.raises(SecretRefused):
            await vault.resolve("vault:corp/x#k", tenant="acme")


@pytest.mark.covers("F98", "F103")
@pytest.mark.parametrize(
    "asked",
    [
        *("../evil/smtp#k", "a/../../evil/smtp#k", "%2e%2e/evil#k", "a%2fb#k", "./a#k", "a/./b#k", "/a#k", "a//b#k"),
        *("a/#k", "a", "a#", "#k", "a?x=1#k", "a\\..\\b#k", "..#k", ".hidden#k", "a/..;/b#k", "ä#k", "a#k#l", "a#k/l"),
    ],
)
async def test_a_tenant_cannot_leave_its_prefix(asked: str) -> None:
    async with vault_with({}) as server, reading(server) as vault:
        with pytest.raises(SecretRefused, match="is no place in a vault"):
            await vault.resolve(f"vault:{asked}", tenant="acme")

    assert server.requests == []


@pytest.mark.covers("F98")
@pytest.mark.parametrize("tenant", ["..", ".", "a/../b", "a%2fb", "", "a b"])
async def test_nor_can_it_by_its_own_name(tenant: str) -> None:
    async with vault_with({}) as server, reading(server) as vault:
        with pytest.raises(SecretRefused, match="has no place in a vault"):
            await vault.resolve("vault:a#k", tenant=tenant)

    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "body", "error", "because"),
    [
        (404, ERRORS, SecretRefused, "is not there"),
        (404, kv(None, 404)[1], SecretRefused, "is not there"),  # its newest version was deleted
        (200, kv({"other": "0451"})[1], SecretRefused, "has no such key"),
        (200, kv({"k": 451})[1], SecretRefused, "is no text"),
        (200, kv({"k": {"a": "0451"}})[1], SecretRefused, "is no text"),
        (200, kv({"k": ""})[1], SecretRefused, "is no text"),
        (200, b'{"data": {"k": "0451"}}', SecretRefused, "has no such key"),  # KV version 1
        (200, b"0451", SecretUnavailable, "no KV version 2"),
        (200, b'{"data": "0451"}', SecretUnavailable, "no KV version 2"),
        (200, b"[" * 100_000, SecretUnavailable, "no KV version 2"),
        (200, b'"' + b"0451" * LARGEST_ANSWER + b'"', SecretUnavailable, f"more than {LARGEST_ANSWER} bytes"),
        (403, b'{"errors":["permission denied 0451"]}', SecretUnavailable, "answers 403"),
        (429, b"0451", SecretUnavailable, "answers 429"),
        (503, b'{"errors":["Vault is sealed"]}', SecretUnavailable, "answers 503"),
        (301, b"0451", SecretUnavailable, "answers 301"),
    ],
)
async def test_what_goes_wrong_is_said_without_what_was_answered(
    status: int, body: bytes, error: type[Exception], because: str
) -> None:
    async with origin(answers(status, body)) as server, reading(server) as vault:
        with pytest.raises(error, match=because) as refused:
            await vault.resolve("vault:a#k", tenant="acme")

    assert "0451" not in str(refused.value)
    assert "vault:a#k" in str(refused.value)


@pytest.mark.covers("F103")
async def test_the_token_is_not_taken_elsewhere_by_a_redirect() -> None:
    async with (
        origin(answers(200)) as thief,
        origin(answers(307, location=thief.url("/v1/x"))) as server,
        reading(server) as vault,
    ):
        with pytest.raises(SecretUnavailable, match="answers 307"):
            await vault.resolve("vault:a#k", tenant="acme")

    assert thief.requests == []


async def test_a_vault_that_is_slow_or_away_is_not_waited_for() -> None:
    async with origin(never) as server, reading(server, answer_within=timedelta(milliseconds=50)) as vault:
        with pytest.raises(SecretUnavailable, match="does not answer in time"):
            await vault.resolve("vault:a#k", tenant="acme")
    async with VaultSecrets(VaultConfig(url=server.url(), token=lambda: "t")) as vault:
        with pytest.raises(SecretUnavailable, match="cannot be asked"):
            await vault.resolve("vault:a#k", tenant="acme")


async def test_a_token_that_has_changed_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    kept = {"secret/data/mainspring/acme/a": {"k": "0451"}}
    async with vault_with(kept, token="new") as server, reading(server, token=token.read_text) as vault:
        with pytest.raises(SecretUnavailable, match="answers 403"):
            await vault.resolve("vault:a#k", tenant="acme")
        asked_in_vain = len(server.requests)
        token.write_text("new")

        assert await vault.resolve("vault:a#k", tenant="acme") == "0451"

    assert (asked_in_vain, len(server.requests)) == (1, 3)


# What is kept for a minute.


@dataclass
class Counting:
    """Counts who asks; answers with how often, or with an error."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    error: Exception | None = None

    async def resolve(self, reference: str, *, tenant: str) -> str:
        self.asked.append((tenant, reference))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return f"{tenant} {len(self.asked)}"


async def test_a_value_is_kept_for_a_minute_and_no_longer() -> None:
    env, provider = ManualEnvironment(), Counting()
    remembered = Remembered(provider, env)

    first = await asyncio.gather(*(remembered.resolve("store:a", tenant="acme") for _ in range(5)))
    await env.clock.advance(timedelta(seconds=59))
    second = await remembered.resolve("store:a", tenant="acme")
    await env.clock.advance(timedelta(seconds=1))
    third = await remembered.resolve("store:a", tenant="acme")

    assert [*first, second, third] == ["acme 1"] * 6 + ["acme 2"]


@pytest.mark.covers("F98")
async def test_what_is_kept_is_kept_by_tenant() -> None:
    remembered = Remembered(Counting(), ENV)

    assert await remembered.resolve("store:a", tenant="acme") == "acme 1"
    assert await remembered.resolve("store:a", tenant="evil") == "evil 2"


async def test_an_error_is_not_kept() -> None:
    provider = Counting(error=SecretUnavailable("away"))
    remembered = Remembered(provider, ENV)

    with pytest.raises(SecretUnavailable):
        await remembered.resolve("store:a", tenant="acme")
    provider.error = None

    assert await remembered.resolve("store:a", tenant="acme") == "acme 2"


async def test_whoever_is_cancelled_leaves_the_others_their_answer() -> None:
    remembered = Remembered(Counting(), ENV)
    waiting = [asyncio.ensure_future(remembered.resolve("store:a", tenant="acme")) for _ in range(2)]
    await asyncio.sleep(0)

    waiting[0].cancel()

    assert await waiting[1] == "acme 1"


# At work.

CANARIES = {
    "env": 'c4nary-env "q" /+ü&0451',
    "file": "c4nary-file\\0452/+=?",
    "store": "c4nary-store-0453",
    "vault": "c4nary-vault<0454>'x'",
}
PAYLOAD = {
    name: {"$secret": ref} for name, ref in zip(CANARIES, ("env:CANARY", "file:c", "store:c", "vault:c#k"), strict=True)
}


def marks_of(value: str) -> set[str]:
    """Every form in which a value must not be found."""
    content = value.encode()
    marks = {value, json.dumps(value)[1:-1], quote(value, safe=""), quote(value), quote_plus(value), repr(value)[1:-1]}
    marks |= {html.escape(value), content.hex(), base64.b64encode(content).decode().rstrip("=")}
    marks |= {base64.b64encode(b"user:" + content).decode()[8:-4], json.dumps(json.dumps(value)[1:-1])[1:-1]}
    marks |= {value[: len(value) - 5], content[:-5].hex()}  # cut off
    return marks


MARKS = {mark for value in CANARIES.values() for mark in marks_of(value)} | {"c4nary"}


@dataclass
class Node:
    """A node at work, and whoever asks it for runs."""

    asking: Direct
    log: io.StringIO

    async def run(self, name: str, payload: Json, *, of: str, attempts: int = 2) -> RunView:
        """Ask for a run, and return what became of it."""
        job = Job(
            name=name,
            task=of,
            payload=payload,
            schedule=Schedule(specs=(OnDemand(),)),
            retry=RetryPolicy(attempts=attempts, backoff="immediate"),
        )
        view = await self.asking.put_job(job, reason="")
        return await self.ended(await self.asking.trigger(view.id, Request()))

    async def ended(self, run: RunId) -> RunView:
        async with asyncio.timeout(60):
            while (view := await self.asking.find_run(run)).state not in FINAL:  # noqa: ASYNC110 - it is the ledger that knows
                await asyncio.sleep(0.02)
            return view


def unseen(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


Working = Callable[..., Any]


@pytest.fixture
def working(db: Database, dsn: str, tmp_path: Path) -> Working:
    """Run a node with secrets of every kind."""

    @asynccontextmanager
    async def started(registry: Registry, *, tenant: str = "default", **targets: Any) -> AsyncIterator[Node]:
        (tmp_path / "c").write_text(CANARIES["file"] + "\n")
        await put_secret(db, "default", "c", CANARIES["store"], SEALER)
        kept = {"secret/data/mainspring/default/c": {"k": CANARIES["vault"]}}
        secrets = SecretsByScheme(
            {
                "env": EnvironmentSecrets(["CANARY"], {"CANARY": CANARIES["env"], "CLOSED": "c4nary-closed"}),
                "file": FileSecrets(tmp_path),
            }
        )
        log, stop = io.StringIO(), Stop(ENV)
        async with vault_with(kept) as vault, open_direct(dsn, tenant=tenant, author="t", size=4) as asking:
            settings = NodeSettings(
                pools=(PoolConfig(concurrency=4),),
                targets=Targets(
                    http=HttpConfig(allow_networks=LOOPBACK),
                    secrets=secrets,
                    sealer=SEALER,
                    vault=VaultConfig(url=vault.url(), token=lambda: VAULT_TOKEN),
                    **targets,
                ),
            )
            events = Events(log_to(log, now=ENV.now))
            running = asyncio.create_task(run_node(settings, stop, db=db, env=ENV, events=events, registry=registry))
            try:
                yield Node(asking, log)
            finally:
                stop.request()
                await running

    return started


async def everything(db: Database) -> dict[str, str]:
    """Return every row of every table, as text."""
    async with db.connection() as connection:
        tables = [
            row["t"]
            for row in await connection.fetch("SELECT tablename AS t FROM pg_tables WHERE schemaname = 'public'")
        ]
        return {
            table: "\n".join(row[0] for row in await connection.fetch(f'SELECT t::text FROM "{table}" AS t'))
            for table in tables
        }


async def nowhere(db: Database, node: Node, seen: Awaitable[str] | str = "") -> None:
    """Check that no canary is in a table, nor in what the node has logged."""
    for table, content in (await everything(db)).items():
        assert unseen(content) == [], table
    assert unseen(node.log.getvalue()) == []
    assert unseen(str(seen)) == []


@pytest.mark.covers("F103")
@pytest.mark.parametrize("mode", MODES)
async def test_a_canary_that_a_task_tells_in_every_way_is_kept_nowhere(
    db: Database, working: Working, mode: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)  # a handler on the root logger, as users have them
    async with working(load(["tests.process.leaky"])) as node:
        runs = {
            end: await node.run(f"{end}.{mode}", {"end": end, "secrets": PAYLOAD}, of=f"leak.{mode}") for end in ENDS
        }
    lines = (await everything(db))["run_lines"]
    told = capfd.readouterr()

    assert runs["returns"].result["seen"] == {name: digest(value) for name, value in CANARIES.items()}
    assert {end: str(run.state) for end, run in runs.items()} == {
        **dict.fromkeys(ENDS, "dead"),
        **dict.fromkeys(("returns", "snoozes"), "succeeded"),
    }
    await nowhere(db, node, told.out + told.err + caplog.text)
    assert mode not in ("inline", "thread") or "logged ***" in caplog.text
    assert lines.count("***") > 100  # they did tell
    assert "Leak" in (await everything(db))["dead_letters"]


@pytest.mark.covers("F103")
@pytest.mark.parametrize("mode", ["inline", "process", "isolated"])
async def test_nor_is_one_in_a_result_that_a_task_commits_itself(
    db: Database, dsn: str, working: Working, mode: str
) -> None:
    async with working(load(["tests.process.leaky"])) as node:
        run = await node.run("c", {"dsn": dsn, "secrets": PAYLOAD}, of=f"complete.{mode}")

    assert run.result["seen"] == {name: digest(value) for name, value in CANARIES.items()}
    assert run.result["all"] == dict.fromkeys(CANARIES, "***")
    await nowhere(db, node)


def echoing(status: int) -> Answer:
    """Send back all that came, in the head and in the body."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        said = json.dumps(request.headers).encode() + request.body
        tag = request.headers.get("x-env", "none").replace("\r", "")
        await answers(status, said, etag=tag, content_type="text/plain", x_request_id=tag)(request, writer)

    return answer


@pytest.mark.covers("F103")
@pytest.mark.parametrize(("status", "state"), [(200, "succeeded"), (500, "dead"), (400, "dead")])
async def test_nor_is_one_that_a_server_sends_back(db: Database, working: Working, status: int, state: str) -> None:
    payload = {
        "method": "POST",
        "json": {"given": [PAYLOAD]},
        "secret_headers": {"X-Store": "store:c", "X-Vault": "vault:c#k", "X-File": "file:c"},
        "sign_with": "store:c",
    }

    async with working(Registry()) as node, origin(echoing(status)) as server:
        run = await node.run("call", {**payload, "url": server.url()}, of="http")

    assert str(run.state) == state
    body = json.loads(server.requests[0].body)
    assert body == {"given": [CANARIES]}
    assert server.requests[0].headers["x-vault"] == CANARIES["vault"]
    await nowhere(db, node)


@pytest.mark.covers("F103")
async def test_nor_does_a_redirect_take_one_to_another_server(db: Database, working: Working) -> None:
    async with (
        working(Registry()) as node,
        origin(answers(200)) as thief,
        origin(answers(307, location=thief.url("/x"))) as server,
    ):
        payload = {"method": "POST", "url": server.url(), "json": PAYLOAD, "redirects": 3}
        run = await node.run("call", payload, of="http")

    assert thief.requests == []
    assert str(run.reason) == "refused"
    assert run.error is not None
    assert "would take a secret along" in run.error.message
    await nowhere(db, node)


@pytest.mark.covers("F103")
async def test_nor_one_that_a_command_reads(db: Database, working: Working, tmp_path: Path) -> None:
    commands = {"leak": ("/bin/sh", "-c", 'cat > "$0"; cat "$0"; cat "$0" >&2; exit 3', str(tmp_path / "got"))}

    async with working(Registry(), commands=commands) as node:
        run = await node.run("cmd", {"command": "leak", "stdin": PAYLOAD["vault"]}, of="shell", attempts=1)
        refused = await node.run("args", {"command": "leak", "args": [PAYLOAD["env"]]}, of="shell", attempts=1)

    assert (tmp_path / "got").read_text() == CANARIES["vault"]
    assert run.error is not None
    assert run.error.message.endswith('"leak" exited with status 3: ***')
    assert refused.error is not None
    assert "would be seen by everybody on the machine" in refused.error.message
    await nowhere(db, node)


@pytest.mark.covers("F98", "F103")
@pytest.mark.parametrize("reference", ["store:c", "vault:c#k"])
async def test_a_run_has_no_secrets_of_other_tenants(db: Database, working: Working, reference: str) -> None:
    async with working(load(["tests.process.leaky"])) as node:
        evil = Job(
            name="evil",
            task="leak.inline",
            tenant="evil",
            payload={"end": "returns", "secrets": {"a": {"$secret": reference}}},
            schedule=Schedule(specs=(OnDemand(),)),
        )
        async with open_direct(db.dsn, tenant="evil", author="t", size=2) as asking:
            theirs = Node(asking, node.log)
            view = await asking.put_job(evil, reason="")
            run = await theirs.ended(await asking.trigger(view.id, Request()))

    assert (str(run.state), str(run.reason)) == ("dead", "refused")
    assert run.error is not None
    assert f'"{reference}" is not there' in run.error.message


@pytest.mark.covers("F103")
@pytest.mark.parametrize(
    ("reference", "because"),
    [
        ("env:CLOSED", '"env:CLOSED" is not open to jobs'),
        ("env:PATH", '"env:PATH" is not open to jobs'),
        ("file:../x", "cannot be read"),
        ("store:none", '"store:none" is not there; put it'),
        ("vault:none#k", "is not there"),
        ("vault:../evil/c#k", "is no place in a vault"),
    ],
)
async def test_a_secret_that_a_run_may_not_have_refuses_it(
    db: Database, working: Working, reference: str, because: str
) -> None:
    payload = {"end": "returns", "secrets": {"a": {"$secret": reference}}}

    async with working(load(["tests.process.leaky"])) as node:
        run = await node.run("x", payload, of="leak.process")

    assert (str(run.reason), run.attempt) == ("refused", 1)
    assert run.error is not None
    assert because in run.error.message
    await nowhere(db, node)


async def test_a_vault_that_is_away_is_tried_again(db: Database, dsn: str) -> None:
    del dsn
    settings = NodeSettings(
        pools=(PoolConfig(concurrency=4),),
        targets=Targets(http=None, vault=VaultConfig(url="http://127.0.0.1:1", token=lambda: "t")),
    )
    stop = Stop(ENV)
    running = asyncio.create_task(
        run_node(settings, stop, db=db, env=ENV, events=Events(), registry=load(["tests.process.leaky"]))
    )
    async with open_direct(db.dsn, tenant="default", author="t", size=2) as asking:
        payload = {"end": "returns", "secrets": {"a": {"$secret": "vault:c#k"}}}
        run = await Node(asking, io.StringIO()).run("x", payload, of="leak.inline", attempts=3)
        stop.request()
        await running

    assert (str(run.reason), run.attempt) == ("exhausted", 3)
    assert run.error is not None
    assert "cannot be asked" in run.error.message


@task
async def login(user: str, password: str) -> str:
    return digest(user + password)


async def test_a_call_may_have_a_reference_where_a_text_is_wanted(dsn: str, working: Working) -> None:
    given: Any = {"$secret": "store:c"}

    async with working(Registry([login])), Client(dsn) as client:
        run = await client.submit(login, "ann", given)

        assert await run.result(timeout=20) == digest("ann" + CANARIES["store"])
        with pytest.raises(InvalidRequest, match="no reference"):
            await client.submit(login, "ann", {"$secret": "hunter2"})  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="expected str"):
            await client.submit(login, given, {"a": given})  # type: ignore[arg-type]
