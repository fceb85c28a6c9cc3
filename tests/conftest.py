"""What every test folder shares: a database, the matrix of failure ids, hypothesis profiles, no silent skips in CI."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .postgres import db, dsn, server, template
from .redis import redis_server

__all__ = ["db", "dsn", "redis_server", "server", "template"]  # fixtures, for every folder that asks for one

# Ids of the failure catalogue that this release answers for. Each needs a passing test marked `covers`.
DUE = tuple((Path(__file__).parent / "failure_ids.txt").read_text().split())

settings.register_profile(
    "mainspring",
    max_examples=int(os.environ.get("MAINSPRING_EXAMPLES", "200")),
    deadline=None,  # timings never gate the suite
    derandomize=True,  # the same examples for everyone; `make test-all` only draws more of them
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mainspring")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--matrix", action="store_true", help="print which failure ids are covered; fail if a due one is not"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Matrix(config), "failure-matrix")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("covers"):
            item.user_properties += [
                ("covers", identity) for identity in mark.args
            ]  # travels with reports, also from xdist


class Matrix:
    """Collects, from the reports, which ids have a passing test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed: dict[str, set[str]] = defaultdict(set)
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._skipped.append(report.nodeid)
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                if name == "covers":
                    self._passed[str(value)].add(report.nodeid.split("[")[0])

    @property
    def _missing(self) -> list[str]:
        return [identity for identity in DUE if identity not in self._passed]

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        if hasattr(session.config, "workerinput"):
            return
        failed = bool(os.environ.get("CI")) and self._skipped
        if self._config.getoption("--matrix") and (failed or self._missing) and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._config.getoption("--matrix"):
            return
        terminalreporter.section("failure ids covered")
        for identity in sorted(self._passed, key=lambda name: (name[0], int(name[1:]))):
            tests = self._passed[identity]
            terminalreporter.write_line(f"{identity:5} {len(tests):2}  {', '.join(sorted(tests))}")
        if self._missing:
            terminalreporter.write_line(f"without a passing test: {', '.join(self._missing)}", red=True)
        if os.environ.get("CI") and self._skipped:
            terminalreporter.write_line(f"skipped, which CI does not allow: {', '.join(self._skipped)}", red=True)
