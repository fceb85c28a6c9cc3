"""An issuer of tokens, and what a forger makes of them: each differs from a good token in one thing only.

``Issuer`` writes its keys where the settings look for them. ``issuer.token()`` is good; ``forged(issuer)`` are not,
each with the word that the refusal gives for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from mainspring.config.settings import AuthSettings
from mainspring.config.values import TokenKey

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)  # where the clocks of tests begin
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "mainspring"
SECRET: Final = "correct-horse-battery-staple-0451"
SECRET_NAME: Final = "TOKEN_SECRET"
ALGORITHMS: Final = {"hs": "HS256", "rs": "RS256", "es": "ES256", "ed": "EdDSA"}  # by the id of the key

Json = Any


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """Return a private key; the same one for the same number, because making them takes long."""
    del number
    match kind:
        case "rs":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "es":
            return ec.generate_private_key(ec.SECP256R1())
        case "ed":
            return ed25519.Ed25519PrivateKey.generate()
    raise ValueError(kind)


def public_pem(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def jwk_of(key: Any, kid: str, **more: Json) -> dict[str, Json]:
    """Return the public half of a key as an entry of a key set."""
    match key:
        case rsa.RSAPrivateKey():
            algorithm = "RS256"
        case ec.EllipticCurvePrivateKey():
            algorithm = {256: "ES256", 384: "ES384", 521: "ES512"}[key.curve.key_size]
        case _:
            algorithm = "EdDSA"
    described: Any = jwt.get_algorithm_by_name(algorithm)
    public = {
        name: value for name, value in described.to_jwk(key.public_key(), as_dict=True).items() if name != "key_ops"
    }
    return public | {"kid": kid, "use": "sig"} | more


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def compact(header: Json, claims: Json, sign: Callable[[bytes], bytes]) -> str:
    """Put a token together; header and claims may be bytes, to say what no dictionary can."""
    parts = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, claims))
    signed = ".".join(encoded(part) for part in parts)
    return f"{signed}.{encoded(sign(signed.encode()))}"


def signed_by(algorithm: str, key: Any) -> Callable[[bytes], bytes]:
    if algorithm.startswith("HS"):
        secret = key if isinstance(key, bytes) else key.encode()
        return lambda content: hmac.digest(secret, content, f"sha{algorithm[2:]}")
    described: Any = jwt.get_algorithm_by_name(algorithm)
    return lambda content: bytes(described.sign(content, key))


@dataclass(frozen=True)
class Issuer:
    """Somebody who signs tokens with four keys, one for each family of algorithms."""

    directory: Path
    now: datetime = NOW
    environ: Mapping[str, str] = field(default_factory=lambda: {SECRET_NAME: SECRET})

    @cached_property
    def settings(self) -> AuthSettings:
        """Settings under which its tokens count."""
        keys = [TokenKey(kid="hs", algorithm="HS256", secret=f"env:{SECRET_NAME}")]
        for kid in ("rs", "es", "ed"):
            path = self.directory / f"{kid}.pem"
            path.write_bytes(public_pem(private_key(kid)))
            keys.append(TokenKey(kid=kid, algorithm=ALGORITHMS[kid], public_key_file=path))
        return AuthSettings(keys=tuple(keys), issuer=ISSUER, audience=AUDIENCE)

    def claims(self, **changes: Json) -> dict[str, Json]:
        """Return the claims of a good token, with changes; ``...`` leaves one out."""
        at = int(self.now.timestamp())
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "nbf": at - 60, "exp": at + 600}
        return {
            name: value
            for name, value in (good | {"tenant": "shop", "role": "editor"} | changes).items()
            if value is not ...
        }

    def token(self, kid: str = "hs", *, header: Json = None, claims: Json = None, **changes: Json) -> str:
        """Return a token that is signed as it should be, whatever it says."""
        good = {"alg": ALGORITHMS[kid], "kid": kid, "typ": "JWT"}
        said = good if header is None else header if isinstance(header, bytes) else good | header
        if isinstance(said, dict):
            said = {name: value for name, value in said.items() if value is not ...}
        key = SECRET if kid == "hs" else private_key(kid)
        return compact(said, self.claims(**changes) if claims is None else claims, signed_by(ALGORITHMS[kid], key))


@dataclass(frozen=True)
class Forged:
    what: str  # the one thing that is different
    token: str
    reason: str


def forged(issuer: Issuer) -> Iterator[Forged]:
    """Give tokens that must not count, each but for one thing like a good one."""
    for make in (_algorithms, _ids, _headers, _signatures, _forms, _missing_claims, _times, _parties, _names, _texts):
        for what, (token, reason) in make(issuer).items():
            yield Forged(what, token, reason)


Made = dict[str, tuple[str, str]]


def _algorithms(issuer: Issuer) -> Made:
    claims, head = issuer.claims(), {"kid": "hs", "typ": "JWT"}
    rs_head = {"kid": "rs", "typ": "JWT"}
    pem, rs = public_pem(private_key("rs")), private_key("rs")
    der = rs.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = {
        f'alg "{name}" without a signature': (
            compact({"alg": name} | head, claims, lambda _: b""),
            "malformed",
        )
        for name in ("none", "None", "NONE", "nOnE")
    }
    confused = {
        f"the public key of rs as an HMAC secret ({form})": (
            compact({"alg": "HS256"} | rs_head, claims, signed_by("HS256", content)),
            "untrusted",
        )
        for form, content in {"PEM": pem, "PEM without newline": pem.strip(), "DER": der}.items()
    }
    other = {
        f"alg {name!r} with a signature by HS256": (issuer.token(header={"alg": name}), "untrusted")
        for name in ("none", "hs256", "HS384", "RS256", "", None, ["HS256"], True, ...)
    }
    stronger = {
        f"the secret of hs with {name}": (
            compact({"alg": name} | head, claims, signed_by(name, SECRET)),
            "untrusted",
        )
        for name in ("HS384", "HS512")
    }
    crossed = {
        "PS256 with a key for RS256": (
            compact({"alg": "PS256"} | rs_head, claims, signed_by("PS256", rs)),
            "untrusted",
        ),
        "RS512 with a key for RS256": (
            compact({"alg": "RS512"} | rs_head, claims, signed_by("RS512", rs)),
            "untrusted",
        ),
        "signed by hs in the name of rs": (issuer.token(header={"kid": "rs"}), "untrusted"),
        "signed by rs in the name of hs": (issuer.token("rs", header={"kid": "hs"}), "untrusted"),
        "signed by es in the name of rs": (issuer.token("es", header={"kid": "rs"}), "untrusted"),
    }
    return unsigned | confused | other | stronger | crossed


def _ids(issuer: Issuer) -> Made:
    unknown = ("other", "HS", "hs ", "../../../dev/null", "' OR 1=1 --", "hs\x00", "x" * 500)
    wrong: tuple[Json, ...] = ("", 0, None, True, ["hs"], {"kid": "hs"})
    return (
        {f"kid {kid[:20]!r}": (issuer.token(header={"kid": kid}), "untrusted") for kid in unknown}
        | {f"kid {kid!r}": (issuer.token(header={"kid": kid}), "malformed") for kid in wrong}
        | {"no kid, where there are four keys": (issuer.token(header={"kid": ...}), "untrusted")}
    )


def _headers(issuer: Issuer) -> Made:
    own = private_key("rs", 1)
    brought = {
        "jku": "https://forger.example/keys",
        "x5u": "https://forger.example/chain",
        "jwk": jwk_of(own, "rs"),
        "x5c": [encoded(public_pem(own))],
        "crit": ["exp"],
        "b64": False,
        "zip": "DEF",
        "enc": "A256GCM",
        "cty": "JWT",
    }
    twice = b'{"alg":"HS256","kid":"hs","kid":"hs"}'
    return {
        **{f"header {name}": (issuer.token(header={name: value}), "malformed") for name, value in brought.items()},
        "an empty crit": (issuer.token(header={"crit": []}), "malformed"),
        "header jwk, and signed by that key": (
            compact({"alg": "RS256", "kid": "rs", "jwk": jwk_of(own, "rs")}, issuer.claims(), signed_by("RS256", own)),
            "malformed",
        ),
        "of another type": (issuer.token(header={"typ": "logout+jwt"}), "malformed"),
        "of a type that is a number": (issuer.token(header={"typ": 1}), "malformed"),
        "kid twice": (issuer.token(header=twice), "malformed"),
        "alg twice": (issuer.token(header=b'{"alg":"none","alg":"HS256","kid":"hs"}'), "malformed"),
        "a header that is a list": (issuer.token(header=b'["HS256"]'), "malformed"),
        "a header that is no JSON": (issuer.token(header=b"{alg:HS256}"), "malformed"),
        "a header that is no UTF-8": (issuer.token(header=b'{"alg":"HS256","kid":"hs","x":"\xff"}'), "malformed"),
        "a header with something after it": (issuer.token(header=b'{"alg":"HS256","kid":"hs"}{}'), "malformed"),
    }


def _signatures(issuer: Issuer) -> Made:
    good, other, es = issuer.token(), issuer.token(sub="bob"), issuer.token("es")
    signed, _, signature = good.rpartition(".")
    bare = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    es_signed, _, es_signature = es.rpartition(".")
    pair = base64.urlsafe_b64decode(es_signature + "=" * (-len(es_signature) % 4))
    as_der = encode_dss_signature(int.from_bytes(pair[:32], "big"), int.from_bytes(pair[32:], "big"))
    stray = signature[:-1] + next(
        last
        for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if last != signature[-1] and base64.urlsafe_b64decode(f"{signature[:-1]}{last}=") == bare
    )
    head, body = good.split(".")[0], other.split(".")[1]
    return {
        "one bit of the signature": (f"{signed}.{encoded(bytes([bare[0] ^ 1]) + bare[1:])}", "untrusted"),
        "a signature cut short": (f"{signed}.{encoded(bare[:-1])}", "untrusted"),
        "half a signature": (f"{signed}.{encoded(bare[:16])}", "untrusted"),
        "a longer signature": (f"{signed}.{encoded(bare + bytes(1))}", "untrusted"),
        "no signature": (f"{signed}.", "malformed"),
        "the signature of another token": (f"{signed}.{other.rpartition('.')[2]}", "untrusted"),
        "the claims of another token": (f"{head}.{body}.{signature}", "untrusted"),
        "a plain hash for a signature": (f"{signed}.{encoded(hashlib.sha256(signed.encode()).digest())}", "untrusted"),
        "an empty secret": (
            compact({"alg": "HS256", "kid": "hs"}, issuer.claims(), signed_by("HS256", b"")),
            "untrusted",
        ),
        "another secret": (
            compact({"alg": "HS256", "kid": "hs"}, issuer.claims(), signed_by("HS256", SECRET + "x")),
            "untrusted",
        ),
        "another RSA key": (
            compact({"alg": "RS256", "kid": "rs"}, issuer.claims(), signed_by("RS256", private_key("rs", 1))),
            "untrusted",
        ),
        "stray bits at the end of the signature": (f"{signed}.{stray}", "malformed"),
        "an ES256 signature as DER": (f"{es_signed}.{encoded(as_der)}", "untrusted"),
        "an ES256 signature of zeros": (f"{es_signed}.{encoded(bytes(64))}", "untrusted"),
    }


def _forms(issuer: Issuer) -> Made:
    good = issuer.token()
    head, body, signature = good.split(".")
    tokens = {
        "no claims and no signature": head,
        "two parts": f"{head}.{body}",
        "four parts": f"{good}.{signature}",
        "five parts, as of an encrypted one": f"{good}.{signature}.{signature}",
        "padding": f"{good}=",
        "padding inside": f"{head}=.{body}.{signature}",
        "a newline after it": f"{good}\n",
        "a newline inside": f"{head}.\n{body}.{signature}",
        "a space before it": f" {good}",
        "a space inside": f"{head}. {body}.{signature}",
        "a NUL after it": f"{good}\x00",
        "the other alphabet": f"{head}.{body}.+{signature[1:]}",
        "letters from elsewhere": f"{head}.{body}.\uff21{signature[1:]}",
        "percent signs": good.replace(".", "%2E"),
        "more than 8 kB": issuer.token(more="x" * 8000),
        "JSON instead of dots": json.dumps({"protected": head, "payload": body, "signature": signature}),
        "nothing but dots": "..",
    }
    return {what: (token, "malformed") for what, token in tokens.items()}


def _missing_claims(issuer: Issuer) -> Made:
    words = {"iss": "wrong_issuer"}
    without: dict[str, Json] = {name: {name: ...} for name in ("iss", "aud", "exp", "nbf", "sub", "tenant", "role")}
    return {f"no {name}": (issuer.token(**gone), words.get(name, "malformed")) for name, gone in without.items()}


def _times(issuer: Issuer) -> Made:
    at = int(issuer.now.timestamp())
    wrong: tuple[Json, ...] = (str(at + 600), None, True, [at + 600], {}, 1e300, -1e300, 10**400)
    return {
        "expired": (issuer.token(exp=at - 11), "expired"),
        "expired by the last second of the leeway": (issuer.token(exp=at - 10), "expired"),
        "not yet": (issuer.token(nbf=at + 11), "not_yet"),
        "good for longer than a day": (issuer.token(nbf=at - 60, exp=at - 60 + 86_401), "too_long"),
        "good for ever": (issuer.token(exp=99_999_999_999), "too_long"),
        "over before it begins": (issuer.token(nbf=at + 5, exp=at + 4), "too_long"),
        "over as it begins": (issuer.token(nbf=at, exp=at), "too_long"),
        "iat that is a text": (issuer.token(iat="now"), "malformed"),
        **{
            f"exp {str(value)[:12]!r} ({type(value).__name__})": (issuer.token(exp=value), "malformed")
            for value in wrong
        },
        **{
            f"nbf {str(value)[:12]!r} ({type(value).__name__})": (issuer.token(nbf=value), "malformed")
            for value in wrong
        },
    }


def _parties(issuer: Issuer) -> Made:
    issuers: tuple[Json, ...] = (f"{ISSUER}/", f"{ISSUER}.evil", "http://issuer.example", "", None, 1, [ISSUER], {})
    others: tuple[Json, ...] = ("other", "Mainspring", "mainspring ", "mainsprin", "", [], ["other", "more"])
    wrong: tuple[Json, ...] = (None, 1, True, {"mainspring": 1}, ["mainspring", 1], [["mainspring"]])
    return {
        **{f"iss {value!r}": (issuer.token(iss=value), "wrong_issuer") for value in issuers},
        **{f"aud {value!r}": (issuer.token(aud=value), "wrong_audience") for value in others},
        **{f"aud {value!r}": (issuer.token(aud=value), "malformed") for value in wrong},
    }


def _names(issuer: Issuer) -> Made:
    wrong: tuple[Json, ...] = (1, None, True, "", [], ["shop"], {"shop": 1}, "a\x00b", "a\nb", "\ud800", "x" * 256)
    roles: tuple[Json, ...] = ("root", "Admin", "admin ", "", None, 1, True, ["admin"], {"admin": 1})
    subjects = (*wrong, "key:ci", "cluster-key:ops")  # a token that calls itself a key
    flags: tuple[Json, ...] = ("true", "false", 1, 0, None, [], [True], {})
    return {
        f"{name} {str(value)[:8]!r} ({type(value).__name__})": (issuer.token(**{name: value}), "malformed")
        for name, values in {"sub": subjects, "tenant": wrong, "role": roles, "cluster": flags}.items()
        for value in values
    }


def _texts(issuer: Issuer) -> Made:
    good = json.dumps(issuer.claims()).encode()
    contents = {
        "tenant twice": good[:-1] + b',"tenant":"other"}',
        "the same tenant twice": good[:-1] + b',"tenant":"shop"}',
        "role twice, once spelled otherwise": good[:-1] + b',"r\\u006fle":"admin"}',
        "a name twice, deep inside": good[:-1] + b',"more":[{"a":1,"a":1}]}',
        "NaN": good[:-1] + b',"more":NaN}',
        "Infinity for exp": good.replace(str(issuer.claims()["exp"]).encode(), b"Infinity"),
        "a list": b"[" + good + b"]",
        "a text": json.dumps(good.decode()).encode(),
        "null": b"null",
        "no JSON": good[:-1],
        "something after it": good + b"x",
        "no UTF-8": good[:-1] + b',"more":"\xff"}',
        "a byte order mark": b"\xef\xbb\xbf" + good,
        "UTF-16": good.decode().encode("utf-16"),
        "2500 levels deep": good[:-1] + b',"more":' + b"[" * 2500 + b"]" * 2500 + b"}",
    }
    return {f"claims: {what}": (issuer.token(claims=content), "malformed") for what, content in contents.items()}
