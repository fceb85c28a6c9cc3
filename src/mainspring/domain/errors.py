"""The whole error tree, divided by what the caller can do about it.

MainspringError
  InvalidRequest      change the request        InvalidSchedule, UnknownZone, UnknownTask, WrongDatabase
  NotFound            there is no such thing, or not for this tenant
  Conflict            look again, then decide   IllegalTransition, StaleVersion
  Unavailable         try the same again later  StoreUnavailable, EmbeddedUnavailable
  Superseded          stop: another owns it now LeaseLost, NodeDeclaredDead
  RunFailed           the run you waited for came to nothing   RunCancelled
  BrokenInvariant     a bug of ours; please report
Signal (not errors: a task raises one to steer its own run; see signals.py)   Retry, Discard, Snooze
"""

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


class StaleVersion(Conflict):
    """The job was changed by somebody else meanwhile."""

    code = "stale_version"


class Unavailable(MainspringError):
    """Something needed is away. Try the same again later; services do so by themselves."""

    code = "unavailable"
    exit_status = 6


class StoreUnavailable(Unavailable):
    """The database cannot be reached. Written or not, nobody knows."""

    code = "store_unavailable"


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
