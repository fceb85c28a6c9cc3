"""Who may import whom. The table is the architecture; a new edge in it is a decision."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# package: (packages of ours it may import, foreign packages it may import)
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "domain": (set(), {"tzdata"}),
    "environment": ({"domain"}, set()),
    "telemetry": ({"domain"}, set()),
    "sealing": ({"domain"}, {"cryptography"}),
    "service": ({"domain", "environment", "telemetry"}, {"uvloop"}),
    "tasks": ({"domain"}, {"msgspec"}),
    "store": ({"domain", "environment", "sealing", "service", "telemetry"}, {"asyncpg"}),
    "engines": ({"domain", "service", "telemetry"}, set()),
    "upkeep": ({"domain", "environment", "service", "store", "telemetry"}, set()),
    "worker": ({"domain", "environment", "service", "store", "tasks", "telemetry"}, {"aiohttp", "msgspec"}),
    "embedded": ({"domain"}, set()),
    "config": ({"domain"}, set()),
    "demo": ({"domain", "tasks"}, set()),
    "http": ({"domain"}, set()),
    "insight": ({"domain", "store"}, set()),
    "rest": ({"domain", "http"}, {"msgspec"}),
    "sdk": (
        {"domain", "embedded", "environment", "insight", "rest", "store", "tasks"},
        {"aiohttp", "msgspec", "yarl"},
    ),
    "api": (
        {
            "config",
            "domain",
            "environment",
            "http",
            "insight",
            "rest",
            "sdk",
            "sealing",
            "service",
            "store",
            "telemetry",
        },
        {"aiohttp", "httptools", "jwt", "msgspec", "prometheus_client", "redis"},
    ),
    "testing": (
        {"domain", "engines", "environment", "insight", "service", "store", "tasks", "telemetry", "upkeep", "worker"},
        set(),
    ),
    "roles": (
        {
            "api",
            "config",
            "domain",
            "embedded",
            "engines",
            "environment",
            "insight",
            "rest",
            "sealing",
            "service",
            "store",
            "tasks",
            "telemetry",
            "upkeep",
            "worker",
        },
        set(),
    ),
    "cli": (
        {
            "config",
            "domain",
            "embedded",
            "environment",
            "http",
            "insight",
            "rest",
            "roles",
            "sdk",
            "service",
            "tasks",
            "telemetry",
            "worker",
        },
        {"click", "msgspec", "rich"},
    ),
}


def modules() -> list[Path]:
    return sorted((SRC / "mainspring").rglob("*.py"))


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            assert node.module is not None
            if node.module == "mainspring":
                yield from (f"mainspring.{alias.name}" for alias in node.names)
            else:
                yield node.module


def package_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("module", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_a_module_imports_only_what_its_package_may(module: Path) -> None:
    package = module.relative_to(SRC / "mainspring").parts[0].removesuffix(".py")
    if package in ("__init__", "__main__"):
        return
    ours, foreign = ALLOWED[package]

    for name in imported(module):
        root = name.split(".", maxsplit=1)[0]
        if root == "mainspring":
            assert package_of(name) in {package, *ours}, f"{package} may not import {name}"
        elif root not in sys.stdlib_module_names:
            assert root in foreign, f"{package} may not import {name}"


def test_the_table_knows_every_package() -> None:
    found = {path.stem for path in (SRC / "mainspring").iterdir() if path.is_dir() or path.suffix == ".py"}

    assert found - {"__init__", "__main__", "__pycache__"} == set(ALLOWED)


@pytest.mark.parametrize("forbidden", ["time", "random", "socket", "threading", "asyncio", "os", "logging"])
def test_the_domain_is_pure(forbidden: str) -> None:
    for module in modules():
        if module.parent.name == "domain":
            assert forbidden not in {name.split(".")[0] for name in imported(module)}, module
