"""The whole error tree, divided by what the caller can do about it.

MainspringError
  InvalidRequest      change the request        InvalidSchedule, UnknownZone, UnknownTask, WrongDatabase,
                                                InlineSecret, KeyReused
  NotFound            there is no such thing, or not for this tenant
  Conflict            look again, then decide   IllegalTransition, StaleVersion, InProgress
  Unauthenticated     say who you are           a key or token is missing, not valid, expired, revoked
  Forbidden           ask for more rights       what you are does not allow it
  Unavailable         try the same again later  StoreUnavailable, EmbeddedUnavailable, RateLimited, NewerRelease
  Superseded          stop: another owns it now LeaseLost, NodeDeclaredDead
  RunFailed           the run you waited for came to nothing   RunCancelled
  BrokenInvariant     a bug of ours; please report
Signal (not errors: a task raises one to steer its own run; see signals.py)   Retry, Discard, Snooze
"""

from datetime import timedelta
from typing import ClassVar


class MainspringError(Exception):
    """Anything Mainspring raises on purpose; ``code`` goes to problem+json, ``exit_status`` to the shell.

    >>> MainspringError.exit_status
    1
    """

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1


class InvalidRequest(MainspringError):
    """What was asked cannot be done as written. Change the field named here and ask again.

    >>> str(InvalidRequest('"61" is out of range', field="minute", value="61", allowed="use 0-59"))
    'minute: "61" is out of range; use 0-59'
    """

    code = "invalid_request"
    exit_status = 2

    def __init__(self, reason: str, *, field: str, value: object, allowed: str) -> None:
        self.reason = reason
        self.field = field
        self.value = value
        self.allowed = allowed
        super().__init__(f"{field}: {reason}; {allowed}")


class InvalidSchedule(InvalidRequest):
    """A schedule that cannot be read, or that names no instant at all.

    >>> InvalidSchedule("never fires", field="schedule", value="0 0 30 2 *", allowed="name a date that comes").code
    'invalid_schedule'
    """

    code = "invalid_schedule"


class UnknownZone(InvalidSchedule):
    """A time zone that the IANA database does not have.

    >>> UnknownZone.code
    'unknown_zone'
    """

    code = "unknown_zone"


class UnknownTask(InvalidRequest):
    """A job names a task that nobody has registered, so that its runs would wait for ever."""

    code = "unknown_task"


class InlineSecret(InvalidRequest):
    """A secret is written out where only a reference to one may be; it is named by its path, and not repeated.

    >>> str(InlineSecret("payload.smtp[0].password", why="its name says so"))
    'payload.smtp[0].password: this is a secret, \
its name says so; use a reference such as {"$secret": "env:NAME"}, or file:, store:, vault:'
    """

    code = "inline_secret"

    def __init__(self, path: str, *, why: str) -> None:
        allowed = 'use a reference such as {"$secret": "env:NAME"}, or file:, store:, vault:'
        super().__init__(f"this is a secret, {why}", field=path, value="***", allowed=allowed)


class KeyReused(InvalidRequest):
    """An idempotency key came before, with another request. A new request needs a new key."""

    code = "idempotency_key_reused"


class WrongDatabase(InvalidRequest):
    """The database is reached and cannot be used: too old, newer than this code, or not durable."""

    code = "wrong_database"


class NotFound(MainspringError):
    """There is no such thing, or not for this tenant.

    >>> NotFound('there is no job "nightly"').exit_status
    3
    """

    code = "not_found"
    exit_status = 3


class Conflict(MainspringError):
    """The state of things does not allow it. Look again, then decide."""

    code = "conflict"
    exit_status = 4


class AlreadyExists(Conflict):
    """Something has that name already."""

    code = "already_exists"


class StaleVersion(Conflict):
    """The job was changed by somebody else meanwhile."""

    code = "stale_version"


class InProgress(Conflict):
    """The same request, by its idempotency key, is being worked on. Ask again in a moment."""

    code = "request_in_progress"


class Unauthenticated(MainspringError):
    """Nobody knows who is asking. ``reason`` is one of a few words, and never a detail about keys.

    >>> Unauthenticated("the token is not valid; get a new one", reason="expired").challenge
    'Bearer realm="mainspring", error="invalid_token", error_description="expired"'
    """

    code = "unauthenticated"
    exit_status = 5

    def __init__(self, message: str, *, reason: str = "missing") -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def challenge(self) -> str:
        """What the header WWW-Authenticate says (RFC 6750): no error when nothing was sent."""
        plain = 'Bearer realm="mainspring"'
        if self.reason == "missing":
            return plain
        return f'{plain}, error="invalid_token", error_description="{self.reason}"'


class Forbidden(MainspringError):
    """It is known who is asking, and that does not allow it. Ask somebody with more rights.

    >>> Forbidden("jobs:write is not open to the role viewer").exit_status
    5
    """

    code = "forbidden"
    exit_status = 5


class Unavailable(MainspringError):
    """Something needed is away. Try the same again later; services do so by themselves."""

    code = "unavailable"
    exit_status = 6


class NewerRelease(Unavailable):
    """A later release wrote this. Its nodes take care of it; upgrade this one."""

    code = "newer_release"


class StoreUnavailable(Unavailable):
    """The database cannot be reached. Written or not, nobody knows."""

    code = "store_unavailable"


class RateLimited(Unavailable):
    """The tenant has asked more than it may at a time. The same request is welcome after ``retry_after``."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Superseded(MainspringError):
    """Another owns it now: stop."""

    code = "superseded"


class LeaseLost(Superseded):
    """The lease is held by another node, under another epoch."""

    code = "lease_lost"


class NodeDeclaredDead(Superseded):
    """A healthy peer declared this node dead. That is final: come back under a new id."""

    code = "node_declared_dead"


class RunFailed(MainspringError):
    """The run is dead: its error says why. It is among the dead letters, where it can be replayed.

    >>> RunFailed("run 01a1… is dead, exhausted").code
    'run_failed'
    """

    code = "run_failed"


class RunCancelled(RunFailed):
    """The run was cancelled before it succeeded.

    >>> issubclass(RunCancelled, RunFailed)
    True
    """

    code = "run_cancelled"


class BrokenInvariant(MainspringError):
    """A promise of ours does not hold. It is a bug; please report it."""

    code = "broken_invariant"
