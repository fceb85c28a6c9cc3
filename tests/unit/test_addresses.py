"""Which addresses a request may reach. Pure: nothing is dialled here."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.addresses import USUAL_PORTS, Reach, embedded, parse_address, parse_networks, plain, special
from mainspring.domain.errors import InvalidRequest

pytestmark = pytest.mark.covers("F102")

NOT_PUBLIC = {
    "0.0.0.0": "this host",
    "0.1.2.3": "this host",
    "10.0.0.1": "private",
    "100.64.0.1": "shared by carriers",
    "100.100.100.200": "shared by carriers",  # the metadata service of a cloud
    "100.127.255.255": "shared by carriers",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "the platform service of a cloud",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "kept for protocols",  # the metadata service of another
    "192.0.2.1": "for documentation",
    "192.88.99.1": "a 6to4 relay",
    "192.168.1.1": "private",
    "198.18.0.1": "for benchmarks",
    "198.19.255.255": "for benchmarks",
    "198.51.100.1": "for documentation",
    "203.0.113.1": "for documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "this host",
    "::1": "loopback",
    "::2": "this host inside IPv6",
    "::127.0.0.1": "loopback inside IPv6",
    "::8.8.8.8": "reserved",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "::ffff:0:127.0.0.1": "reserved",  # translated, by RFC 2765
    "64:ff9b::127.0.0.1": "loopback inside IPv6",
    "64:ff9b::10.0.0.1": "private inside IPv6",
    "64:ff9b::169.254.169.254": "link-local inside IPv6",
    "64:ff9b:1::8.8.8.8": "a local NAT64 gateway",
    "100::1": "discarded by routers",
    "100:0:0:1::1": "reserved",
    "2001::1": "a Teredo tunnel",
    "2001:0:7f00:1::": "a Teredo tunnel",
    "2001:2::1": "kept for protocols",
    "2001:10::1": "kept for protocols",
    "2001:20::1": "kept for protocols",
    "2001:db8::1": "for documentation",
    "2002:7f00:1::1": "a 6to4 tunnel",
    "2002:808:808::1": "a 6to4 tunnel",
    "2606:4700::5efe:127.0.0.1": "loopback inside IPv6",  # ISATAP
    "2606:4700::200:5efe:10.0.0.1": "private inside IPv6",
    "2606:4700::1%eth0": "tied to one link",
    "::ffff:8.8.8.8%1": "tied to one link",
    "3fff::1": "for documentation",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd00:ec2::254": "private",  # the metadata service once more
    "fe80::1": "link-local",
    "fe80::1%lo": "tied to one link",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
}
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "11.0.0.1",
    "100.63.255.255",
    "100.128.0.0",
    "168.63.129.15",
    "172.32.0.1",
    "198.20.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",  # how a network without IPv4 reaches the rest
    "2001:4860:4860::8888",
    "2606:4700::5efe:8.8.8.8",
    "2a00:1450:4001::1",
]


@pytest.mark.parametrize(("text", "what"), NOT_PUBLIC.items())
def test_what_is_not_public_is_refused_and_named(text: str, what: str) -> None:
    assert special(ip_address(text)) == what

    refusal = Reach().refusal(ip_address(text), 443)

    assert refusal == f"is not public ({what}); http.allow_networks may let it through"


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_is_let_through_on_the_usual_ports(text: str) -> None:
    assert [Reach().refusal(ip_address(text), port) for port in sorted(USUAL_PORTS)] == [None] * 4
    assert Reach().refusal(ip_address(text), 22) == "is public, and port 22 is not among http.ports"


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.sampled_from([*map(ip_address, NOT_PUBLIC)]))


@given(addresses)
def test_nothing_passes_that_the_registry_calls_private(address: IPv4Address | IPv6Address) -> None:
    if special(address) is None:
        assert plain(address).is_global or embedded(plain(address))  # type: ignore[arg-type]
        assert not plain(address).is_multicast


@given(st.ip_addresses(v=4))
def test_no_ipv6_form_of_an_address_passes_that_would_not_pass_itself(address: IPv4Address) -> None:
    number = int(address)
    forms = [
        IPv6Address(number),
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address(0x0064_FF9B << 96 | number),
        IPv6Address(0x2606_4700 << 96 | 0x5EFE << 32 | number),
    ]

    if special(address) is not None:
        assert all(special(form) is not None for form in forms)
    denied = Reach(allow=parse_networks(["::/0"], field="x"), deny=parse_networks([str(address)], field="x"))
    tunnels = [IPv6Address(0x2002 << 112 | number << 80), IPv6Address(0x2001 << 112 | 0xFFFFFFFF ^ number)]
    every: list[IPv4Address | IPv6Address] = [address, *forms, *tunnels]
    for form in every:
        assert denied.refusal(form, 443) == "is denied by http.deny_networks"


def test_an_allowed_network_is_open_on_every_port_and_nothing_around_it_is() -> None:
    reach = Reach(allow=parse_networks(["10.1.0.0/16", "fd12::/64"], field="x"))

    assert reach.refusal(ip_address("10.1.2.3"), 5432) is None
    assert reach.refusal(ip_address("::ffff:10.1.2.3"), 5432) is None
    assert reach.refusal(ip_address("fd12::7"), 1) is None
    assert reach.refusal(ip_address("10.2.0.1"), 80) is not None
    assert reach.refusal(ip_address("64:ff9b::10.1.2.3"), 80) is not None  # where that leads, a gateway decides
    assert reach.refusal(ip_address("fd13::7"), 80) is not None


def test_a_denied_network_is_closed_even_inside_an_allowed_one() -> None:
    reach = Reach(
        allow=parse_networks(["10.0.0.0/8", "64:ff9b::/96", "2002::/16", "64:ff9b:1::/48"], field="x"),
        deny=parse_networks(["10.0.0.5", "8.8.8.8"], field="x"),
    )

    assert reach.refusal(ip_address("10.0.0.4"), 5432) is None
    for text in (
        *("10.0.0.5", "::ffff:10.0.0.5", "64:ff9b::10.0.0.5", "2002:a00:5::1", "8.8.8.8"),
        *("64:ff9b:1:a00:0:500::", "64:ff9b:1::10.0.0.5"),  # after a prefix of 48 bits, and of 96
    ):
        assert reach.refusal(ip_address(text), 443) == "is denied by http.deny_networks", text


def test_networks_are_read_strictly() -> None:
    assert [str(network) for network in parse_networks(["::ffff:10.0.0.0/104"], field="x")] == ["10.0.0.0/8"]
    for text in ("10.0.0.1/8", "10/8", "localhost", "", "10.0.0.0/33"):
        with pytest.raises(InvalidRequest, match=r"http\.allow_networks: .*CIDR"):
            parse_networks([text], field="http.allow_networks")


@pytest.mark.parametrize("text", ["127.1", "0177.0.0.1", "0x7f.0.0.1", "2130706433", "127.0.0.1.", "１.1.1.1", "", "a"])
def test_an_address_has_one_spelling(text: str) -> None:
    assert parse_address(text) is None
