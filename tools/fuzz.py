"""Fuzz the API: a real server, its own description, and as many generated requests as are asked for.

    .venv/bin/python tools/fuzz.py --requests 100000

Schemathesis makes valid and invalid requests from the served OpenAPI, one by one and in chains that follow its links,
until the server has answered that many. Any 5xx, any status that is not described, any answer that does not fit its
schema is a failure, printed with the curl command that repeats it. No worker runs: what is generated is never dialled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

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
    with suppress(ValueError):  # closed at the end
        for line in running.stdout:
            if "Traceback" in line or "failed" in line:
                sys.stderr.write(line)


def answered(url: str, key: str) -> dict[str, int]:
    """Return how many requests the server has answered, by status."""
    asked = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, int] = {}
    for _, status, count in _REQUESTS.findall(text):
        found[status] = found.get(status, 0) + int(float(count))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)  # more upset ast on 3.11
    wanted = parser.parse_args()
    examples, seed = max(5, min(400, wanted.requests // 250)), wanted.seed
    with TemporaryDirectory() as scratch, embedded.running() as postgres:
        key = asyncio.run(_prepare(postgres.dsn))
        with server(postgres.dsn) as url:
            while True:
                command = [
                    *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/api/v1/openapi.json"),
                    *("-H", f"Authorization: Bearer {key}", "--checks", ",".join(CHECKS)),
                    *("--exclude-operation-id", "events_stream", "--warnings", "off"),
                    *("--max-examples", str(examples), "--seed", str(seed), "--workers", str(wanted.workers)),
                    *("--suppress-health-check", "all", "--no-color", "--request-timeout", "30"),
                ]
                status = subprocess.run(command, check=False, cwd=scratch).returncode
                found = answered(url, key)
                total = sum(found.values())
                shown = ", ".join(f"{count} × {status}" for status, count in sorted(found.items()))
                print(f"\n{total:,} requests answered so far: {shown}\n", flush=True)
                if status or any(each.startswith("5") for each in found):
                    return status or 1
                if total >= wanted.requests:
                    return 0
                seed += 1


if __name__ == "__main__":
    sys.exit(main())
