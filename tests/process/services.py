"""Programs from Debian that some tests need beside Postgres. Where one is missing they skip, and say what to do."""

import os
import pwd
import shutil
from pathlib import Path
from typing import Any

import pytest


def needed(program: str) -> str:
    """Return where the program is, or skip the test loudly. In CI a skip is a failure."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return found or missing(program)


def missing(package: str) -> Any:
    pytest.skip(f"{package} is not here: run `tools/services`, or `apt-get install {package}`, and test again")


def as_owner_of(path: Path) -> dict[str, Any]:
    """Return options for a process that must not be root's: it runs as the owner of ``path``."""
    owner = path.stat().st_uid
    if owner == os.geteuid():
        return {}
    return {"user": owner, "group": pwd.getpwuid(owner).pw_gid, "extra_groups": []}
