"""Every named query is used, and every use exists: ``store/x.py`` uses ``store/sql/x.sql``."""

import re
from pathlib import Path

from mainspring.store.queries import queries

STORE = Path(__file__).parents[2] / "src" / "mainspring" / "store"
DEFINED = {(path.stem, name) for path in (STORE / "sql").glob("*.sql") for name in queries(path.stem)}


def used() -> set[tuple[str, str]]:
    found = set()
    for path in STORE.parent.rglob("*.py"):
        source = path.read_text("utf-8")
        aliases = dict(re.findall(r'^(\w+) = queries\("(\w+)"\)$', source, re.MULTILINE))
        for alias, name in re.findall(r'\b(_[A-Z]+)\["(\w+)"\]', source):
            if alias in aliases:
                found.add((aliases[alias], name))
        found |= set(re.findall(r'queries\("(\w+)"\)\["(\w+)"\]', source))
    return found


def test_every_named_query_is_used() -> None:
    assert DEFINED - used() == set()


def test_every_use_of_a_query_exists() -> None:
    assert used() - DEFINED == set()


def test_every_module_with_sql_loads_its_own_file() -> None:
    for path in (STORE / "sql").glob("*.sql"):
        assert f'_SQL = queries("{path.stem}")' in (STORE / f"{path.stem}.py").read_text("utf-8")
