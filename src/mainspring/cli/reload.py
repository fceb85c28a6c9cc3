"""``--reload``: a child process that is stopped and started again when its code changes."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

_LOOK_EVERY: Final = 0.3
_GRACE: Final = 10


def reloading(modules: Sequence[str], options: Sequence[str]) -> int:
    """Run ``mainspring dev`` on modules until interrupted; return its exit status."""
    command = [sys.executable, "-m", "mainspring", "dev", *modules, *options]
    roots = list(_roots(modules))
    child, seen = subprocess.Popen(command), _stamps(roots)  # noqa: S603 - our own command line
    try:
        while True:
            time.sleep(_LOOK_EVERY)
            now = _stamps(roots)
            if now != seen:
                changed = sorted(path.name for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))
                click.secho(f"\n{', '.join(changed)} changed: starting again", fg="cyan")
                _stop(child, signal.SIGTERM)
                child, seen = subprocess.Popen(command), now  # noqa: S603 - as above
            elif child.poll() not in (None, 0) and now == seen:
                click.secho("waiting for a change of the code", fg="yellow", err=True)
                seen = _changed(roots, seen)
                child = subprocess.Popen(command)  # noqa: S603 - as above
            elif child.poll() == 0:
                return 0
    except KeyboardInterrupt:
        _stop(child, signal.SIGINT)  # from a terminal it has one already, and would take a second as an order
        return 0
    finally:
        _stop(child, signal.SIGKILL)


def _changed(roots: Sequence[Path], seen: dict[Path, int]) -> dict[Path, int]:
    while (now := _stamps(roots)) == seen:
        time.sleep(_LOOK_EVERY)
    return now


def _stop(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if child.poll() is not None:
        return
    if number is not signal.SIGINT:
        child.send_signal(number)
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _roots(modules: Sequence[str]) -> Iterator[Path]:
    """Give what to watch: the file of a module, and all of the package it is in."""
    for name in modules:
        if name.endswith(".py"):
            yield Path(name).resolve().parent
            continue
        top = name.partition(".")[0]
        sys.path.insert(0, str(Path.cwd()))
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            yield origin.parent if origin.name == "__init__.py" else origin


def _stamps(roots: Sequence[Path]) -> dict[Path, int]:
    files = (file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py")))
    stamps = {}
    for file in files:
        try:
            stamps[file] = file.stat().st_mtime_ns
        except OSError:  # gone again, as editors do it
            continue
    return stamps
