"""Requests that try to get inside: each is shown to reach nothing.

By two witnesses. A canary on loopback counts every connection, and a net below the guard notes every address that is
dialled at all. The net lets nothing off this machine: with a guard that is broken, the tests fail and the metadata
service of wherever they run is left in peace.
"""

import asyncio
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
import pytest_asyncio
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from mainspring.domain.addresses import Network, parse_address, parse_networks, plain
from mainspring.domain.settling import Discarded, Outcome
from mainspring.environment import SystemEnvironment
from mainspring.worker.secrets import SecretsByScheme
from mainspring.worker.targets.http import HttpConfig, HttpTarget

from .attempts import attempt, reason, result
from .origin import Origin, Received, answers, origin

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.covers("F102")]


@pytest.fixture(autouse=True)
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that this test dials, in the order of dialling."""
    seen: list[str] = []
    connect = BaseSelectorEventLoop.sock_connect

    async def sock_connect(loop: BaseSelectorEventLoop, sock: socket.socket, address: tuple[str, int]) -> None:
        seen.append(address[0])
        found = parse_address(address[0])
        if found is None or not (plain(found).is_loopback or plain(found).is_unspecified):
            raise ConnectionRefusedError(f"{address[0]} is not on this machine")
        await connect(loop, sock, address)

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", sock_connect)
    return seen


class Names(AbstractResolver):
    """A name server in somebody else's hands: each name has its answers, the next one for every question."""

    def __init__(self, answers: Mapping[str, Sequence[list[str]]]) -> None:
        self._answers = {name: list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        left = self._answers.get(host.rstrip("."))
        if not left:
            raise OSError(None, "there is no such name")
        addresses = left.pop(0) if len(left) > 1 else left[0]
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [ResolveResult(hostname=host, host=a, port=port, family=family, proto=0, flags=flags) for a in addresses]

    async def close(self) -> None:
        pass


INTERNAL = {
    "localhost": ["127.0.0.1", "::1"],
    "internal.example": ["127.0.0.1"],
    "six.example": ["::1"],
    "zero.example": ["0.0.0.0"],
    "unspecified.example": ["::"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "compatible.example": ["::127.0.0.1"],
    "nat64.example": ["64:ff9b::127.0.0.1"],
    "local-nat64.example": ["64:ff9b:1::127.0.0.1"],
    "6to4.example": ["2002:7f00:1::1"],
    "teredo.example": ["2001:0:7f00:1::80ff:fffe"],
    "isatap.example": ["2606:4700::5efe:127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "metadata6.example": ["fd00:ec2::254"],
    "carrier.example": ["100.100.100.200"],
    "wire.example": ["168.63.129.16"],
    "private.example": ["10.0.0.1", "172.16.0.1", "192.168.0.1"],
    "unique-local.example": ["fd00::1"],
    "link-local.example": ["fe80::1%lo"],
    "multicast.example": ["224.0.0.1"],
    "broadcast.example": ["255.255.255.255"],
    "spelled.example": ["127.1"],  # a name server that answers in no canonical form, which would be looked up again
    "alias.example": ["localhost"],
    "hexadecimal.example": ["0x7f000001"],
    "xn--nxasmq6b.example": ["127.0.0.1"],
}

# {port} is the canary's; it is among the ports that are open, so that nothing but the address keeps it safe.
FORMS = [
    *("http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "http://127.0.0.2:{port}/", "HTTP://127.0.0.1:{port}/"),
    *("http://127.1:{port}/", "http://127.0.1:{port}/", "http://0x7f.1:{port}/", "http://0177.1:{port}/"),
    *("http://2130706433:{port}/", "http://017700000001:{port}/", "http://0x7f000001:{port}/", "http://0:{port}/"),
    *(
        "http://0x7f.0x0.0x0.0x1:{port}/",
        "http://0177.0.0.01:{port}/",
        "http://127.0.0.1.:{port}/",
        "http://0.0.0.0:{port}/",
    ),
    *("http://[::1]:{port}/", "http://[::]:{port}/", "http://[0:0:0:0:0:0:0:1]:{port}/", "http://[0000::0001]:{port}/"),
    *(
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::ffff:7f00:1]:{port}/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
    ),
    *("http://[::127.0.0.1]:{port}/", "http://[::7f00:1]:{port}/", "http://[::ffff:0:127.0.0.1]:{port}/"),
    *("http://[64:ff9b::127.0.0.1]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://[64:ff9b:1::7f00:1]:{port}/"),
    *("http://[2002:7f00:1::]:{port}/", "http://[2001:0:7f00:1::1]:{port}/", "http://[2606:4700::5efe:7f00:1]:{port}/"),
    *(
        "http://[::1%25lo]:{port}/",
        "http://[::1%lo]:{port}/",
        "http://[fe80::1%25lo]:{port}/",
        "http://[fe80::1]:{port}/",
    ),
    *("http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/latest/", "http://100.100.100.200/latest/"),
    *("http://192.0.0.192/", "http://168.63.129.16/", "http://[::ffff:169.254.169.254]/", "http://2852039166/"),
    *("http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://198.18.0.1/"),
    *("http://224.0.0.1/", "http://255.255.255.255/", "http://240.0.0.1/", "http://192.88.99.1/", "http://[ff02::1]/"),
    *("http://[fc00::1]/", "http://[fec0::1]/", "http://[100::1]/", "http://[2001:db8::1]/", "http://[3fff::1]/"),
    *(f"http://{name}:{{port}}/" for name in INTERNAL),
    *(
        "http://localhost.:{port}/",
        "http://LOCALHOST:{port}/",
        "http://localhost..:{port}/",
        "http://lOcAlHoSt:{port}/",
    ),
    *("http://example.com@127.0.0.1:{port}/", "http://a:b@127.0.0.1:{port}/", "http://@127.0.0.1:{port}/"),
    *("http://127.0.0.1:{port}#@example.com/", "http://127.0.0.1:{port}\\@example.com/", "http:\\\\127.0.0.1:{port}\\"),
    *("http:/127.0.0.1:{port}/", "http:127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http:///127.0.0.1:{port}/"),
    *(
        "http://１２７.０.０.１:{port}/",
        "http://127。0。0。1:{port}/",
        "http://①②⑦.0.0.1:{port}/",
        "http://ⓛocalhost:{port}/",
    ),
    *("http://%6c%6f%63alhost:{port}/", "http://127%2e0%2e0%2e1:{port}/", "http://127.0.0.1%00.example.com:{port}/"),
    *(
        "http://127.0.0.1:{port}\r\n/",
        "http://127.0.0.1\t:{port}/",
        " http://127.0.0.1:{port}/",
        "http://127.0.0.1 :{port}/",
    ),
    *("file:///etc/passwd", "gopher://127.0.0.1:{port}/_GET", "ftp://127.0.0.1:{port}/", "data:text/plain,x"),
    *("unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "tcp://127.0.0.1:{port}/"),
    *("ws://127.0.0.1:{port}/", "dict://127.0.0.1:{port}/", "javascript:0", "jar:http://127.0.0.1:{port}/!/"),
]


ON_LOOPBACK = [
    *("http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/"),
    *("http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://0.0.0.0:{port}/", "http://[::]:{port}/"),
    *("http://localhost:{port}/", "http://internal.example:{port}/", "http://six.example:{port}/"),
    *("http://mapped.example:{port}/", "http://zero.example:{port}/", "http://unspecified.example:{port}/"),
]


@asynccontextmanager
async def target(
    *ports: int, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), names: Mapping[str, Sequence[list[str]]] = {}
) -> AsyncIterator[HttpTarget]:
    config = HttpConfig(
        ports=frozenset({80, 443, *ports}),
        allow_networks=networks(*allow),
        deny_networks=networks(*deny),
    )
    resolver = Names({**{name: [addresses] for name, addresses in INTERNAL.items()}, **names})
    async with HttpTarget(config, SecretsByScheme(), SystemEnvironment(), resolver=resolver) as opened:
        yield opened


def networks(*given: str) -> tuple[Network, ...]:
    return parse_networks(given, field="http.allow_networks")


async def call(opened: HttpTarget, url: str, **more: object) -> Outcome:
    async with asyncio.timeout(20):
        return await opened.run(attempt({"method": "GET", "url": url, "timeout": "10s", **more}))


@asynccontextmanager
async def canary_on(*hosts: str) -> AsyncIterator[list[Origin]]:
    """Servers on these addresses, all on one port, that nobody should ever reach."""
    async with origin(answers(200, "the crown jewels"), host=hosts[0]) as first:
        if len(hosts) == 1:
            yield [first]
        else:
            async with origin(answers(200, "the crown jewels"), host=hosts[1], port=first.port) as second:
                yield [first, second]


@pytest_asyncio.fixture(loop_scope="session")
async def canary() -> AsyncIterator[list[Origin]]:
    async with canary_on("127.0.0.1", "::1") as servers:
        yield servers


def reached(canary: list[Origin]) -> int:
    return sum(server.connections for server in canary)


async def test_there_are_enough_forms() -> None:
    assert len(set(FORMS)) == len(FORMS) > 100


async def test_the_net_lets_nothing_off_this_machine(dialled: list[str]) -> None:
    with socket.socket() as sock, pytest.raises(ConnectionRefusedError, match="not on this machine"):
        await asyncio.get_running_loop().sock_connect(sock, ("192.0.2.1", 80))

    assert dialled == ["192.0.2.1"]


async def test_the_canary_sings_for_whoever_may_come(canary: list[Origin]) -> None:
    port = canary[0].port
    async with target(port, allow=("127.0.0.0/8", "::1", "0.0.0.0/8", "::")) as opened:
        for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "0.0.0.0", "[::]", "mapped.example"):
            before = reached(canary)

            outcome = await call(opened, f"http://{host}:{port}/")

            assert result(outcome)["body"] == "the crown jewels", host
            assert reached(canary) == before + 1


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_of_an_internal_address_reaches_nothing(
    form: str, canary: list[Origin], dialled: list[str]
) -> None:
    port = canary[0].port
    async with target(port) as opened:
        outcome = await call(opened, form.format(port=port))

    assert isinstance(outcome, Discarded), outcome
    assert outcome.reason
    assert dialled == []
    assert reached(canary) == 0


async def test_nor_does_one_on_the_other_event_loop() -> None:
    async def main() -> None:
        async with canary_on("127.0.0.1", "::1") as canary, target(canary[0].port) as opened:
            for form in ON_LOOPBACK:  # there is no net below this loop
                outcome = await call(opened, form.format(port=canary[0].port))

                assert isinstance(outcome, Discarded), (form, outcome)
            assert reached(canary) == 0

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    await asyncio.to_thread(run)


async def test_a_refusal_names_host_address_and_setting(canary: list[Origin]) -> None:
    async with target(canary[0].port) as opened:
        said = reason(await call(opened, f"http://internal.example:{canary[0].port}/"))

    assert said == (
        "internal.example may not be called: 127.0.0.1 is not public (loopback); http.allow_networks may let it through"
    )


@pytest.mark.parametrize("form", FORMS)
async def test_a_redirect_to_any_of_them_reaches_nothing(form: str, dialled: list[str]) -> None:
    # 127.0.0.1 stands for the public network here, and 127.0.0.2 and ::1 for what is inside.
    async with canary_on("127.0.0.2", "::1") as canary:
        location = form.replace("127.0.0.1", "127.0.0.2").format(port=canary[0].port).replace("\r\n", "")
        moved = answers(302, Location=location.encode().decode("latin-1"))
        names = {name: [["127.0.0.2"]] for name, addresses in INTERNAL.items() if addresses[0] == "127.0.0.1"}
        async with origin(moved) as public, target(canary[0].port, allow=("127.0.0.1",), names=names) as opened:
            outcome = await call(opened, public.url("/x"), redirects=5)

        assert len(public.requests) >= 1
        assert outcome.word in ("discarded", "failed")  # the latter if it was sent back to the public one
        assert {str(plain(ip_address(address))) for address in dialled} == {"127.0.0.1"}
        assert reached(canary) == 0


async def test_a_chain_of_redirects_is_judged_at_every_link() -> None:
    async with canary_on("127.0.0.2") as canary:

        async def on(request: Received, writer: asyncio.StreamWriter) -> None:
            step = int(request.path[1:])
            where = canary[0].url("/in") if step == 3 else f"/{step + 1}"
            await answers(307, Location=where)(request, writer)

        async with origin(on) as public, target(allow=("127.0.0.1",)) as opened:
            said = reason(await call(opened, public.url("/1"), redirects=10))

        assert [request.path for request in public.requests] == ["/1", "/2", "/3"]
        assert "127.0.0.2 is not public" in said
        assert reached(canary) == 0


@pytest.mark.parametrize("remembered", [True, False])
async def test_a_name_that_changes_its_mind_is_judged_by_what_is_dialled(*, remembered: bool) -> None:
    async with canary_on("127.0.0.2") as canary:
        port = canary[0].port
        names = Names({"rebinding.example": [["127.0.0.1"], ["127.0.0.2"]]})
        config = HttpConfig(allow_networks=networks("127.0.0.1"), names_for=HttpConfig().names_for * remembered)
        async with (
            origin(answers(200, "public", close=True), port=port) as public,
            HttpTarget(config, SecretsByScheme(), SystemEnvironment(), resolver=names) as opened,
        ):
            url = f"http://rebinding.example:{port}/"
            first, second = await call(opened, url), await call(opened, url)

        assert result(first)["body"] == "public"
        if remembered:  # the first answer is still used, and it is the one that was judged
            assert result(second)["body"] == "public"
            assert (len(names.asked), public.connections) == (1, 2)
        else:
            assert "127.0.0.2 is not public" in reason(second)
            assert (len(names.asked), public.connections) == (2, 1)
        assert reached(canary) == 0


async def test_an_open_connection_is_not_lent_to_a_name_that_moved_inside() -> None:
    async with canary_on("127.0.0.2") as canary:
        names = Names({"one.example": [["127.0.0.1"], ["127.0.0.2"]], "two.example": [["127.0.0.2"]]})
        config = HttpConfig(allow_networks=networks("127.0.0.1"), names_for=HttpConfig().names_for * 0)
        async with (
            origin(answers(200, "public"), port=canary[0].port) as public,
            HttpTarget(config, SecretsByScheme(), SystemEnvironment(), resolver=names) as opened,
        ):
            kept = [await call(opened, f"http://one.example:{public.port}/") for _ in range(3)]
            other = await call(opened, f"http://two.example:{public.port}/")

        assert [result(each)["body"] for each in kept] == ["public"] * 3
        assert public.connections == 1  # to the address that was judged
        assert "127.0.0.2 is not public" in reason(other)
        assert reached(canary) == 0


@pytest.mark.parametrize("addresses", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.2", "::1"]])
async def test_of_a_name_with_many_addresses_only_the_open_ones_are_dialled(addresses: list[str]) -> None:
    async with canary_on("127.0.0.2", "::1") as canary:  # and nobody listens where it may go
        async with target(allow=("127.0.0.1",), names={"mixed.example": [addresses]}) as opened:
            outcome = await call(opened, f"http://mixed.example:{canary[0].port}/")

        assert outcome.word in ("failed", "discarded")
        assert reached(canary) == 0


async def test_what_is_denied_stays_closed_inside_what_is_allowed(canary: list[Origin]) -> None:
    port = canary[0].port
    async with target(allow=("127.0.0.0/8", "::/0"), deny=("127.0.0.1", "::1")) as opened:
        for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "localhost", "internal.example"):
            said = reason(await call(opened, f"http://{host}:{port}/"))

            assert "is denied by http.deny_networks" in said, host
    assert reached(canary) == 0


async def test_a_public_address_on_another_port_is_not_dialled(dialled: list[str]) -> None:
    async with target() as opened:
        said = reason(await call(opened, "http://192.0.78.1:25/"))

    assert said == "192.0.78.1 may not be called: 192.0.78.1 is public, and port 25 is not among http.ports"
    assert dialled == []


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
async def test_no_proxy_dials_for_us(name: str, canary: list[Origin], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, canary[0].url())
    async with target(canary[0].port) as opened:
        for url in ("http://internal.example/", "http://10.0.0.1/", "https://internal.example/"):
            assert isinstance(await call(opened, url), Discarded)

    assert reached(canary) == 0
