"""``mainspring cron``: what a schedule means, when it fires, and what to look out for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

import click

from mainspring.cli import render
from mainspring.cli.general import offline
from mainspring.cli.params import Duration, Instant
from mainspring.domain.errors import InvalidRequest, MainspringError
from mainspring.domain.fields import Dialect
from mainspring.domain.schedule import EPOCH, Schedule, Spec, parse_spec
from mainspring.domain.timetable import Dst, DstGap, DstOverlap
from mainspring.domain.zones import zone
from mainspring.insight.lint import lint as find_problems
from mainspring.insight.wording import explain as in_words

Command: TypeAlias = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The schedule on the command line, and the instant it is looked at from."""

    schedule: Schedule
    text: str
    dialect: Dialect
    since: datetime


def _schedule_options(command: Command) -> Command:
    """Add what every command of this group takes; it receives one ``Asked``."""

    def wrapped(
        *,
        expression: tuple[str, ...],
        dialect: str,
        tz: str,
        since: datetime | None,
        key: str | None,
        dst_gap: str,
        dst_overlap: str,
        exclude: tuple[str, ...],
        **rest: Any,
    ) -> None:
        text = _one_argument(expression)
        since = since or datetime.now(UTC)
        schedule = Schedule(
            specs=(parse_spec(text, Dialect(dialect), start=since.replace(microsecond=0)),),
            timezone=tz,
            dst=Dst(gap=DstGap(dst_gap), overlap=DstOverlap(dst_overlap)),
            exclude=tuple(_exclusion(left_out, Dialect(dialect), since) for left_out in exclude),
            key=key,
        )
        command(Asked(schedule=schedule, text=text, dialect=Dialect(dialect), since=since), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]  # click keeps its options there
    for option in reversed(
        (
            click.argument("expression", nargs=-1, required=True, metavar="EXPR"),
            click.option(
                "--dialect",
                type=click.Choice([dialect.value for dialect in Dialect]),
                default=Dialect.UNIX.value,
                show_default=True,
            ),
            click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="IANA time zone."),
            click.option("--from", "since", type=Instant(), help="Look from here on, exclusive.  [default: now]"),
            click.option("--key", help="The job's key: decides what H stands for."),
            click.option("--exclude", multiple=True, metavar="EXPR|DATE", help="Leave these slots out; repeatable."),
            click.option(
                "--dst-gap",
                type=click.Choice([gap.value for gap in DstGap]),
                default=DstGap.DEBIAN.value,
                show_default=True,
                help="A time that the clock leaves out.",
            ),
            click.option(
                "--dst-overlap",
                type=click.Choice([overlap.value for overlap in DstOverlap]),
                default=DstOverlap.DEBIAN.value,
                show_default=True,
                help="A time that the clock shows twice.",
            ),
        )
    ):
        wrapped = option(wrapped)
    return wrapped


def _one_argument(expression: tuple[str, ...]) -> str:
    if len(expression) > 1:
        raise InvalidRequest(
            f"came as {len(expression)} arguments",
            field="expression",
            value=" ".join(expression),
            allowed="quote it, so that the shell leaves its stars and blanks alone: '*/15 9-17 * * 1-5'",
        )
    return expression[0]


def _exclusion(text: str, dialect: Dialect, since: datetime) -> Spec | date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return parse_spec(text, dialect, start=since)


def _output_options(command: Command) -> Command:
    command = click.option("--json", "as_json", is_flag=True, help="The same as -o json.")(command)
    return click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)(
        command
    )


@click.group()
def cron() -> None:
    """Read, explain and check schedules. Needs no server.

    EXPR is a cron expression in quotes, '@every 90s', or 'RRULE:FREQ=...'.
    """


@cron.command("next")
@_schedule_options
@click.option("--count", "-n", type=click.IntRange(1, 100_000), default=10, show_default=True)
@_output_options
@offline
def next_slots(asked: Asked, *, count: int, output: str, as_json: bool) -> None:
    """List the next instants, in local time and UTC, with notes where the clock changes.

    \b
    mainspring cron next '30 2 * * *' --tz America/New_York --from 2027-03-12T12:00:00Z -n 4
    mainspring cron next '0 0 12 ? * 6L' --dialect quartz --json
    """
    slots = _upcoming(asked.schedule, asked.since, count)
    if as_json or output == "json":
        render.json([render.rfc3339(slot) for slot in slots])
    else:
        render.heading(in_words(asked.schedule))
        render.slots(asked.schedule, slots)


@cron.command()
@_schedule_options
@_output_options
@offline
def explain(asked: Asked, *, output: str, as_json: bool) -> None:
    """Say in one English sentence what a schedule means.

    \b
    mainspring cron explain '0 0 13 * 5'
    mainspring cron explain '0 0 12 LW * ?' --dialect quartz --tz Europe/Berlin
    """
    sentence = in_words(asked.schedule)
    if as_json or output == "json":
        coming = [render.rfc3339(slot) for slot in _upcoming(asked.schedule, asked.since, 5)]
        render.json({"expression": asked.text, "explanation": sentence, "next": coming})
    else:
        click.echo(sentence)


@cron.command()
@_schedule_options
@click.option(
    "--at-least-apart",
    type=Duration(),
    default="1m",
    show_default=True,
    help="Warn of slots that are closer together.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 if there is anything to report.")
@_output_options
@offline
def lint(asked: Asked, *, at_least_apart: timedelta, strict: bool, output: str, as_json: bool) -> None:
    """Warn of what is legal and probably not meant, with the dates concerned.

    \b
    mainspring cron lint '30 2 * * *' --tz America/New_York
    mainspring cron lint '*/7 * * * *' --strict
    """
    findings = find_problems(asked.schedule, now=asked.since, at_least_apart=at_least_apart)
    if as_json or output == "json":
        render.json(
            [
                {"name": finding.name, "reason": finding.reason, "dates": [render.rfc3339(at) for at in finding.dates]}
                for finding in findings
            ]
        )
    else:
        render.findings(findings)
    if strict and findings:
        sys.exit(1)


@cron.command()
@click.option(
    "--dialect",
    type=click.Choice([dialect.value for dialect in Dialect]),
    default=Dialect.UNIX.value,
    show_default=True,
)
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="IANA time zone to begin with.")
@offline
def play(dialect: str, tz: str) -> None:
    """Try schedules out: type one, see what it means, when it fires and what to look out for.

    \b
    mainspring cron play --tz Europe/Paris
    """
    Playground(Dialect(dialect), tz).run()


class Playground:
    """A prompt around the three commands, with a few schedules to begin with."""

    EXAMPLES = (
        ("30 2 * * *", Dialect.UNIX, "America/New_York"),
        ("*/15 9-17 * * MON-FRI", Dialect.UNIX, "Europe/London"),
        ("0 0 12 ? * 6L", Dialect.QUARTZ, "Australia/Lord_Howe"),
    )

    def __init__(self, dialect: Dialect, tz: str) -> None:
        self._dialect = dialect
        self._tz = zone(tz).key

    def run(self) -> None:
        click.echo("Mainspring schedules: type a cron expression, or one of")
        click.echo("  tz ZONE   dialect unix|quartz   examples   quit\n")
        self._examples()
        while True:
            try:
                line = input(f"{self._dialect} {self._tz}> ").strip()
            except (EOFError, KeyboardInterrupt):
                click.echo()
                return
            if line in ("quit", "exit", "q"):
                return
            if line:
                self._answer(line)

    def _answer(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        try:
            match word:
                case "tz":
                    self._tz = zone(rest.strip()).key
                case "dialect" if rest.strip() in list(Dialect):
                    self._dialect = Dialect(rest.strip())
                case "examples":
                    self._examples()
                case _:
                    self._show(line, self._dialect, self._tz)
        except MainspringError as error:
            click.echo(f"error: {error}")

    def _examples(self) -> None:
        for text, dialect, tz in self.EXAMPLES:
            click.echo(f"{dialect} {tz}> {text}")
            self._show(text, dialect, tz)

    def _show(self, text: str, dialect: Dialect, tz: str) -> None:
        now = datetime.now(UTC)
        schedule = Schedule(specs=(parse_spec(text, dialect, start=EPOCH),), timezone=tz, key="playground")
        render.heading(in_words(schedule))
        render.slots(schedule, _upcoming(schedule, now, 5))
        render.findings(find_problems(schedule, now=now))
        click.echo()


def _upcoming(schedule: Schedule, since: datetime, count: int) -> list[datetime]:
    return schedule.between(since + timedelta(milliseconds=1), datetime(9999, 12, 31, tzinfo=UTC), count)
