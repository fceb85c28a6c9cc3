"""Loading: which tasks a worker knows. Only what is registered can run: no caller names code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mainspring.domain.errors import InvalidRequest
from mainspring.tasks.hooks import Hook, Resource
from mainspring.tasks.task import Task, task

_HERE: Final = "."


class Registry:
    """Tasks by name, and what they share."""

    def __init__(self, tasks: Iterable[Task[..., Any]] = (), *, modules: Sequence[str] = ()) -> None:
        self.modules = tuple(modules)  # where they come from: a child process imports the same
        self._tasks: dict[str, Task[..., Any]] = {}
        self.resources: dict[str, Resource] = {}
        self.hooks: list[Hook] = []
        for each in tasks:
            self.register(each)

    def register(self, added: Task[..., Any]) -> None:
        """Add a task; the same one twice is no harm.

        Raises:
            InvalidRequest: another task has that name.
        """
        known = self._tasks.setdefault(added.name, added)
        if known.function is not added.function:
            places = " and ".join(f"{each.function.__module__}.{each.function.__qualname__}" for each in (known, added))
            reason = f'"{added.name}" is the name of two tasks, {places}'
            raise InvalidRequest(reason, field="task", value=added.name, allowed="give one of them a name of its own")

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Register a function under a name, with every option at its default."""
        self.register(task(name=name)(function))

    def get(self, name: str) -> Task[..., Any]:
        return self._tasks[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks))


def load(modules: Sequence[str]) -> Registry:
    """Import modules and register the tasks found in their namespaces.

    A module is a dotted name, as in ``shop.tasks``, or a file, as in ``tasks.py``. The current directory is searched.

    Raises:
        InvalidRequest: there is no such module, it cannot be imported, or it has no task.
    """
    registry = Registry(modules=modules)
    for name in modules:
        values = list(vars(_imported(name)).values())
        found = [value for value in values if isinstance(value, Task)]
        registry.resources |= {value.name: value for value in values if isinstance(value, Resource)}
        registry.hooks += [value for value in values if isinstance(value, Hook) and value not in registry.hooks]
        if not found:
            reason = f'"{name}" has no task'
            allowed = "decorate a function in it with @task, or import one there"
            raise InvalidRequest(reason, field="module", value=name, allowed=allowed)
        for each in found:
            registry.register(each)
    return registry


def _imported(name: str) -> Any:
    dotted = name
    if name.endswith(".py"):
        dotted, folder = Path(name).stem, str(Path(name).parent.resolve())
        if not Path(name).is_file():
            allowed = "name one that exists"
            raise InvalidRequest(f'there is no file "{name}"', field="module", value=name, allowed=allowed)
        sys.path.insert(0, folder)
    elif _HERE not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(dotted)
    except InvalidRequest:
        raise  # an option of a task in it
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name is not None
        if missing and (dotted == error.name or dotted.startswith(f"{error.name}.")):
            reason, allowed = (
                f'there is no module "{dotted}" here',
                "start where it can be imported, or name a .py file",
            )
        else:
            reason, allowed = f'"{name}" cannot be imported: {error}', "install what it needs"
        raise InvalidRequest(reason, field="module", value=name, allowed=allowed) from error
    except Exception as error:
        reason = f'"{name}" cannot be imported: {type(error).__name__}: {error}'
        raise InvalidRequest(reason, field="module", value=name, allowed="mend it, then try again") from error
