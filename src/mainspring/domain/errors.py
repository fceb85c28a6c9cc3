"""The whole error tree, divided by what the caller can do about it.

MainspringError
  InvalidRequest      change the request        InvalidSchedule, UnknownZone
"""

from typing import ClassVar


class MainspringError(Exception):
    """Anything Mainspring raises on purpose; ``code`` goes to problem+json, ``exit_status`` to the shell."""

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1


class InvalidRequest(MainspringError):
    """What was asked cannot be done as written. Change the field named here and ask again."""

    code = "invalid_request"
    exit_status = 2

    def __init__(self, reason: str, *, field: str, value: object, allowed: str) -> None:
        self.reason = reason
        self.field = field
        self.value = value
        self.allowed = allowed
        super().__init__(f"{field}: {reason}; {allowed}")


class InvalidSchedule(InvalidRequest):
    """A schedule that cannot be read, or that names no instant at all."""

    code = "invalid_schedule"


class UnknownZone(InvalidSchedule):
    """A time zone that the IANA database does not have."""

    code = "unknown_zone"
