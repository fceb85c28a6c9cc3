"""Retry policies: whether a failed run is tried again, and after how long.

The budget. ``attempts`` is how many attempts of a run may fail, the first included: with 5, the
fifth failure is the last. Only failures count, a lost worker and a timeout among them; an attempt
that was snoozed or given back was no failure, so a run may well have more attempts than its budget.

The waits. None is longer than ``longest``, whoever asked for it. Jitter only ever shortens a wait,
so runs that have reached the cap are spread as well. It is a hash of run and failure: every node,
and an auditor a year later, arrives at the same instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, fields
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, TypeVar, assert_never

from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidRequest

MOST_ATTEMPTS: Final = 1000
MOST_NAMES: Final = 100
LONGEST_WAIT: Final = timedelta(days=365)
_USUAL_CAP: Final = timedelta(hours=1)
_ZERO: Final = timedelta(0)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Backoff(StrEnum):
    """How the waits grow. ``n`` counts the failures so far."""

    NONE = "none"  # the first failure is the last, whatever attempts says
    IMMEDIATE = "immediate"
    FIXED = "fixed"  # base
    LINEAR = "linear"  # base × n
    EXPONENTIAL = "exponential"  # base × factor^(n-1)
    LIST = "list"  # delays in turn; the last one repeats, for it is attempts that ends a run


class Jitter(StrEnum):
    """How much of a wait is left to chance."""

    NONE = "none"
    QUARTER = "quarter"  # the wait, less up to 25 %
    FULL = "full"  # anything between nothing and the wait


_SHARE: Final = {Jitter.NONE: 0.0, Jitter.QUARTER: 0.25, Jitter.FULL: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What a job allows its runs after a failure.

    >>> RetryPolicy(attempts=5, backoff="30s..1h").cap
    datetime.timedelta(seconds=3600)

    Raises:
        InvalidRequest: a field contradicts another or is out of bounds; it is named ``retry.<field>``.
    """

    kind: Backoff = Backoff.EXPONENTIAL
    attempts: int = 5
    base: timedelta = timedelta(seconds=30)
    factor: float = 2.0
    cap: timedelta | None = None  # unset: an hour, or what base or delays ask for if that is more
    delays: tuple[timedelta, ...] = ()  # for kind=list, and for no other
    jitter: Jitter | None = None  # unset: full if exponential, else none: explicit waits are kept as written
    max_age: timedelta | None = None  # no retry starts later than this after the run was first due
    not_retried: tuple[str, ...] = ()  # names of error types, bare or with their module
    backoff: InitVar[str | None] = None  # kind, base, cap and delays as people write them

    def __post_init__(self, backoff: str | None) -> None:
        if backoff is not None:
            for name, value in _shape(backoff).items():
                object.__setattr__(self, name, value)
        object.__setattr__(self, "kind", _chosen(Backoff, self.kind, "kind"))
        if self.jitter is not None:
            object.__setattr__(self, "jitter", _chosen(Jitter, self.jitter, "jitter"))
        object.__setattr__(self, "delays", tuple(self.delays))
        object.__setattr__(self, "not_retried", _names(self.not_retried))
        _check(self)

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> RetryPolicy:
        """Read what :meth:`to_json` wrote, or what a client sent; null stands for the default.

        Raises:
            InvalidRequest: an unknown field, or a value that is out of place in a known one.
        """
        known = [*(field.name for field in fields(cls)), "backoff"]
        for name in document:
            if name not in known:
                raise _refuse(name, document[name], "there is no such field", f"use {', '.join(known)}")
        given: dict[str, Any] = {name: _read(name, value) for name, value in document.items() if value is not None}
        return cls(**given)

    def to_json(self) -> dict[str, object]:
        """Write what differs from the default policy; durations as text."""
        return {
            field.name: _written(value)
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @property
    def budget(self) -> int:
        """How many attempts may fail in all; the last of them leaves the run dead."""
        return 1 if self.kind is Backoff.NONE else self.attempts

    @property
    def longest(self) -> timedelta:
        """The longest wait between two attempts."""
        if self.cap is not None:
            return self.cap
        return max(_USUAL_CAP, *self.delays) if self.kind is Backoff.LIST else max(_USUAL_CAP, self.base)

    def delay_after(self, failures: int, *, seed: str, asked: timedelta | None = None) -> timedelta:
        """Return the wait after the given number of failures: fixed for (seed, failures), in ``[0, longest]``.

        ``asked`` is what the task or its target wished for (``Retry-After``). It can lengthen the wait, up to
        ``longest`` and no further: the owner of the job outranks the server it calls.
        """
        assert failures >= 1, "nothing has failed yet"
        wait = min(self._nominal(failures), self.longest)
        jitter = self.jitter or (Jitter.FULL if self.kind is Backoff.EXPONENTIAL else Jitter.NONE)
        digest = blake2b(f"{seed}/{failures}".encode(), digest_size=8).digest()
        chance = int.from_bytes(digest, "big") / 2**64
        spread = max(wait * (1 - _SHARE[jitter] * chance), min(asked or _ZERO, self.longest))
        return -(-spread // _MILLISECOND) * _MILLISECOND  # instants are whole milliseconds; never before the time asked

    def refuses(self, names: Iterable[str]) -> bool:
        """Return whether an error is never retried: ``names`` are its type and the bases of it, with their modules."""
        return any(name in self.not_retried or name.rpartition(".")[2] in self.not_retried for name in names)

    def _nominal(self, failures: int) -> timedelta:
        try:
            match self.kind:
                case Backoff.NONE | Backoff.IMMEDIATE:
                    return _ZERO
                case Backoff.FIXED:
                    return self.base
                case Backoff.LINEAR:
                    return self.base * failures
                case Backoff.EXPONENTIAL:
                    return self.base * float(self.factor) ** (failures - 1)
                case Backoff.LIST:
                    return self.delays[min(failures, len(self.delays)) - 1]
                case _:
                    assert_never(self.kind)
        except OverflowError:
            return self.longest


def _shape(backoff: str) -> dict[str, Any]:
    """Read ``30s..1h`` (doubles from the one to the other), ``30s`` (fixed), ``10s, 1m``, ``none``, ``immediate``."""
    text = str(backoff).strip().lower()
    if text in (Backoff.NONE, Backoff.IMMEDIATE):
        return {"kind": Backoff(text)}
    if "," in text:
        return {"kind": Backoff.LIST, "delays": tuple(_duration(part.strip(), "backoff") for part in text.split(","))}
    base, dots, cap = text.partition("..")
    if dots:
        return {"kind": Backoff.EXPONENTIAL, "base": _duration(base, "backoff"), "cap": _duration(cap, "backoff")}
    return {"kind": Backoff.FIXED, "base": _duration(base, "backoff")}


def _check(policy: RetryPolicy) -> None:
    if type(policy.attempts) is not int or not 1 <= policy.attempts <= MOST_ATTEMPTS:
        raise _refuse("attempts", policy.attempts, "out of bounds", f"use a whole number from 1 to {MOST_ATTEMPTS}")
    if type(policy.factor) not in (int, float) or not 1 <= policy.factor <= 100:  # NaN is not between anything
        raise _refuse("factor", policy.factor, "out of bounds", "use a number from 1 to 100")
    for name, wait in (("base", policy.base), ("cap", policy.cap), ("max_age", policy.max_age)):
        if wait is not None and wait <= _ZERO:
            raise _refuse(name, wait, f"{wait} is no length of time", "use a length above 0")
        _check_wait(name, wait)
    for wait in policy.delays:
        _check_wait("delays", wait)
    if (policy.kind is Backoff.LIST) != bool(policy.delays):
        raise _refuse("delays", policy.delays, "delays and kind=list go together", "give both or neither")
    if len(policy.delays) > policy.attempts - 1:
        reason = f"{len(policy.delays)} delays, but {policy.attempts} attempts have {policy.attempts - 1} waits"
        raise _refuse("delays", policy.delays, reason, f"use attempts={len(policy.delays) + 1}, or fewer delays")
    asked = max(policy.delays) if policy.kind is Backoff.LIST else policy.base
    if policy.cap is not None and policy.cap < asked and policy.kind not in (Backoff.NONE, Backoff.IMMEDIATE):
        raise _refuse("cap", policy.cap, f"shorter than a wait of {format_duration(asked)}", "use that or more")


def _check_wait(name: str, wait: timedelta | None) -> None:
    if wait is not None and (not _ZERO <= wait <= LONGEST_WAIT or wait % _MILLISECOND):
        allowed = f"use whole milliseconds, up to {LONGEST_WAIT.days}d"
        raise _refuse(name, wait, f"{wait} is out of bounds", allowed)


def _names(value: object) -> tuple[str, ...]:
    match value:  # a bare text is no sequence here: its letters would match no error, in silence
        case [*names] if len(names) <= MOST_NAMES and all(isinstance(name, str) and name for name in names):
            return tuple(map(str, names))
    raise _refuse("not_retried", value, "not a list of names", f"use up to {MOST_NAMES} names of error types")


def _read(name: str, value: object) -> object:
    match name:
        case "base" | "cap" | "max_age":
            return _duration(value, name)
        case "delays":
            if not isinstance(value, list | tuple):
                raise _refuse(name, value, "not a list", "use a list of texts such as 30s")
            return tuple(_duration(delay, name) for delay in value)
    return value


def _written(value: object) -> object:
    match value:
        case timedelta():
            return format_duration(value)
        case StrEnum():
            return value.value
        case tuple():
            return [_written(each) for each in value]
    return value


def _duration(value: object, name: str) -> timedelta:
    if value == "0s":  # no length of time to a schedule, but a fine wait
        return _ZERO
    if not isinstance(value, str):
        raise _refuse(name, value, f"{value!r} is not a duration", "use a text such as 30s or 1h30m")
    return parse_duration(value, field=f"retry.{name}")


_Choice = TypeVar("_Choice", bound=StrEnum)


def _chosen(choices: type[_Choice], value: object, name: str) -> _Choice:
    try:
        return choices(str(value))
    except ValueError:
        raise _refuse(name, value, f'"{value}" is not a choice', f"use one of {', '.join(choices)}") from None


def _refuse(name: str, value: object, reason: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(reason, field=f"retry.{name}", value=value, allowed=allowed)
