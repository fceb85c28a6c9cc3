"""Addresses: which of them a request on somebody's behalf may reach.

Promise. An address is reached only if it is public, or if the operator named it. Whoever writes a job picks the
name, its zone file picks the address: so the address about to be dialled is judged, and nothing before it.

By what. ``Reach.refusal`` asks, in this order:
  denied        a network in ``deny`` holds the address, or an IPv4 address hidden in it: refused, always
  allowed       a network in ``allow`` holds the address itself: let through, on any port
  not public    one of the special networks below, or anything hidden in it that is: refused
  port          not in ``ports``: refused

An IPv4-mapped address is judged as the IPv4 address it is: that is what the kernel dials. What a NAT64 gateway or
a tunnel makes of an address is up to them: there an allowed network has to hold the outer address.

Not promised. A NAT64 prefix of the operator's own looks like any public address; it belongs into ``deny``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from mainspring.domain.errors import InvalidRequest

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

USUAL_PORTS: Final = frozenset({80, 443, 8080, 8443})

# The registries of special-purpose addresses, and what public-looking addresses clouds keep for their own machinery.
_SPECIAL_4: Final = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by carriers"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "the platform service of a cloud"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "kept for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_SPECIAL_6: Final = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "this host"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "a local NAT64 gateway"),
        ("100::/64", "discarded by routers"),
        ("2001::/32", "a Teredo tunnel"),
        ("2001:db8::/32", "for documentation"),
        ("2001::/23", "kept for protocols"),
        ("2002::/16", "a 6to4 tunnel"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_UNICAST: Final = IPv6Network("2000::/3")  # all that was ever given out
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE: Final = IPv6Network("::/96")
_LOW: Final = (1 << 32) - 1
_ISATAP: Final = 0x5EFE  # the middle of an interface id that ends in an IPv4 address


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What requests may reach, beyond and short of the public network."""

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    ports: Collection[int] = USUAL_PORTS  # inside allow there is no limit

    def refusal(self, address: Address, port: int) -> str | None:
        """Return why this end point is not to be dialled, or None."""
        dialled = plain(address)
        hidden = embedded(dialled) if isinstance(dialled, IPv6Address) else ()
        if any(_holds(network, each) for network in self.deny for each in (dialled, *hidden)):
            return "is denied by http.deny_networks"
        if any(_holds(network, dialled) for network in self.allow):
            return None
        what = special(address)
        if what is not None:
            return f"is not public ({what}); http.allow_networks may let it through"
        if port not in self.ports:
            return f"is public, and port {port} is not among http.ports"
        return None


def special(address: Address) -> str | None:
    """Return what an address is if it is not public, or None.

    >>> special(ip_address("169.254.169.254")), special(ip_address("9.9.9.9"))
    ('link-local', None)
    """
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "tied to one link"  # and not to be looked up by its text once more
    address = plain(address)
    if isinstance(address, IPv4Address):
        return next((what for network, what in _SPECIAL_4 if address in network), None)
    what = next((what for network, what in _SPECIAL_6 if address in network), None)
    inner = (what for each in embedded(address) if (what := special(each)) is not None)
    what = what or next((f"{each} inside IPv6" for each in inner), None)
    return "reserved" if what is None and address not in _UNICAST and address not in _NAT64 else what


def plain(address: Address) -> Address:
    """Return the IPv4 address if this is one in its IPv6 clothes (``::ffff:a.b.c.d``)."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that a gateway or a tunnel could read out of this one."""
    number, found = int(address), list[IPv4Address]()
    last = IPv4Address(number & _LOW)
    if address in _NAT64 or address in _COMPATIBLE:
        found.append(last)
    if address in _NAT64_LOCAL:  # RFC 6052: after a prefix of 48, 56, 64 or 96 bits; bits 64 to 71 are left out
        found += [last, *(IPv4Address(_without_u(number, prefix)) for prefix in (48, 56, 64))]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found += address.teredo
    if number >> 32 & 0xFFFF == _ISATAP and number >> 48 & 0xFCFF == 0:
        found.append(last)
    return tuple(found)


def parse_networks(given: Iterable[str], *, field: str) -> tuple[Network, ...]:
    """Read networks in CIDR notation; a single address is a network too.

    >>> parse_networks(["10.0.0.0/8", "::1"], field="http.allow_networks")
    (IPv4Network('10.0.0.0/8'), IPv6Network('::1/128'))

    Raises:
        InvalidRequest: one of them is no network.
    """
    return tuple(_network(text, field) for text in given)


def parse_address(text: str) -> Address | None:
    """Read an address in its canonical spelling, and in no other."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _network(text: str, field: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        allowed = "use CIDR notation, such as 10.20.0.0/16"
        raise InvalidRequest(str(error), field=field, value=text, allowed=allowed) from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is not None and network.prefixlen >= 96:  # as we judge its addresses
        return IPv4Network((mapped, network.prefixlen - 96))
    return network


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


def _without_u(number: int, prefix: int) -> int:
    kept = number >> 64 << 56 | number & (1 << 56) - 1  # 120 bits: the address without its reserved octet
    return kept >> (120 - prefix - 32) & _LOW
