"""The verbs on a ledger of its own for each test."""

import pytest

from mainspring.environment import SystemEnvironment
from mainspring.store.database import Database

from .ledger import Ledger


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return Ledger(db, SystemEnvironment())
