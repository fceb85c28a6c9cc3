"""What tokens and key sets have in common: one strict reading of their text, and keys that are good for one algorithm.

Strict means that each value has one spelling: no padding, no stray bits, no name twice, no NaN. Two readers can then
not disagree about what a signature covers.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jwt
from jwt.exceptions import PyJWTError

from mainspring.config.settings import AuthSettings
from mainspring.config.values import HMAC_ALGORITHMS, TokenKey
from mainspring.domain.errors import InvalidRequest

_LONGEST_FILE: Final = 64 << 10
_RSA_BITS: Final = range(2048, 8192 + 1)  # less is too weak, more makes a signature slow enough to be used against us


class NotStrict(ValueError):
    """A text that is not what it should be, or could be read in two ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyingKey:
    """A key and the one algorithm it is for; compared by its digest."""

    kid: str | None  # None: it goes by no name, and counts only while it is alone
    algorithm: str
    digest: bytes
    material: Any = field(compare=False, repr=False)  # as PyJWT prepared it

    def verifies(self, signed: bytes, signature: bytes) -> bool:
        try:
            return bool(jwt.get_algorithm_by_name(self.algorithm).verify(signed, self.material, signature))
        except (PyJWTError, ValueError, TypeError):
            return False


def unpadded(text: str) -> bytes:
    """Read base64url without padding, in its one canonical spelling.

    Raises:
        NotStrict: it is none, or another text would give the same bytes.
    """
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise NotStrict("no base64url") from None
    if base64.urlsafe_b64encode(content).rstrip(b"=") != text.encode("ascii"):
        raise NotStrict("two spellings of the same bytes")
    return content


def read_object(content: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        NotStrict: it is none, is too deep, or has a name twice, anywhere in it.
    """
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NotStrict("no JSON, or not strictly") from error
    if not isinstance(value, dict):
        raise NotStrict("no object")
    return value


def keys_of_settings(auth: AuthSettings, environ: Mapping[str, str]) -> dict[str | None, VerifyingKey]:
    """Return the keys that ``auth.keys`` names, by their id.

    Raises:
        InvalidRequest: one cannot be read, is too weak, or is not for its algorithm.
    """
    return {key.kid: _read(key, environ) for key in auth.keys}


def from_jwk(jwk: Mapping[str, Any], algorithm: str) -> VerifyingKey:
    """Return the public key of a JWK, for ``algorithm``.

    Raises:
        NotStrict: it is none, is too weak, or is not for this algorithm.
    """
    kid = jwk.get("kid")
    try:
        material = jwt.PyJWK(dict(jwk), algorithm=algorithm).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotStrict("no public key") from error
    if reason := _unfit(material, algorithm):
        raise NotStrict(reason)
    digest = sha256(json.dumps(jwk, sort_keys=True).encode()).digest()
    return VerifyingKey(
        kid=kid if isinstance(kid, str) and kid else None, algorithm=algorithm, digest=digest, material=material
    )


def _read(key: TokenKey, environ: Mapping[str, str]) -> VerifyingKey:
    where = "auth.keys"
    if key.secret is not None:
        content, allowed = _secret(key.secret, environ), f'set {key.secret}, the secret of "{key.kid}"'
    else:
        assert key.public_key_file is not None
        content, allowed = _file(key.public_key_file), f"put the public key, as PEM, into {key.public_key_file}"
    if not content:
        raise InvalidRequest(f'the key "{key.kid}" cannot be read', field=where, value=key.kid, allowed=allowed)
    material: Any = None
    try:
        material = jwt.get_algorithm_by_name(key.algorithm).prepare_key(content)
        reason = _unfit(material, key.algorithm)
    except (PyJWTError, ValueError, TypeError):  # the error itself may show the key
        reason = f"it is no key for {key.algorithm}"
    if reason:
        raise InvalidRequest(f'the key "{key.kid}": {reason}', field=where, value=key.kid, allowed=allowed)
    return VerifyingKey(kid=key.kid, algorithm=key.algorithm, digest=sha256(content).digest(), material=material)


def _unfit(material: Any, algorithm: str) -> str | None:
    """Return why a key is not to be used with its algorithm, or None. PyJWT has looked at type and curve already."""
    if algorithm in HMAC_ALGORITHMS:
        needed = int(algorithm[2:]) // 8  # RFC 7518, 3.2: as long as the hash
        return f"a secret for {algorithm} has at least {needed} bytes" if len(material) < needed else None
    if hasattr(material, "private_bytes"):
        return "it is a private key, which belongs only to whoever signs"
    if algorithm[:2] in ("RS", "PS") and material.key_size not in _RSA_BITS:
        return f"an RSA key has {_RSA_BITS[0]} to {_RSA_BITS[-1]} bits"
    return None


def _secret(reference: str, environ: Mapping[str, str]) -> bytes | None:
    scheme, _, rest = reference.partition(":")
    return environ.get(rest, "").encode() if scheme == "env" else _file(Path(rest))


def _file(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_FILE + 1)
    except OSError:
        return None
    return content.rstrip(b"\r\n") if len(content) <= _LONGEST_FILE else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise NotStrict("a name stands there twice")
    return read


def _no_constant(name: str) -> None:
    raise NotStrict(f"{name} is no JSON")
