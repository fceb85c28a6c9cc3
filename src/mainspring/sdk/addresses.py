"""Where a client connects to: a server by its URL, or a database by its DSN, as it is told or finds around it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mainspring import embedded
from mainspring.domain.errors import InvalidRequest

URL: Final = "MAINSPRING_URL"
KEY: Final = "MAINSPRING_KEY"
DSN: Final = "MAINSPRING_DSN"
_SCHEMES: Final = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Place:
    """Something to connect to. The key is not shown."""

    address: str  # a URL or a DSN; the latter may have a password in it
    key: str | None = field(default=None, repr=False)

    @property
    def served(self) -> bool:
        """Whether a server is there, and not the database itself."""
        return is_url(self.address)


def is_url(address: str) -> bool:
    """Return whether an address is a server's.

    >>> is_url("HTTPS://jobs.example.com"), is_url("postgresql://localhost/jobs")
    (True, False)
    """
    return address.lower().startswith(_SCHEMES)


def place(address: str | None, key: str | None) -> Place:
    """Return where to connect to: what is given, else MAINSPRING_URL, MAINSPRING_DSN, or `mainspring dev` right here.

    MAINSPRING_KEY goes with MAINSPRING_URL: a key is never sent to a server that it was not meant for.

    Raises:
        InvalidRequest: there is nothing of all that, or a key for a database.
    """
    if address is None and (served := os.environ.get(URL)):
        if not is_url(served):
            raise _no_url(served, URL)
        return Place(served, key or os.environ.get(KEY) or None)
    found = Place(address or _dsn(), key)
    if key is not None and not found.served:
        allowed = f"give the URL of a server, or set {URL}"
        raise InvalidRequest("it is for a server, and this is a database", field="key", value="", allowed=allowed)
    return found


def _dsn() -> str:
    given = os.environ.get(DSN)
    if given:
        return given
    running = embedded.dsn_of_running(embedded.default_data_dir(Path(".mainspring")))
    if running is None:
        reason = f"neither {URL} nor {DSN} is set, and no `mainspring dev` runs in this directory"
        raise InvalidRequest(reason, field="url", value="", allowed=f"set {URL} or {DSN}, pass one, or start it")
    return running


def checked_url(url: str, *, insecure: bool = False) -> str:
    """Return the URL of a server without the slash at its end.

    Raises:
        InvalidRequest: it is none, has a password in it, or what is sent there could be read on the way.
    """
    if not is_url(url):
        raise _no_url(url, "url")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _no_url(url, "url") from None
    if not host or parts.query or parts.fragment or any(each.isspace() or not each.isprintable() for each in url):
        raise _no_url(url, "url")
    if "@" in parts.netloc:
        allowed = f"leave it out; give the key as key=, or in {KEY}"
        raise InvalidRequest("there is a user in it", field="url", value="", allowed=allowed)
    if parts.scheme.lower() == "http" and not insecure and not _is_loopback(host):
        allowed = "use https, or say insecure if nobody can listen on the way"
        raise InvalidRequest("keys and payloads would travel in the open", field="url", value=url, allowed=allowed)
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _no_url(given: str, field: str) -> InvalidRequest:
    shown = "" if "@" in given else given[:200]  # no password into messages
    return InvalidRequest(
        "it is no URL of a server", field=field, value=shown, allowed="use https://host, or with a path"
    )
