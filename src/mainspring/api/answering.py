"""The same request twice is answered twice the same: what ``Idempotency-Key`` promises, on every POST.

Making jobs keeps its answer in the transaction that makes them (``making.py``): after a crash the key tells which it
was, all or nothing. So does making an API key, where only that it was answered is kept (``keys.py``). For the others
the key is taken first and the answer kept afterwards; between the two they repeat themselves without harm, for the key
goes along into the identity of the run, or of the bulk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from typing import Final

from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply
from mainspring.domain.errors import InvalidRequest, MainspringError, Unavailable
from mainspring.store import answers
from mainspring.store.answers import Answer

BY_THEMSELVES: Final = frozenset({"jobs.create", "jobs.create_many", "keys.create"})
_LONGEST_KEY: Final = 200
_KEPT: Final = ("ETag", "Location")


class Answering:
    """Answers a request once, however often it is sent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def once(self, call: Call, handler: Callable[[Call], Awaitable[Reply]]) -> Reply:
        """Return the answer that was given before, or the handler's.

        Raises:
            KeyReused: the key came with another request.
            InProgress: the first one with it is still being worked on.
        """
        if call.key is None:
            return await handler(call)
        check_key(call.key)
        if call.route.name in BY_THEMSELVES:
            return await handler(call)
        db = self._desk.scoped(call)
        async with db.transaction() as tx:
            begun = await answers.begin(tx, call.principal.tenant, call.key, fingerprint(call))
        if isinstance(begun, Answer):
            return again(begun)
        try:
            reply = await handler(call)
        except MainspringError:
            with suppress(Unavailable):
                async with db.transaction() as tx:
                    await answers.forget(tx, begun)
            raise
        async with db.transaction() as tx:
            await answers.finish(tx, begun, answer_of(reply))
        return reply


def answer_of(reply: Reply) -> Answer:
    kept = {name: value for name, value in reply.headers.items() if name in _KEPT}
    return Answer(reply.status, reply.body, kept)


def again(answer: Answer) -> Reply:
    return Reply(status=answer.status, body=answer.body, headers={**answer.headers, "Idempotency-Replayed": "true"})


def fingerprint(call: Call) -> bytes:
    """Return what tells two requests apart: who asks for what, and the body to the byte."""
    names = "/".join(f"{name}={value}" for name, value in call.names.items())
    head = f"{call.route.name}\n{names}\n{call.principal.tenant}\n"
    return sha256(head.encode() + call.raw).digest()


def check_key(key: str) -> None:
    """Refuse what cannot be a key.

    Raises:
        InvalidRequest: it is empty, too long, or not plain ASCII without spaces.
    """
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        allowed = f"use 1 to {_LONGEST_KEY} printable ASCII characters without spaces, such as a UUID"
        raise InvalidRequest("it is no key", field="Idempotency-Key", value=key[:40], allowed=allowed)
