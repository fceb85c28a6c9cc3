"""Fuzz the API: a real server, its own description, and as many generated requests as are asked for.

    .venv/bin/python tools/fuzz.py --requests 100000 --processes 2

Schemathesis makes valid and invalid requests from the served OpenAPI, one by one and in chains that follow its links,
until the server has answered that many. Any 5xx, any status that is not described, any answer that does not fit its
schema is a failure, printed with the curl command that repeats it. No worker runs: what is generated is never dialled.

Half of the rounds know their way around: names in paths are of things that are there, and schedules mean something.
What is made at random alone is refused nine times in ten, and the chains break at their first link.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, NamedTuple

from mainspring import embedded
from mainspring.domain.tenants import Quotas
from mainspring.environment import SystemEnvironment
from mainspring.roles import open_ledger
from mainspring.store.keys import make_key
from mainspring.store.tenants import change_tenant

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "negative_data_rejection",
)
SPECS = [
    {"cron": "0 3 * * *"},
    {"cron": "*/5 * * * *"},
    {"every": "90s"},
    {"at": "2031-01-01T00:00:00Z"},
    {"rrule": "FREQ=DAILY", "start": "2026-01-01T09:00:00Z"},
]
_TRACEBACK = 60  # lines that are shown
_REQUESTS = re.compile(r'mainspring_api_requests_total\{route="([^"]*)",status="(\d+)"\} ([\d.e+]+)')


async def _prepare(dsn: str) -> str:
    async with open_ledger(dsn) as db:
        await change_tenant(db, "default", quotas=Quotas(requests_per_second=1_000_000, burst=1_000_000))
        key, _ = await make_key(
            db, SystemEnvironment(), tenant=None, name="fuzz", role="admin", created_by="tools/fuzz.py"
        )
    return key


@contextmanager
def server(dsn: str) -> Iterator[str]:
    """Run an API and a scheduler; yield the URL."""
    command = [sys.executable, "-m", "mainspring", "serve", "--roles", "api,scheduler", "--port", "0", "--dsn", dsn]
    environment = {**os.environ, "MAINSPRING_AUTH__REQUIRED": "true"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                if "listening" in line:
                    Thread(target=_drain, args=(running,), daemon=True).start()
                    yield line.partition("url=")[2].split()[0]
                    break
        finally:
            running.send_signal(signal.SIGTERM)


def _drain(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    left = 0
    with suppress(ValueError):  # closed at the end
        for line in running.stdout:
            left = _TRACEBACK if "Traceback" in line or "failed" in line else left - 1
            if left > 0:
                sys.stderr.write(line)


class Asking:
    """Requests of our own to the server."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def __call__(self, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", data=data, headers=self._headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            content: bytes = answer.read()
        return content

    def made(self, path: str, body: Any) -> Any:
        return json.loads(self(f"/api/v1{path}", body))


def answered(ask: Asking) -> dict[str, int]:
    """Return how many requests the server has answered, by status."""
    found: dict[str, int] = {}
    for _, status, count in _REQUESTS.findall(ask("/metrics").decode()):
        found[status] = found.get(status, 0) + int(float(count))
    return found


def world(ask: Asking, number: int) -> dict[str, list[str]]:
    """Make some of everything; return what the braces of a path may stand for."""
    jobs = [f"world-{number}-{each}" for each in range(20)]
    ask.made("/jobs:batch", {"jobs": [{"name": job, "task": "noop", "schedule": {"every": "1h"}} for job in jobs]})
    ask.made("/jobs", {"name": f"dies-{number}", "task": "noop", "wait_timeout": "1s"})
    runs = [ask.made(f"/jobs/{job}/trigger", {})["id"] for job in [*jobs, *[f"dies-{number}"] * 10]]
    tenants = [f"tenant-{number}-{each}" for each in range(10)]
    for tenant in tenants:
        ask.made("/tenants", {"name": tenant})
    keys = [ask.made("/keys", {"name": f"key-{each}", "role": "viewer"})["id"] for each in range(10)]
    bulk = ask.made("/bulk", {"action": "jobs.pause", "filter": {"prefix": f"world-{number}-1"}})["id"]
    return {"job": jobs, "run": runs, "tenant": tenants, "key": keys, "bulk": [bulk], "pool": ["short", "long"]}


def narrowed(document: Any, known: dict[str, list[str]]) -> Any:
    """Return the description with less to choose from: whatever fits it, fits the one that is served."""
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    schemas = document["components"]["schemas"]
    schemas["Told"] = deepcopy(schemas["Definition"])  # of a batch; answers have Definition too, and it stays for them
    schemas["NewJobs"] = json.loads(json.dumps(schemas["NewJobs"]).replace("schemas/Definition", "schemas/Told"))
    for name in ("NewJob", "Told", "Edit"):
        properties = schemas[name]["properties"]
        for left_out in ("http", "exclude", "start", "end", "dst"):
            del properties[left_out]
        properties["schedule"] = {"enum": SPECS}
        properties["task"] = {"const": "noop"}
        properties["name"] = properties["pool"] = {"type": "string", "pattern": "^[a-z0-9]{1,20}$"}
        properties["timezone"] = {"enum": ["UTC", "Europe/Berlin", "America/New_York"]}
        for length in ("estimated_duration", "jitter", "wait_timeout", "run_timeout", "deadline"):
            properties[length] = {"enum": ["30s", "1h30m"]}
        if name != "Edit":
            schemas[name]["required"] = ["name", "task"]
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="each with a server of its own")
    wanted = parser.parse_args()
    if wanted.processes > 1:
        return several(wanted.processes, wanted.requests, wanted.seed)
    return alone(wanted.requests, wanted.seed)


def several(processes: int, requests: int, seed: int) -> int:
    """Share the requests: making them up takes longer than answering them."""
    share = str(-(-requests // processes))
    command = [sys.executable, __file__, "--processes", "1", "--requests", share]
    started = [
        subprocess.Popen(
            [*command, "--seed", str(seed + 1_000 * each)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for each in range(processes)
    ]
    readers = [Thread(target=_tell, args=(number, each)) for number, each in enumerate(started, start=1)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return max(each.wait() for each in started)


def _tell(number: int, started: subprocess.Popen[str]) -> None:
    assert started.stdout is not None
    for line in started.stdout:
        print(f"{number}| {line}", end="", flush=True)


class Round(NamedTuple):
    """One way to ask."""

    known: bool  # of things that are there
    mode: str
    phases: str

    @property
    def chains(self) -> bool:
        return self.phases == "stateful"


ROUNDS = (
    Round(known=True, mode="positive", phases="stateful"),
    Round(known=True, mode="positive", phases="examples,coverage,fuzzing"),
    Round(known=False, mode="all", phases="stateful"),
    Round(known=False, mode="all", phases="examples,coverage,fuzzing"),
)


def alone(requests: int, first_seed: int) -> int:
    """Go on until so many are answered, or one of them is not as it should be."""
    examples, seconds = max(5, min(400, requests // 250)), max(15, min(180, requests // 250))
    with TemporaryDirectory() as scratch, embedded.running() as postgres:
        key = asyncio.run(_prepare(postgres.dsn))
        with server(postgres.dsn) as url:
            ask, before, chained = Asking(url, key), 0, 0
            for number, each in enumerate(cycle(ROUNDS)):
                seed, described = first_seed + number, f"{url}/api/v1/openapi.json"
                if each.known:
                    described = str(Path(scratch, "narrowed.json"))
                    document = narrowed(json.loads(ask("/api/v1/openapi.json")), world(ask, seed))
                    Path(described).write_text(json.dumps(document))
                command = [
                    *(str(Path(sys.executable).with_name("schemathesis")), "run", described, "--url", url),
                    *("-H", f"Authorization: Bearer {key}", "--checks", ",".join(CHECKS)),
                    *("--exclude-operation-id", "events_stream", "--warnings", "off"),
                    *("--mode", each.mode, "--phases", each.phases, "--seed", str(seed)),
                    *("--max-examples", str(examples), "--suppress-health-check", "all"),
                    *("--no-color", "--request-timeout", "30"),
                    # It gives up on chains as soon as the same one ends otherwise than before, which it does if a name
                    # is taken now; with time left it begins anew.
                    *(("--max-time", str(seconds)) if each.chains else ()),
                ]
                environment = {
                    **os.environ,
                    "SCHEMATHESIS_HOOKS": "fuzz_hooks",
                    "PYTHONPATH": str(Path(__file__).parent),
                }
                status = subprocess.run(command, check=False, cwd=scratch, env=environment).returncode
                found = answered(ask)
                total = sum(found.values())
                chained, before = chained + (total - before if each.chains else 0), total
                shown = ", ".join(f"{count} × {status}" for status, count in sorted(found.items()))
                print(f"\n{total:,} requests answered so far, {chained:,} of them in chains: {shown}\n", flush=True)
                if status or any(each.startswith("5") for each in found):
                    return status or 1
                if total >= requests:
                    return 0
    return 1  # the server did not start


if __name__ == "__main__":
    sys.exit(main())
