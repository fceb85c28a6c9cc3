"""The description of the API: valid, complete, and good enough for somebody else's generator to make a client of it."""

import asyncio
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT
from types import ModuleType
from typing import Any

import pytest
from openapi_spec_validator import validate

from mainspring import task
from mainspring.api.openapi import openapi
from mainspring.config import Settings
from mainspring.rest.routes import PREFIX, ROUTES
from mainspring.store.database import Database
from tests.sdk.conftest import Working, working

from .conftest import Asker, key_for, serve

__all__ = ["working"]  # a fixture

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]


@task
async def greet(name: str) -> str:
    return f"hello {name}"


async def test_what_is_served_is_valid_and_has_every_route(ask: Asker) -> None:
    served = await ask("GET", "/api/v1/openapi.json")

    validate(served.body)
    described = {
        (method.upper(), path.removeprefix(PREFIX), operation["operationId"])
        for path, methods in served["paths"].items()
        for method, operation in methods.items()
    }
    assert described == {(route.method, route.path, route.name.replace(".", "_")) for route in ROUTES}


async def test_every_reference_leads_somewhere_and_every_shape_is_used() -> None:
    described = openapi()
    text = json.dumps(described)
    shapes = described["components"]["schemas"]

    referenced = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert referenced == set(shapes)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A client that openapi-python-client makes of our description."""
    where = tmp_path_factory.mktemp("generated")
    (where / "openapi.json").write_text(json.dumps(openapi()))
    (where / "config.yml").write_text("post_hooks: []\n")  # no formatting
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--meta", "none"]
    options = ["--path", "openapi.json", "--output-path", "made_client", "--config", "config.yml", "--fail-on-warning"]
    done = subprocess.run([*command, *options], cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(where))
    try:
        yield importlib.import_module("made_client")
    finally:
        sys.path.remove(str(where))
        for name in [each for each in sys.modules if each.partition(".")[0] == "made_client"]:
            del sys.modules[name]


async def test_a_generated_client_creates_lists_pauses_triggers_and_reads(
    generated: ModuleType, db: Database, secured: Settings, working: Working
) -> None:
    key = await key_for(db, "default")
    async with serve(db, secured) as asker, working(greet):
        client = generated.AuthenticatedClient(base_url=asker.url, token=key, raise_on_unexpected_status=True)
        async with client:
            await _use(client)


async def _use(client: Any) -> None:
    def operation(noun: str, name: str) -> Any:
        return importlib.import_module(f"made_client.api.{noun}.{name}").asyncio

    models = importlib.import_module("made_client.models")
    names = [f"greeting-{number}" for number in range(7)]
    for name in names:
        spec = models.Spec(cron="30 2 * * *")
        body = models.NewJob(name=name, task="greet", payload={"name": name}, schedule=[spec], timezone="Europe/London")
        made = await operation("jobs", "jobs_create")(client=client, body=body, idempotency_key=f"make-{name}")
        assert made.definition.timezone == "Europe/London"

    seen, after = [], importlib.import_module("made_client.types").UNSET
    while True:
        page = await operation("jobs", "jobs_list")(client=client, prefix="greeting-", limit=3, after=after)
        seen += [job.name for job in page.items]
        if page.next_ is None:
            break
        after = page.next_
    assert seen == names

    paused = await operation("jobs", "jobs_pause")("greeting-0", client=client, body=models.Pause(reason="holidays"))
    assert (paused.state.value, paused.reason) == ("paused", "holidays")

    run = await operation("jobs", "jobs_trigger")("greeting-1", client=client, body=models.Trigger(), prefer="wait=20")
    read = await operation("runs", "runs_get")(str(run.id), client=client)
    assert (read.state.value, read.result, read.job) == ("succeeded", "hello greeting-1", "greeting-1")

    refused = await operation("jobs", "jobs_get")("nothing", client=client)
    assert (refused.status, refused.code) == (404, "not_found")


async def test_chains_of_generated_requests_are_answered_as_described() -> None:
    command = [sys.executable, "tools/fuzz.py", "--requests", "50", "--processes", "1"]
    fuzzing = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=STDOUT)
    told = (await fuzzing.communicate())[0].decode()

    assert fuzzing.returncode == 0, told
    chained = re.search(r"([\d,]+) of them in chains", told)
    assert chained is not None, told
    assert int(chained[1].replace(",", "")) >= 50
