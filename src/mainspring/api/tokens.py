"""Tokens: JWTs that somebody else signed, and that say who is asking.

Promise. A token counts only if a key we were given signed it, with the one algorithm that this key is for, and if it
was made for us, by the issuer we trust, for this moment and not for long. Whoever sends a bad one learns a coarse word
(``expired``, ``malformed``, …), and about our keys nothing. What a token claims is looked at after its signature.

By what. The text is taken apart once, and strictly (see jose.py); PyJWT does the cryptography on exactly those bytes,
so there are no two readers to disagree. A key is found by its id alone. The algorithm that the header names has to be
the key's: it never chooses anything. A header that brings a key, or says where one is, is refused.

Verified tokens are remembered by their hash, so that it does not matter how slow a signature is. One counts as long as
its key is in force; its times are looked at every time.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from mainspring.api.jose import NotStrict, VerifyingKey, read_object, unpadded
from mainspring.config.settings import AuthSettings
from mainspring.domain.access import CLUSTER_KEY, DEFAULT_TENANT, KEY, Principal, read_role
from mainspring.domain.errors import InvalidRequest, Unauthenticated
from mainspring.environment import Environment

LONGEST: Final = 8 << 10  # of the text
MOST_REMEMBERED: Final = 10_000
_LONGEST_NAME: Final = 255  # of a subject or a tenant
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_BRINGS_A_KEY: Final = frozenset({"jku", "jwk", "x5u", "x5c"})
_CHANGES_THE_MEANING: Final = frozenset({"crit", "b64", "zip", "enc", "cty"})
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_FAR: Final = 1e11  # seconds: the year 5138, and far below where numbers lose their seconds


class KeySource(Protocol):
    """Where keys come from."""

    def keys(self) -> Mapping[str | None, VerifyingKey]:
        """Return the keys in force now, by their id."""

    async def missed(self) -> None:
        """Look again, unless that was a moment ago: somebody came with a key id that is not there."""


@dataclass(frozen=True, slots=True)
class FixedKeys:
    """Keys of the settings: they stay as they are."""

    found: Mapping[str | None, VerifyingKey]

    def keys(self) -> Mapping[str | None, VerifyingKey]:
        return self.found

    async def missed(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What has to be in a token."""

    issuer: str
    audience: str
    leeway: timedelta = timedelta(seconds=10)  # between our clock and the issuer's
    longest: timedelta = timedelta(days=1)  # from nbf to exp
    tenant_claim: str = "tenant"
    role_claim: str = "role"
    cluster_claim: str = "cluster"


def token_rules(auth: AuthSettings) -> TokenRules:
    """Return the rules that the settings make.

    Raises:
        InvalidRequest: issuer or audience is missing: a token made for anybody else would do.
    """
    if auth.issuer is None or auth.audience is None:
        name = "auth.issuer" if auth.issuer is None else "auth.audience"
        allowed = f"set {name} to what your tokens say, or take the keys away"
        raise InvalidRequest("it is not set, and there are keys", field=name, value=None, allowed=allowed)
    return TokenRules(
        issuer=auth.issuer,
        audience=auth.audience,
        leeway=auth.leeway,
        longest=auth.longest_token,
        tenant_claim=auth.tenant_claim,
        role_claim=auth.role_claim,
        cluster_claim=auth.cluster_claim,
    )


class _Verified(NamedTuple):
    kid: str | None
    key: VerifyingKey
    not_before: float
    expires: float
    principal: Principal


class Tokens:
    """Checks tokens, and remembers the good ones."""

    def __init__(
        self, rules: TokenRules, *sources: KeySource, environment: Environment, most: int = MOST_REMEMBERED
    ) -> None:
        self._rules = rules
        self._sources = sources
        self._environment = environment
        self._most = most
        self._remembered: OrderedDict[bytes, _Verified] = OrderedDict()

    def __len__(self) -> int:
        return len(self._remembered)

    async def principal(self, token: str) -> Principal:
        """Return whom a token speaks for.

        Raises:
            Unauthenticated: it does not count, for the reason it names.
        """
        if len(token) > LONGEST or not _FORM.fullmatch(token):
            raise refused("malformed")
        digest = sha256(token.encode("ascii")).digest()
        known = self._remembered.pop(digest, None)
        if known is not None and self._find(known.kid) == known.key:
            self._check_times(known.not_before, known.expires)
        else:  # new, or its key was taken away meanwhile
            try:
                known = await self._verified(token)
            except NotStrict:
                raise refused("malformed") from None
        self._remembered[digest] = known  # at the end: the first is the one that was not used for longest
        if len(self._remembered) > self._most:
            self._remembered.popitem(last=False)
        return known.principal

    async def _verified(self, token: str) -> _Verified:
        signed, _, signature = token.rpartition(".")
        head, _, body = signed.partition(".")
        header, content, signature_bytes = read_object(unpadded(head)), unpadded(body), unpadded(signature)
        kid = _kid(header)
        key = self._find(kid)
        if key is None:
            for source in self._sources:
                await source.missed()
            key = self._find(kid)
        if key is None or header.get("alg") != key.algorithm or not key.verifies(signed.encode(), signature_bytes):
            raise refused("untrusted")  # one word for all three: which one it was helps only whoever forges
        claims = read_object(content)
        not_before, expires = self._lifetime(claims)
        return _Verified(kid, key, not_before, expires, self._principal(claims, expires))

    def _find(self, kid: str | None) -> VerifyingKey | None:
        keys = [key for source in self._sources for key in source.keys().values()]
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.kid == kid), None)

    def _lifetime(self, claims: Mapping[str, Any]) -> tuple[float, float]:
        if claims.get("iss") != self._rules.issuer:
            raise refused("wrong_issuer")
        if self._rules.audience not in _audiences(claims.get("aud")):
            raise refused("wrong_audience")
        not_before, expires = _instant(claims.get("nbf")), _instant(claims.get("exp"))
        _instant(claims.get("iat", 0))
        if not 0 < expires - not_before <= self._rules.longest.total_seconds():
            raise refused("too_long")
        self._check_times(not_before, expires)
        return not_before, expires

    def _check_times(self, not_before: float, expires: float) -> None:
        now, leeway = self._environment.now().timestamp(), self._rules.leeway.total_seconds()
        if expires <= now - leeway:
            raise refused("expired")
        if not_before > now + leeway:
            raise refused("not_yet")

    def _principal(self, claims: Mapping[str, Any], expires: float) -> Principal:
        rules = self._rules
        cluster = claims.get(rules.cluster_claim, False)
        if not isinstance(cluster, bool):
            raise NotStrict(rules.cluster_claim)
        tenant = claims.get(rules.tenant_claim, DEFAULT_TENANT if cluster else None)
        try:
            role = read_role(claims.get(rules.role_claim))
        except InvalidRequest as error:
            raise NotStrict(rules.role_claim) from error
        subject = _name(claims.get("sub"))
        if subject.startswith((KEY, CLUSTER_KEY)):
            raise NotStrict("a subject that only a key has")
        return Principal(
            subject=subject,
            tenant=_name(tenant),
            role=role,
            cluster=cluster,
            expires_at=datetime.fromtimestamp(expires, UTC),
        )


def refused(reason: str) -> Unauthenticated:
    return Unauthenticated("the token is not valid; get a new one", reason=reason)


def _kid(header: Mapping[str, Any]) -> str | None:
    if header.keys() & (_BRINGS_A_KEY | _CHANGES_THE_MEANING):
        raise NotStrict("a header that is not taken here")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:  # a token for another purpose, from the same issuer
        raise NotStrict("another type of token")
    kid = header.get("kid")
    if "kid" in header and (not isinstance(kid, str) or not kid):
        raise NotStrict("no key id")
    return kid


def _audiences(given: object) -> list[str]:
    many = given if isinstance(given, list) else [given]
    named = [each for each in many if isinstance(each, str)]
    if len(named) != len(many):
        raise NotStrict("no audience")
    return named


def _instant(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < _FAR:
        raise NotStrict("no instant")
    return given


def _name(given: object) -> str:
    # Printable leaves out what no database takes and what would steer a terminal: NUL, lone surrogates, escapes.
    if not isinstance(given, str) or not 0 < len(given) <= _LONGEST_NAME or not given.isprintable():
        raise NotStrict("no name")
    return given
