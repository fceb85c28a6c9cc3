"""A check: one promise that every engine keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mainspring.testing.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: its name is the claim, ``covers`` the failures of the catalogue it answers for."""

    name: str
    run: Callable[[Cluster], Awaitable[None]]
    covers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name
