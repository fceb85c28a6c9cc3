"""The tree of settings: sections, their fields, bounds and defaults. Beside each type stands what reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_type_hints

from mainspring.config import values
from mainspring.config.values import PUBLIC_ALGORITHMS, Secret, TokenKey
from mainspring.domain.addresses import USUAL_PORTS, Network
from mainspring.domain.durations import format_duration
from mainspring.domain.job import LONG, SHORT, Json

Concurrency: TypeAlias = Annotated[int, values.whole(1, 100_000)]
Engine: TypeAlias = Annotated[Literal["peers", "poll"], values.choice("peers", "poll")]
Networks: TypeAlias = Annotated[tuple[Network, ...], values.networks]
Texts: TypeAlias = Annotated[tuple[str, ...], values.texts]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    dsn: Annotated[Secret | None, values.secret] = None  # None: an embedded server
    connections: Annotated[int, values.whole(1, 1_000)] = 10  # of one process


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    lease_ttl: Annotated[timedelta, values.length("1s", "10m")] = timedelta(seconds=6)
    heartbeat_every: Annotated[timedelta, values.length("100ms", "5m")] = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    engine: Engine = "peers"
    batch: Annotated[int, values.whole(1, 10_000)] = 500
    look_every: Annotated[timedelta, values.length("10ms", "1m")] = timedelta(milliseconds=500)  # until an edit is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    pools: Annotated[Mapping[str, int | None], values.pools] = field(default_factory=lambda: {SHORT: None, LONG: None})
    concurrency: Concurrency = 100  # of each pool that has no number of its own
    grace: Annotated[timedelta, values.length("1s", "1d")] = timedelta(seconds=20)  # for what is at work at a stop
    cancel_every: Annotated[timedelta, values.length("50ms", "1m")] = timedelta(
        seconds=1
    )  # how soon a cancel reaches a task
    modules: Texts = ()  # where its tasks are

    @property
    def sizes(self) -> dict[str, int]:
        """How many runs of each pool may be at work at once."""
        return {pool: self.concurrency if size is None else size for pool, size in self.pools.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    enabled: Annotated[bool, values.flag] = True
    allow_networks: Networks = ()
    deny_networks: Networks = ()
    ports: Annotated[frozenset[int], values.ports] = USUAL_PORTS
    connect_timeout: Annotated[timedelta, values.length("100ms", "1m")] = timedelta(seconds=5)
    timeout: Annotated[timedelta, values.length("100ms", "1h")] = timedelta(seconds=60)
    largest_response: Annotated[int, values.whole(1_024, 1 << 26)] = 1 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    commands: Annotated[Mapping[str, tuple[str, ...]], values.commands] = field(
        default_factory=dict
    )  # empty: none may run


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsSettings:
    environment: Texts = ()  # variables that jobs may name
    directory: Annotated[Path | None, values.directory] = None  # files below it, too
    seal_with: Annotated[str | None, values.own_reference] = None  # the key of what is put by `mainspring secrets`
    also_open_with: Annotated[tuple[str, ...], values.own_references] = ()  # older keys, until everything is rotated
    vault_url: Annotated[str | None, values.guarded_url] = None
    vault_token: Annotated[str | None, values.own_reference] = None
    vault_mount: Annotated[str, values.vault_path] = "secret"
    vault_prefix: Annotated[str, values.vault_path] = "mainspring/{tenant}/"  # all that a tenant can name is below


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    host: Annotated[str, values.text] = "127.0.0.1"  # anywhere else: only with authentication
    port: Annotated[int, values.whole(0, 65_535)] = 8080  # 0: any that is free
    largest_body: Annotated[int, values.whole(1_024, 1 << 30)] = 16 << 20  # bytes
    deepest_json: Annotated[int, values.whole(4, 500)] = 64
    request_timeout: Annotated[timedelta, values.length("100ms", "10m")] = timedelta(seconds=30)
    drain: Annotated[timedelta, values.length("100ms", "10m")] = timedelta(seconds=10)  # for requests at a stop
    most_streams: Annotated[int, values.whole(1, 100_000)] = 2_000
    docs: Annotated[bool, values.flag] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    required: Annotated[bool | None, values.flag] = None  # None: unless on loopback without keys
    keys: Annotated[tuple[TokenKey, ...], values.token_keys] = ()
    jwks_url: Annotated[str | None, values.guarded_url] = None
    jwks_file: Annotated[Path | None, values.file] = None
    jwks_every: Annotated[timedelta, values.length("10s", "1d")] = timedelta(minutes=5)
    jwks_keep_for: Annotated[timedelta, values.length("1m", "30d")] = timedelta(days=1)  # while the source is away
    algorithms: Annotated[tuple[str, ...], values.choices(*PUBLIC_ALGORITHMS)] = ("RS256", "ES256", "EdDSA")  # of JWKS
    issuer: Annotated[str | None, values.text] = None
    audience: Annotated[str | None, values.text] = None
    leeway: Annotated[timedelta, values.length("1ms", "60s")] = timedelta(seconds=10)  # between our clock and theirs
    longest_token: Annotated[timedelta, values.length("1m", "30d")] = timedelta(days=1)
    tenant_claim: Annotated[str, values.text] = "tenant"
    role_claim: Annotated[str, values.text] = "role"
    cluster_claim: Annotated[str, values.text] = "cluster"

    @property
    def takes_tokens(self) -> bool:
        """Whether anything is set that tokens can be checked with."""
        return bool(self.keys or self.jwks_url or self.jwks_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    url: Annotated[Secret | None, values.redis_address] = None  # None: rate limits are counted by each process alone


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    keep_for: Annotated[timedelta, values.length("1h", "3650d")] = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    format: Annotated[Literal["plain", "json"], values.choice("plain", "json")] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that can be set, by section."""

    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    shell: ShellSettings = field(default_factory=ShellSettings)
    secrets: SecretsSettings = field(default_factory=SecretsSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    log: LogSettings = field(default_factory=LogSettings)

    def shown(self) -> dict[str, Json]:
        """Return every setting by its dotted name, as it may be printed."""
        parts = {name: name.split(".") for name in READERS}
        return {name: _shown(getattr(getattr(self, section), each)) for name, (section, each) in parts.items()}


def _shown(value: object) -> Json:
    match value:
        case timedelta():
            return format_duration(value)
        case frozenset():
            return sorted(value)
        case tuple():
            return [_shown(each) for each in value]
        case Mapping():
            return {name: _shown(each) for name, each in value.items()}
        case None | bool() | int():
            return value
    return str(value)


SECTIONS: Final[Mapping[str, Any]] = get_type_hints(Settings)
READERS: Final[Mapping[str, Any]] = {  # by dotted name
    f"{section}.{name}": annotated.__metadata__[0]
    for section, kind in SECTIONS.items()
    for name, annotated in get_type_hints(kind, include_extras=True).items()
}
