"""Sealing: what is kept in the database and is nobody's to read there, under a key that is not in the database.

Promise. AES-256-GCM with a random nonce for every value. Tenant, name, version and key belong to what is sealed: a row
that somebody moved to another tenant or name, or set back to an older version, does not open.

Not promised. Whoever has the key and the database has everything; so the key is named in the settings, never in them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mainspring.domain.errors import InvalidRequest

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12  # what GCM is made for; random, good for 2³² values under one key
_LONGEST_OWN: Final = 64 << 10
_USE_A_KEY: Final = f"name one that holds {KEY_BYTES} random bytes as base64, such as: openssl rand -base64 {KEY_BYTES}"


class CannotOpen(InvalidRequest):
    """What is sealed does not open: its key is not here, or it is not what was sealed."""

    code = "cannot_open"


@dataclass(frozen=True, slots=True)
class Label:
    """What a sealed value is, and has to be when it is opened."""

    tenant: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value that only its key opens, and which key that is."""

    key_id: str
    nonce: bytes
    sealed: bytes = field(repr=False)


class Sealer:
    """Seals with one key, and opens with that one and older ones."""

    def __init__(self, key: bytes, also_open_with: Sequence[bytes] = ()) -> None:
        """Take keys of 32 bytes each.

        Raises:
            InvalidRequest: one has another length.
        """
        for each in (key, *also_open_with):
            if len(each) != KEY_BYTES:
                raise _no_key("secrets.seal_with", f"{len(each)} bytes are no key")
        self.key_id = key_id(key)
        self._keys = {key_id(each): each for each in (*also_open_with, key)}

    def __repr__(self) -> str:
        return f"Sealer({', '.join(self._keys)})"

    def seal(self, value: str, label: Label) -> Sealed:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - 30 ms, and most never seal

        nonce = os.urandom(NONCE_BYTES)
        sealed = AESGCM(self._keys[self.key_id]).encrypt(nonce, value.encode(), _bound_to(label, self.key_id))
        return Sealed(self.key_id, nonce, sealed)

    def open(self, sealed: Sealed, label: Label) -> str:
        """Return what was sealed under this label.

        Raises:
            CannotOpen: by none of our keys, or not under this label. The message has nothing of the value in it.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        key = self._keys.get(sealed.key_id)
        if key is None:
            allowed = "name that key in secrets.also_open_with, or put the secret anew"
            raise _closed(label, f"it is sealed with the key {sealed.key_id}, which is not here", allowed)
        try:
            return AESGCM(key).decrypt(sealed.nonce, sealed.sealed, _bound_to(label, sealed.key_id)).decode()
        except (InvalidTag, ValueError):
            allowed = "it was changed or moved in the database; put the secret anew"
            raise _closed(label, "it is not what was sealed under this name", allowed) from None


def key_id(key: bytes) -> str:
    """Return what a key is called where it must not be shown."""
    return hashlib.sha256(key).hexdigest()[:8]


def read_sealer(seal_with: str | None, also_open_with: Sequence[str], variables: Mapping[str, str]) -> Sealer:
    """Make a sealer of the keys that settings name.

    Raises:
        InvalidRequest: none is named, or one is not there, or is no key.
    """
    if seal_with is None:
        allowed = "name a key, env:NAME or file:/path, for everybody who puts or uses secrets"
        raise InvalidRequest("no key is set", field="secrets.seal_with", value=None, allowed=allowed)
    older = [_read_key(each, "secrets.also_open_with", variables) for each in also_open_with]
    return Sealer(_read_key(seal_with, "secrets.seal_with", variables), older)


def own_secret(reference: str, variables: Mapping[str, str], *, field: str) -> str:
    """Return a secret of the operator's own, ``env:NAME`` or ``file:/path``, which no job can name.

    Raises:
        InvalidRequest: it is not there.
    """
    scheme, _, where = reference.partition(":")
    value = ""
    if scheme == "env":
        value = variables.get(where, "")
    elif scheme == "file":
        try:
            with Path(where).open("rb") as file:
                value = file.read(_LONGEST_OWN).decode()
        except (OSError, ValueError):
            value = ""
    if not value.strip():
        allowed = "set the variable, or name a file that this process can read"
        raise InvalidRequest(f'"{reference}" has nothing in it', field=field, value=reference, allowed=allowed)
    return value.strip()


def _read_key(reference: str, field: str, variables: Mapping[str, str]) -> bytes:
    text = own_secret(reference, variables, field=field)
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise _no_key(field, f'"{reference}" is no key')
    return key


def _no_key(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(reason, field=field, value="***", allowed=_USE_A_KEY)


def _closed(label: Label, reason: str, allowed: str) -> CannotOpen:
    return CannotOpen(reason, field=f"secrets.{label.name}", value="***", allowed=allowed)


def _bound_to(label: Label, key: str) -> bytes:
    return json.dumps([label.tenant, label.name, label.version, key]).encode()  # JSON: no two labels read the same
