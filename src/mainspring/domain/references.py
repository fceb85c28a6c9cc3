"""References to secrets: what a payload says in place of a value, and where in it.

``{"$secret": "env:SMTP_PASSWORD"}`` may stand wherever a value may, at any depth. It stands alone: an object that has
more in it than the reference is no reference, and refused, rather than passed on with a secret missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from mainspring.domain.errors import InvalidRequest

Json: TypeAlias = Any

KEY: Final = "$secret"
SCHEMES: Final = ("env", "file", "store", "vault")
EXAMPLE: Final = '{"$secret": "env:NAME"}'

_REFERENCE: Final = re.compile(rf"(?:{'|'.join(SCHEMES)}):[!-~]{{1,500}}", re.ASCII)


def is_reference(value: Json) -> bool:
    """Say whether a value is the text of a reference.

    >>> is_reference("env:SMTP_PASSWORD"), is_reference("hunter2")
    (True, False)
    """
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def reference_in(value: Json) -> str | None:
    """Return the reference that a value is, or None.

    >>> reference_in({"$secret": "env:SMTP_PASSWORD"})
    'env:SMTP_PASSWORD'
    """
    if isinstance(value, dict) and len(value) == 1 and is_reference(reference := value.get(KEY)):
        return str(reference)
    return None


def names_secret(value: Json) -> bool:
    """Say whether a payload names a secret anywhere, well or badly."""
    todo = [value]
    while todo:
        here = todo.pop()
        if isinstance(here, dict):
            if KEY in here:
                return True
            todo += here.values()
        elif isinstance(here, list):
            todo += here
    return False


def references_in(value: Json) -> Iterator[str]:
    """Yield every reference in a payload, as often as it is there.

    Raises:
        InvalidRequest: something stands where a reference should. It is not repeated: it may be the secret itself.
    """
    todo = [value]
    while todo:
        here = todo.pop()
        if isinstance(here, list):
            todo += here
        elif isinstance(here, dict):
            reference = reference_in(here)
            if reference is not None:
                yield reference
            elif KEY in here:
                allowed = f"use {EXAMPLE}, with nothing beside it, or one of {', '.join(SCHEMES)}"
                raise InvalidRequest("this is no reference to a secret", field=KEY, value="***", allowed=allowed)
            else:
                todo += here.values()


def with_secrets(value: Json, secrets: Mapping[str, str]) -> Json:
    """Return a payload with the values in place of its references.

    >>> with_secrets({"to": ["ops"], "password": {"$secret": "env:P"}}, {"env:P": "0451"})
    {'to': ['ops'], 'password': '0451'}
    """
    reference = reference_in(value)
    if reference is not None:
        return secrets[reference]
    if isinstance(value, dict):
        return {name: with_secrets(each, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [with_secrets(each, secrets) for each in value]
    return value
