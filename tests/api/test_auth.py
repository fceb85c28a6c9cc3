"""Who is behind a request: keys, tokens, nobody; tenants that are closed; and where a server may be bound."""

from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest

from mainspring.api import auth
from mainspring.api.auth import (
    KNOWN_FOR,
    TENANT_FOR,
    UNKNOWN_FOR,
    Authenticator,
    authentication_required,
    check_exposure,
)
from mainspring.api.jose import keys_of_settings
from mainspring.api.tokens import FixedKeys, Tokens, token_rules
from mainspring.config.settings import AuthSettings
from mainspring.config.values import TokenKey
from mainspring.domain.access import Principal, Role, Scope
from mainspring.domain.errors import Forbidden, InvalidRequest, NotFound, StoreUnavailable, Unauthenticated
from mainspring.testing.clock import ManualEnvironment

from .forging import NOW, Issuer

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY, CLUSTER_KEY = "ms_" + "k" * 43, "ms_" + "c" * 43
OF_KEY = Principal(subject="ci", tenant="shop", role=Role.OPERATOR, key_id=UUID(int=1))
OF_CLUSTER = Principal(subject="ops", tenant="default", role=Role.ADMIN, cluster=True, key_id=UUID(int=2))


class Store:
    """Keys and tenants as a database would have them; counts the questions, and can be away."""

    def __init__(self) -> None:
        self.keys = {sha256(KEY.encode()).digest(): OF_KEY, sha256(CLUSTER_KEY.encode()).digest(): OF_CLUSTER}
        self.tenants = {"shop": "active", "default": "active", "other": "active"}
        self.asked = 0
        self.away = False
        self.takes = timedelta(0)
        self.environment = ManualEnvironment()

    async def find(self, digest: bytes) -> Principal | None:
        self._ask()
        found = self.keys.get(digest)
        await self.environment.advance(self.takes)  # the answer was read at the beginning of this
        return found

    async def state(self, name: str) -> str | None:
        self._ask()
        return self.tenants.get(name)

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("the database cannot be reached")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


def authenticator(store: Store, *, issuer: Issuer | None = None, required: bool = True) -> Authenticator:
    tokens = None
    if issuer is not None:
        keys = FixedKeys(keys_of_settings(issuer.settings, issuer.environ))
        tokens = Tokens(token_rules(issuer.settings), keys, environment=store.environment)
    return Authenticator(required=required, tokens=tokens, keys=store, tenants=store, environment=store.environment)


async def who(
    it: Authenticator, header: str | None, *, local: bool = False, acting_for: str | None = None
) -> Principal:
    return await it.principal(header, peer_is_loopback=local, acting_for=acting_for)


async def refused(it: Authenticator, header: str | None, *, local: bool = False) -> str:
    with pytest.raises(Unauthenticated) as error:
        await who(it, header, local=local)
    return error.value.reason


async def test_a_key_and_a_token_say_who_is_asking(store: Store, issuer: Issuer) -> None:
    it = authenticator(store, issuer=issuer)

    assert await who(it, f"Bearer {KEY}") == OF_KEY
    assert (await who(it, f"bearer {issuer.token()}")).subject == "ann"


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "Bearer",
        "Bearer ",
        f"Basic {KEY}",
        f"Token {KEY}",
        KEY,
        f"Bearer{KEY}",
        f" Bearer {KEY}",
        f"Bearer {KEY} ",
        f"Bearer {KEY}, Bearer {KEY}",
        f"Bearer {KEY}\n",
        f"Bearer\t{KEY}",
        f"Bearer {KEY}\x00",
        f"Bearer {KEY}é",
        f"Bearer {KEY}.",
        f"Bearer {KEY[:10]}",
        f"Bearer {KEY}{'k' * 300}",
        f"Bearer {KEY}=",
    ],
)
async def test_other_headers_say_nothing_not_even_on_this_machine(header: str, store: Store, issuer: Issuer) -> None:
    for required in (True, False):
        it = authenticator(store, issuer=issuer, required=required)

        assert await refused(it, header, local=True) == "malformed"
    assert store.asked == 0


@pytest.mark.covers("F118")
async def test_without_a_header_only_this_machine_gets_in_and_only_while_that_is_allowed(store: Store) -> None:
    closed, opened = authenticator(store, required=True), authenticator(store, required=False)

    local = await who(opened, None, local=True)

    assert (local.subject, local.tenant, local.role, local.cluster) == ("local", "default", Role.ADMIN, True)
    assert await refused(opened, None, local=False) == "missing"
    assert await refused(closed, None, local=True) == "missing"
    assert await refused(closed, None, local=False) == "missing"


async def test_a_bad_key_is_refused_though_none_is_needed(store: Store, issuer: Issuer) -> None:
    it = authenticator(store, required=False)

    assert await refused(it, f"Bearer ms_{'x' * 43}", local=True) == "untrusted"
    assert await refused(it, f"Bearer {issuer.token()}", local=True) == "untrusted"  # no keys are set for tokens


@pytest.mark.covers("F101")
async def test_a_revoked_key_is_refused_within_ten_seconds(store: Store) -> None:
    it = authenticator(store)
    await who(it, f"Bearer {KEY}")

    store.keys.clear()
    await store.environment.advance(KNOWN_FOR - timedelta(milliseconds=1))
    assert await who(it, f"Bearer {KEY}") == OF_KEY
    await store.environment.advance(timedelta(milliseconds=1))

    assert timedelta(seconds=10) >= KNOWN_FOR
    assert await refused(it, f"Bearer {KEY}") == "untrusted"


@pytest.mark.covers("F101")
async def test_the_bound_holds_though_the_answer_took_long(store: Store) -> None:
    it = authenticator(store)
    store.takes = timedelta(seconds=8)
    await who(it, f"Bearer {KEY}")  # what it knows is eight seconds old by now

    store.keys.clear()
    await store.environment.advance(timedelta(seconds=2))

    assert await refused(it, f"Bearer {KEY}") == "untrusted"


async def test_a_new_key_is_good_within_a_second(store: Store) -> None:
    it, new = authenticator(store), "ms_" + "n" * 43
    assert await refused(it, f"Bearer {new}") == "untrusted"

    store.keys[sha256(new.encode()).digest()] = OF_KEY
    await store.environment.advance(UNKNOWN_FOR)

    assert await who(it, f"Bearer {new}") == OF_KEY


async def test_a_key_is_over_at_its_time_though_it_is_remembered(store: Store) -> None:
    it = authenticator(store)
    short = Principal(subject="ci", tenant="shop", role=Role.VIEWER, expires_at=NOW + timedelta(seconds=3))
    store.keys[sha256(KEY.encode()).digest()] = short
    assert await who(it, f"Bearer {KEY}") == short

    await store.environment.advance(timedelta(seconds=3))

    assert await refused(it, f"Bearer {KEY}") == "expired"


async def test_what_is_remembered_is_not_asked_again(store: Store) -> None:
    it = authenticator(store)
    for _ in range(100):
        await who(it, f"Bearer {KEY}")
        await refused(it, f"Bearer ms_{'x' * 43}")

    assert store.asked == 3  # the key, its tenant, and the key that is none


async def test_made_up_keys_fill_no_memory_and_push_nobody_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MOST_REMEMBERED", 10)
    it = authenticator(store)
    await who(it, f"Bearer {KEY}")

    for number in range(100):
        await refused(it, f"Bearer ms_{number:043}")
    asked = store.asked
    await who(it, f"Bearer {KEY}")

    assert store.asked == asked
    assert [len(each._kept) for each in (it._known, it._unknown)] == [1, 10]


@pytest.mark.covers("F101")
@pytest.mark.parametrize("state", ["suspended", "deleted", None])
async def test_a_closed_tenant_is_refused_within_five_seconds(state: str | None, store: Store, issuer: Issuer) -> None:
    it, headers = authenticator(store, issuer=issuer), (f"Bearer {KEY}", f"Bearer {issuer.token()}")
    for header in headers:
        assert (await who(it, header)).tenant == "shop"

    if state is None:
        del store.tenants["shop"]
    else:
        store.tenants["shop"] = state
    await store.environment.advance(TENANT_FOR)

    assert timedelta(seconds=5) >= TENANT_FOR
    assert [await refused(it, header) for header in headers] == ["tenant_closed"] * 2
    store.tenants["shop"] = "active"
    await store.environment.advance(TENANT_FOR)
    assert (await who(it, headers[0])).tenant == "shop"


@pytest.mark.covers("F101")
async def test_a_token_of_the_cluster_that_names_a_closed_tenant_is_refused(store: Store, issuer: Issuer) -> None:
    it = authenticator(store, issuer=issuer)
    store.tenants["shop"] = "deleted"

    assert await refused(it, f"Bearer {issuer.token(cluster=True)}") == "tenant_closed"
    assert (await who(it, f"Bearer {issuer.token(cluster=True, tenant=...)}")).cluster


async def test_the_cluster_acts_for_a_tenant_that_it_names(store: Store) -> None:
    it = authenticator(store)
    store.tenants |= {"held": "suspended", "old": "deleted"}

    assert (await who(it, f"Bearer {CLUSTER_KEY}")).tenant == "default"
    assert (await who(it, f"Bearer {CLUSTER_KEY}", acting_for="other")).tenant == "other"
    assert (await who(it, f"Bearer {CLUSTER_KEY}", acting_for="held")).may(Scope.JOBS_READ)  # somebody has to
    for name in ("old", "none", "", "x" * 10_000):
        with pytest.raises(NotFound, match="there is no tenant"):
            await who(it, f"Bearer {CLUSTER_KEY}", acting_for=name)


@pytest.mark.covers("F98")
async def test_a_tenant_acts_for_itself_alone(store: Store, issuer: Issuer) -> None:
    it = authenticator(store, issuer=issuer)
    messages = set()

    for header in (f"Bearer {KEY}", f"Bearer {issuer.token(role='admin')}"):
        assert (await who(it, header, acting_for="shop")).tenant == "shop"
        for name in ("other", "no-such-tenant", "SHOP", "shop ", ""):
            with pytest.raises(Forbidden) as error:
                await who(it, header, acting_for=name)
            messages.add(str(error.value))

    assert len(messages) == 1  # those that exist and those that do not are not told apart
    assert store.asked == 2  # nor by the time it takes


async def test_a_database_that_is_away_lets_nobody_in(store: Store, issuer: Issuer) -> None:
    it = authenticator(store, issuer=issuer)
    await who(it, f"Bearer {KEY}")
    store.away = True

    assert await who(it, f"Bearer {KEY}") == OF_KEY  # for as long as that is known
    await store.environment.advance(KNOWN_FOR)
    for header in (f"Bearer {KEY}", f"Bearer {issuer.token()}", f"Bearer {CLUSTER_KEY}"):
        with pytest.raises(StoreUnavailable):
            await who(it, header)


KEYS = (TokenKey(kid="a", algorithm="HS256", secret="env:X"),)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "::ffff:127.0.0.1", "[::1]"])
async def test_on_loopback_anything_goes(host: str) -> None:
    for settings in (AuthSettings(), AuthSettings(required=False), AuthSettings(required=True)):
        check_exposure(host, settings)

    assert not authentication_required(host, AuthSettings())
    assert authentication_required(host, AuthSettings(keys=KEYS))
    assert authentication_required(host, AuthSettings(required=True))
    assert not authentication_required(host, AuthSettings(keys=KEYS, required=False))


@pytest.mark.covers("F118")
@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "",
        "10.0.0.1",
        "192.168.1.1",
        "example.com",
        "127.0.0.1.nip.io",
        "localhost.",
        "2130706433",
        "*",
    ],
)
async def test_anywhere_else_only_with_authentication(host: str) -> None:
    for settings in (AuthSettings(), AuthSettings(required=False), AuthSettings(keys=KEYS, required=False)):
        with pytest.raises(InvalidRequest) as error:
            check_exposure(host, settings)
        assert error.value.field == "api.host"
        assert error.value.allowed == (
            "set auth.keys, or create an API key and set auth.required = true, or bind to 127.0.0.1"
        )
        assert authentication_required(host, settings)  # even if somebody forgot to ask

    check_exposure(host, AuthSettings(keys=KEYS))
    check_exposure(host, AuthSettings(required=True))
