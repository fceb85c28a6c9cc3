"""Doubts: settings that can be read, and will probably not do what is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from mainspring.config.settings import Settings
from mainspring.config.values import on_loopback
from mainspring.domain.durations import format_duration


class Doubt(NamedTuple):
    name: str  # of the setting, dotted
    reason: str
    remedy: str


def doubts(settings: Settings, environ: Mapping[str, str]) -> Iterator[Doubt]:
    """Give what is likely to be a mistake, though each setting by itself is in bounds."""
    yield from _cluster(settings)
    yield from _worker(settings)
    yield from _http(settings)
    yield from _secrets(settings, environ)
    yield from _auth(settings, environ)
    if settings.history.keep_for < timedelta(days=1):
        keep_for = format_duration(settings.history.keep_for)
        yield Doubt("history.keep_for", f"history is dropped in whole days, {keep_for} is less", "use 1d or more")


def _cluster(settings: Settings) -> Iterator[Doubt]:
    every, lease = settings.cluster.heartbeat_every, settings.cluster.lease_ttl
    if every * 2 >= lease:
        reason = f"one heartbeat that is lost leaves nothing of a lease of {format_duration(lease)}"
        yield Doubt("cluster.heartbeat_every", reason, f"use less than {format_duration(lease / 2)}, or a longer lease")


def _worker(settings: Settings) -> Iterator[Doubt]:
    # Heartbeat, engine, guardian, lines; for each pool one that claims, one that settles, one that looks for cancels.
    useful, sizes = 4 + 3 * len(settings.worker.pools), settings.worker.sizes
    if settings.database.connections < useful:
        runs = f"{sum(sizes.values())} runs at once in {len(sizes)} pools"
        reason = f"{settings.database.connections} are few for {runs}: claiming and settling wait for each other"
        yield Doubt("database.connections", reason, f"use {useful}")


def _http(settings: Settings) -> Iterator[Doubt]:
    http = settings.http
    if not http.enabled:
        return
    if http.connect_timeout >= http.timeout:
        reason = f"a request is over after {format_duration(http.timeout)}, before it has connected"
        yield Doubt("http.connect_timeout", reason, f"use less than {format_duration(http.timeout)}")
    for network in http.allow_networks:
        if network.prefixlen == 0:
            reason = f"{network} opens every address to every job, those of your cloud's machinery included"
            yield Doubt("http.allow_networks", reason, "name the networks that jobs have business with")
        if any(
            other.version == network.version
            and int(other.network_address) <= int(network.network_address)
            and int(network.broadcast_address) <= int(other.broadcast_address)
            for other in http.deny_networks
        ):
            reason = f"{network} is denied by http.deny_networks, which wins"
            yield Doubt("http.allow_networks", reason, "take it out of one of the two")


def _secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[Doubt]:
    for name in settings.secrets.environment:
        if name.startswith("MAINSPRING_"):
            reason = f"every job could read {name}, which is the server's own"
            yield Doubt("secrets.environment", reason, "give jobs a variable of their own")
        elif not environ.get(name):
            yield Doubt("secrets.environment", f"{name} is not set here", "set it where workers are started")
    directory = settings.secrets.directory
    if directory is not None and not directory.is_dir():
        yield Doubt("secrets.directory", f"{directory} is no directory here", "make it, or correct the path")


def _auth(settings: Settings, environ: Mapping[str, str]) -> Iterator[Doubt]:
    auth = settings.auth
    for key in auth.keys:
        name = (key.secret or "").removeprefix("env:")
        if key.secret == f"env:{name}" and not environ.get(name):
            yield Doubt(
                "auth.keys", f"{name}, the secret of {key.kid}, is not set here", "set it where the API is started"
            )
        if key.public_key_file is not None and not key.public_key_file.is_file():
            yield Doubt("auth.keys", f"{key.public_key_file} is no file here", "make it, or correct the path")
    if auth.jwks_file is not None and not auth.jwks_file.is_file():
        yield Doubt("auth.jwks_file", f"{auth.jwks_file} is no file here", "make it, or correct the path")
    if auth.jwks_file is not None and auth.jwks_url is not None:
        yield Doubt("auth.jwks_file", "the API refuses to start: auth.jwks_url is set, too", "keep one of the two")
    for name, value in (("auth.issuer", auth.issuer), ("auth.audience", auth.audience)):
        if auth.takes_tokens and value is None:
            reason = "the API refuses to start: a token would be good wherever it comes from"
            yield Doubt(name, reason, f"set {name} to what your tokens say, or take the keys away")
    if auth.required is False and auth.takes_tokens:
        yield Doubt("auth.required", "it is false, so that the keys of auth are asked of nobody", "leave it out")
    if auth.required is False and not on_loopback(settings.api.host):
        reason = f"the API refuses to start: {settings.api.host} can be reached from elsewhere"
        yield Doubt("auth.required", reason, "leave it out, or use api.host = 127.0.0.1")
