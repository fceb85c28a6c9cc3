"""Signals: what a task raises to steer its own run. Of these only ``Retry`` counts against the retry budget.

::

    raise Snooze(minutes=5, because="input not ready")  # this attempt ends, another follows, free of charge
    raise Discard("no such customer")  # dead at once: trying again is of no use
    raise Retry(after="30s", because="the bank is busy")  # a failure; the next attempt is not sooner than this
"""

from __future__ import annotations

from datetime import timedelta

from mainspring.domain.durations import parse_duration


class Signal(Exception):
    """A task's wish about its own run."""


class Snooze(Signal):
    """End this attempt and try again later, at no cost to the retry budget.

    >>> Snooze(minutes=5, because="input not ready").delay
    datetime.timedelta(seconds=300)
    """

    def __init__(
        self,
        delay: timedelta | str | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        because: str = "",
    ) -> None:
        self.delay = _length(delay) or timedelta(seconds=seconds, minutes=minutes, hours=hours)
        self.because = because
        super().__init__(because)


class Discard(Signal):
    """Give the run up: it goes to the dead letters without another attempt.

    >>> Discard("no such customer").because
    'no such customer'
    """

    def __init__(self, because: str = "") -> None:
        self.because = because
        super().__init__(because)


class Retry(Signal):
    """Fail this attempt, and ask that the next one be no sooner than ``after``; the job's own cap still holds.

    >>> Retry(after="30s").after
    datetime.timedelta(seconds=30)
    """

    def __init__(self, because: str = "", *, after: timedelta | str | None = None) -> None:
        self.after = _length(after)
        self.because = because
        super().__init__(because)


def _length(given: timedelta | str | None) -> timedelta | None:
    return parse_duration(given, field="delay") if isinstance(given, str) else given
