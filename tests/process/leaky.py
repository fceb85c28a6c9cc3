"""Tasks that tell every secret they are given in every way there is, once for each mode. Nothing of it may be kept."""

import base64
import hashlib
import json
import logging
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import asyncpg

from mainspring import Context, Discard, Retry, RetryPolicy, Snooze, task

LOG = logging.getLogger("leaky")
MODES = ("inline", "thread", "process", "isolated")
ENDS = ("returns", "raises", "chains", "retries", "discards", "snoozes", "exits", "strange")


class Leak(RuntimeError):
    pass


class Holder:
    """What has no JSON form, and says its secret instead."""

    def __init__(self, value: str) -> None:
        self.value = value

    def model_dump(self, mode: str) -> Any:
        raise TypeError(f"no {mode} for {self.value}")


def spelled(value: str) -> list[str]:
    coded = base64.b64encode(f"user:{value}".encode()).decode()
    return [value, json.dumps(value), quote(value, safe=""), repr(value), coded, value.encode().hex()]


def tell(ctx: Context, secrets: dict[str, str]) -> None:
    for value in secrets.values():
        for text in spelled(value):
            print(text)  # noqa: T201 - as tasks do
            print("to stderr", text, file=sys.stderr)  # noqa: T201
            LOG.warning("logged %s", text)
            ctx.log.info("told", secret=text)
            ctx.progress(0.5, text)
        print("ü" * 4_090 + value)  # noqa: T201 - cut in the middle of it, at 8,192 bytes
        LOG.error("ü" * 4_090 + value)  # noqa: G003
    print(ctx.payload, end="")  # noqa: T201 - a last line without an end


def ending(ctx: Context, end: str, secrets: dict[str, str]) -> Any:
    first, *_, last = secrets.values()
    match end:
        case "raises":
            raise Leak(f"with {secrets} and {' '.join(spelled(first))}")
        case "chains":
            try:
                _ = secrets[last]  # it is no name of one, and the error repeats it
            except KeyError as error:
                raise Leak(first) from error
        case "retries":
            raise Retry(first, after="1ms")
        case "discards":
            raise Discard(f"no use with {secrets}")
        case "snoozes" if ctx.attempt == 1:
            raise Snooze("1ms", because=f"not yet, {last}")
        case "exits":
            raise Leak(*spelled(first)) from Exception(*spelled(last))
        case "strange":
            return Holder(first)
    # That it had them, in a form that is nobody's secret; and all of them, which has to be masked.
    return {"seen": {name: digest(value) for name, value in secrets.items()}, first: [secrets, spelled(last)]}


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def leak(ctx: Context, end: str, secrets: dict[str, str]) -> Any:
    tell(ctx, secrets)
    return ending(ctx, end, secrets)


async def leak_async(ctx: Context, end: str, secrets: dict[str, str]) -> Any:
    tell(ctx, secrets)
    return ending(ctx, end, secrets)


async def complete(ctx: Context, dsn: str, secrets: dict[str, str]) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await ctx.complete(connection, {"seen": {n: digest(v) for n, v in secrets.items()}, "all": secrets})
    finally:
        await connection.close()


def registered(function: Callable[..., Any], name: str, mode: str) -> Any:
    retry = RetryPolicy(attempts=2, backoff="immediate")
    return task(name=f"{name}.{mode}", mode=mode, retry=retry)(function)


for _mode in MODES:
    globals()[f"leak_{_mode}"] = registered(leak_async if _mode == "inline" else leak, "leak", _mode)
    if _mode != "thread":
        globals()[f"complete_{_mode}"] = registered(complete, "complete", _mode)
