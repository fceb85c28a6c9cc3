"""The command line in process, on a ledger of its own; what workers would do is done by hand."""

import asyncio
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mainspring.cli.main import main
from mainspring.domain.settling import ErrorInfo, Failed, Outcome
from mainspring.environment import SystemEnvironment
from mainspring.store.database import open_database
from tests.store.ledger import Ledger

T = TypeVar("T")
BROKEN = Failed(error=ErrorInfo(type="shop.Broken", message="no stock", traceback="Traceback: line 7"))


@dataclass(frozen=True)
class Said:
    """What a command wrote, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def items(self) -> Any:
        return self.json["items"]


class Terminal(io.StringIO):
    """Somebody who sits there and types."""

    def isatty(self) -> bool:
        return True


class Shell:
    """Runs commands as a shell would: one line of errors, a status, and never a traceback."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def __call__(self, *arguments: str, stdin: io.StringIO | None = None) -> Said:
        out, err = io.StringIO(), io.StringIO()
        was = sys.argv, sys.stdin
        sys.argv, sys.stdin = ["mainspring", *arguments], stdin or io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    main()
                    status = 0
                except SystemExit as end:
                    status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.argv, sys.stdin = was
        assert "Traceback (most recent call last)" not in err.getvalue()
        return Said(status, out.getvalue(), err.getvalue())

    def good(self, *arguments: str) -> Said:
        said = self(*arguments)
        assert said.status == 0, said.err
        return said

    def json(self, *arguments: str) -> Any:
        return self.good(*arguments, "-o", "json").json

    def refused(self, *arguments: str, status: int, because: str) -> None:
        said = self(*arguments)
        assert (said.status, said.out) == (status, ""), said
        assert said.err.startswith("error: ")
        assert because in said.err

    def ledger(self, use: Callable[[Ledger], Awaitable[T]]) -> T:
        """Do something to the ledger that no command does."""

        async def run() -> T:
            async with open_database(self.dsn) as db:
                return await use(Ledger(db, SystemEnvironment()))

        return asyncio.run(run())

    def work(self, outcome: Outcome | None = None) -> list[str]:
        """Do what a worker would with all that is ready; return the runs."""

        async def use(ledger: Ledger) -> list[str]:
            runs = await ledger.claim(await ledger.node())
            await ledger.settle(runs, outcome)
            return [str(run.id) for run in runs]

        return self.ledger(use)

    def given_job(self, name: str = "nightly", *options: str) -> Any:
        """Write a job that runs when asked."""
        return self.json("jobs", "put", name, "--on-demand", "--task", "noop", "--overlap", "allow", *options)

    def given_dead(self, number: int = 1, job: str = "etl") -> list[str]:
        """Let runs of a job fail for good."""
        self.given_job(job, "--retry", "1", "--payload", '{"day": 1}')
        for _ in range(number):
            self.good("jobs", "trigger", job)
        return self.work(BROKEN)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without settings, and no variable of ours."""
    for name in list(os.environ):
        if name.startswith("MAINSPRING_") or name in ("FORCE_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(dsn: str, surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    del surroundings
    monkeypatch.setenv("MAINSPRING_DSN", dsn)
    return Shell(dsn)


@pytest.fixture
def nowhere(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """No database at all: what is refused here is refused before anybody is asked."""
    del surroundings
    monkeypatch.setenv("MAINSPRING_DSN", "postgresql://nobody@127.0.0.1:1/none")
    return Shell("")
