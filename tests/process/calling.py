"""What tests of the HTTP target say: a target that may reach loopback, secrets, one call."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mainspring.domain.addresses import parse_networks
from mainspring.domain.settling import Outcome
from mainspring.environment import SystemEnvironment
from mainspring.worker.secrets import EnvironmentSecrets, SecretsByScheme
from mainspring.worker.targets.http import HttpConfig, HttpTarget

from .attempts import Told, attempt

LOOPBACK = parse_networks(["127.0.0.0/8", "::1"], field="http.allow_networks")


ENVIRONMENT = SystemEnvironment()


TOKEN, KEY, OLD_KEY = "Bearer s3cr3t/0451+x", "whsec_" + "QUJD" * 8, "an-older-key-in-plain-text"


VARIABLES = {
    "TOKEN": TOKEN,
    "KEYS": f"{KEY} {OLD_KEY}",
    "KEY": KEY,
    "CLOSED": "hands off",
    "BAD": "a\r\nX-B: c",
    "EMPTY": "",
}


SECRETS = SecretsByScheme({"env": EnvironmentSecrets(["TOKEN", "KEYS", "KEY", "BAD", "EMPTY", "UNSET"], VARIABLES)})


@asynccontextmanager
async def target(tls: ssl.SSLContext | None = None, secrets: Any = SECRETS, **config: Any) -> AsyncIterator[HttpTarget]:
    opened = HttpTarget(HttpConfig(allow_networks=LOOPBACK, **config), secrets, ENVIRONMENT, tls=tls)
    async with opened:
        yield opened


async def call(opened: HttpTarget, url: str, *, output: Told | None = None, **more: object) -> Outcome:
    async with asyncio.timeout(20):  # a target that hangs is a failure, not a wait
        return await opened.run(attempt({"method": "GET", "url": url, **more}, output=output))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
