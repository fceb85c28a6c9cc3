"""What worker, template and children say to each other: msgpack, never pickle, over Unix sockets.

The sockets keep packets apart (SOCK_SEQPACKET): a packet is a message, so that helpers a task has forked may
log on its socket without cutting into each other's words. What is longer than a packet comes in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from mainspring.domain.settling import Cancelled, Completed, Discarded, ErrorInfo, Failed, Outcome, Snoozed, Succeeded

PACKET: Final = 64 * 1024  # bytes of body; a socket takes several before it is full
LONGEST_RESULT: Final = 8 * 1024 * 1024  # bytes of JSON that a child may hand over
LONGEST_ANSWER: Final = LONGEST_RESULT + 1024 * 1024
TOO_LARGE: Final = "result_too_large"


# Worker to template.


class Load(msgspec.Struct, tag=True):
    """Import these; what comes first."""

    modules: tuple[str, ...]
    path: tuple[str, ...]  # sys.path of the worker: what it could import, the template can


class Fork(msgspec.Struct, tag=True):
    """Start a child; three descriptors come along: its socket, its stdout, its stderr."""

    child: int


class Send(msgspec.Struct, tag=True):
    """Send a signal to a child and its group."""

    child: int
    signal: int


FromWorker: TypeAlias = Load | Fork | Send


# Template to worker.


class Ready(msgspec.Struct, tag=True):
    """The modules are imported."""


class Refused(msgspec.Struct, tag=True):
    """They cannot be; the template ends."""

    reason: str


class Exited(msgspec.Struct, tag=True):
    """A child has ended, and whatever it had started."""

    child: int
    status: int  # as in subprocess: negative for a signal
    cpu: float = 0.0  # seconds
    peak: int = 0  # bytes of memory
    reason: str = ""  # where it did not come to an exit


FromTemplate: TypeAlias = Ready | Refused | Exited


# Worker to child: one message, a request. Child to worker: any of these, the kind being the first byte.


class Kind(IntEnum):
    PART = 0  # of what follows
    LOG = 1
    PROGRESS = 2
    ENDED = 3
    REQUEST = 4


class Request(msgspec.Struct, kw_only=True):
    """One attempt, as its child needs it."""

    task: str
    payload: bytes  # JSON: msgpack has no large integers
    run_id: UUID
    job_id: UUID
    job: str
    slot: datetime
    attempt: int
    kind: str
    fence: str
    only: bool  # the child ends after it
    schedule: bytes = b""  # JSON, for tasks that take a context
    last_success: LastSuccessSent | None = None
    lease: LeaseSent | None = None  # for tasks that take a context, which may settle their run themselves
    hidden: tuple[str, ...] = ()  # secrets in the payload, which a result must not show


class LeaseSent(msgspec.Struct, array_like=True):
    token: UUID
    failures: int
    joined: bool


class LastSuccessSent(msgspec.Struct, array_like=True):
    run_id: UUID
    at: datetime
    result: bytes  # JSON


class Log(msgspec.Struct, array_like=True):
    level: str
    at: float | None  # seconds since the epoch
    text: str


class Progress(msgspec.Struct, array_like=True):
    done: float
    note: str


class Ended(msgspec.Struct, array_like=True):
    """How the task did, and whether its process may serve another."""

    word: str
    outcome: msgspec.Raw
    resident: int = 0  # bytes of memory
    reusable: bool = False


_UNFINISHED: Final[dict[str, Any]] = {each.word: each for each in (Failed, Discarded, Snoozed, Cancelled, Completed)}


def ended(outcome: Outcome, *, resident: int, reusable: bool) -> bytes:
    """Write how a task did. A result that is too large becomes a failure, in words."""
    if isinstance(outcome, Succeeded):
        result = msgspec.json.encode(outcome.result)
        if len(result) <= LONGEST_RESULT:
            return _written(Succeeded.word, result, resident, reusable=reusable)
        outcome = _too_large(len(result))
    return _written(outcome.word, outcome, resident, reusable=reusable)


def outcome_in(message: Ended) -> Outcome:
    """Read what :func:`ended` wrote."""
    if message.word == Succeeded.word:
        return Succeeded(msgspec.json.decode(msgspec.msgpack.decode(message.outcome, type=bytes)))
    outcome: Outcome = msgspec.msgpack.decode(message.outcome, type=_UNFINISHED[message.word])
    return outcome


def packets(kind: Kind, body: bytes) -> Iterator[bytes]:
    """Cut a message into packets."""
    for start in range(0, len(body) - PACKET, PACKET):
        yield bytes([Kind.PART]) + body[start : start + PACKET]
    yield bytes([kind]) + body[max(0, (len(body) - 1) // PACKET) * PACKET :]


def _written(word: str, outcome: object, resident: int, *, reusable: bool) -> bytes:
    return msgspec.msgpack.encode(Ended(word, msgspec.Raw(msgspec.msgpack.encode(outcome)), resident, reusable))


def _too_large(size: int) -> Failed:
    message = (
        f"the result is {size:,} bytes of JSON, and no more than {LONGEST_RESULT:,} leave a process: "
        "keep it elsewhere, and return where"
    )
    return Failed(error=ErrorInfo(type=TOO_LARGE, message=message))
