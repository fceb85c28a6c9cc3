"""Settings: where they come from, who wins, and everything that is wrong with them at once."""

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from mainspring.config import Loaded, Secret, Settings, Severity, load, settings_or_raise
from mainspring.config.values import TokenKey
from mainspring.domain.errors import InvalidRequest
from mainspring.engines.base import Rhythm
from mainspring.store import nodes
from mainspring.worker.pool import PoolConfig
from mainspring.worker.targets.http import HttpConfig

DSN = "postgresql://jobs:correct-horse@db:5432/jobs"
JWKS = "https://issuer.example/keys"
HMAC_KEY = '[{"kid": "a", "algorithm": "HS256", "secret": "env:TOKEN_SECRET"}]'
PUBLIC_KEY = '[{"kid": "a", "algorithm": "RS256", "public_key_file": "/nonexistent"}]'
TRUSTED = {"AUTH__ISSUER": "them", "AUTH__AUDIENCE": "us"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str, path: str = "mainspring.toml") -> str:
    Path(path).write_text(text)
    return path


def problems(loaded: Loaded) -> list[tuple[str, str]]:
    return [(problem.field, problem.remedy) for problem in loaded.problems]


def test_without_anything_there_are_defaults_and_no_problems() -> None:
    loaded = load(environ={})

    assert loaded.settings == Settings()
    assert loaded.problems == ()
    assert set(loaded.sources.values()) == {"default"}
    assert settings_or_raise(loaded) is loaded.settings


def test_the_defaults_are_those_of_the_parts_they_configure() -> None:
    settings, http, pool = Settings(), HttpConfig(), PoolConfig()

    assert (settings.cluster.lease_ttl, settings.cluster.heartbeat_every) == (nodes.LEASE_FOR, nodes.HEARTBEAT_EVERY)
    assert Rhythm(batch=settings.scheduler.batch, look_every=settings.scheduler.look_every) == Rhythm()
    assert (settings.worker.concurrency, settings.worker.grace) == (pool.concurrency, pool.grace)
    assert settings.worker.cancel_every == pool.cancel_every
    assert (settings.http.ports, settings.http.connect_timeout) == (http.ports, http.connect_within)
    assert (settings.http.timeout, settings.http.largest_response) == (http.answer_within, http.largest_answer)


def test_a_file_is_weaker_than_the_environment_which_is_weaker_than_flags() -> None:
    path = written("[worker]\nconcurrency = 1\ngrace = '1s'\n[cluster]\nlease_ttl = '30s'\n")
    environ = {"MAINSPRING_WORKER__CONCURRENCY": "2", "MAINSPRING_WORKER__GRACE": "2s"}

    loaded = load(environ=environ, flags={"worker.concurrency": 3, "worker.grace": None})

    assert loaded.problems == ()
    assert loaded.settings.worker.concurrency == 3
    assert loaded.settings.worker.grace == timedelta(seconds=2)
    assert loaded.settings.cluster.lease_ttl == timedelta(seconds=30)
    assert loaded.sources["worker.concurrency"] == "flag"
    assert loaded.sources["worker.grace"] == "MAINSPRING_WORKER__GRACE"
    assert loaded.sources["cluster.lease_ttl"] == path
    assert loaded.sources["log.format"] == "default"


def test_which_file_is_read() -> None:
    written("[worker]\nconcurrency = 1\n")
    other, third = (
        written("[worker]\nconcurrency = 2\n", "b.toml"),
        written("[worker]\nconcurrency = 3\n", "c.toml"),
    )

    assert load(environ={}).settings.worker.concurrency == 1
    assert load(environ={"MAINSPRING_CONFIG": other}).settings.worker.concurrency == 2
    assert load(third, environ={"MAINSPRING_CONFIG": other}).settings.worker.concurrency == 3


def test_every_kind_of_value_in_a_file() -> None:
    written(f"""
        [database]
        dsn = "{DSN}"
        [worker]
        pools = {{ short = 40, mail = 4 }}
        modules = ["shop.tasks"]
        [http]
        enabled = true
        allow_networks = ["10.20.0.0/16", "::1"]
        ports = [80, 443]
        [shell.commands]
        backup = ["/usr/local/bin/backup", "--"]
        [secrets]
        environment = ["API_TOKEN"]
        directory = "/"
        [history]
        keep_for = "90d"
        """)

    loaded = load(environ={"API_TOKEN": "x"})

    assert problems(loaded) == []
    settings = loaded.settings
    assert settings.database.dsn == Secret(DSN)
    assert settings.worker.sizes == {"short": 40, "mail": 4}
    assert settings.worker.modules == ("shop.tasks",)
    assert settings.http.allow_networks == (ip_network("10.20.0.0/16"), ip_network("::1"))
    assert settings.http.ports == {80, 443}
    assert settings.shell.commands == {"backup": ("/usr/local/bin/backup", "--")}
    assert settings.secrets.directory == Path("/")
    assert settings.history.keep_for == timedelta(days=90)


def test_every_kind_of_value_in_the_environment() -> None:
    environ = {
        "MAINSPRING_DSN": DSN,
        "MAINSPRING_WORKER__POOLS": "short=40, mail",
        "MAINSPRING_WORKER__MODULES": "shop.tasks, shop.reports",
        "MAINSPRING_HTTP__ENABLED": "no",
        "MAINSPRING_HTTP__DENY_NETWORKS": "10.0.0.0/8,192.168.0.0/16",
        "MAINSPRING_HTTP__PORTS": "80,443",
        "MAINSPRING_SCHEDULER__ENGINE": "poll",
        "MAINSPRING_LOG__FORMAT": "json",
    }

    loaded = load(environ=environ)

    assert problems(loaded) == []
    assert loaded.sources["database.dsn"] == "MAINSPRING_DSN"
    assert loaded.settings.worker.sizes == {"short": 40, "mail": 100}
    assert loaded.settings.worker.modules == ("shop.tasks", "shop.reports")
    assert loaded.settings.http.enabled is False
    assert len(loaded.settings.http.deny_networks) == 2
    assert (loaded.settings.scheduler.engine, loaded.settings.log.format) == ("poll", "json")


def test_keys_of_tokens_in_a_file_and_in_the_environment() -> None:
    path = written("""
        [auth]
        issuer = "https://issuer.example"
        audience = "mainspring"
        required = true
        algorithms = ["ES256"]
        leeway = "30s"
        [[auth.keys]]
        kid = "a"
        algorithm = "HS256"
        secret = "env:TOKEN_SECRET"
        [[auth.keys]]
        kid = "b"
        algorithm = "EdDSA"
        public_key_file = "/etc/hosts"
        """)

    loaded = load(environ={"TOKEN_SECRET": "x" * 32})
    from_variable = load("/dev/null", environ={"MAINSPRING_AUTH__KEYS": HMAC_KEY}).settings.auth

    assert problems(loaded) == []
    assert loaded.sources["auth.keys"] == path
    one, two = loaded.settings.auth.keys
    assert one == TokenKey(kid="a", algorithm="HS256", secret="env:TOKEN_SECRET")
    assert two == TokenKey(kid="b", algorithm="EdDSA", public_key_file=Path("/etc/hosts"))
    assert (loaded.settings.auth.required, loaded.settings.auth.algorithms) == (True, ("ES256",))
    assert loaded.settings.shown()["auth.keys"] == ["a (HS256)", "b (EdDSA)"]
    assert from_variable.keys == (one,)
    assert from_variable.takes_tokens
    assert not Settings().auth.takes_tokens


@pytest.mark.parametrize(
    ("name", "value", "field", "because"),
    [
        ("AUTH__KEYS", "{}", "auth.keys", "it is no list of keys"),
        ("AUTH__KEYS", "correct-horse", "auth.keys", "it is no list of keys"),
        ("AUTH__KEYS", '[{"algorithm": "HS256", "secret": "env:S"}]', "auth.keys.kid", "is no text"),
        ("AUTH__KEYS", '[{"kid": "a", "secret": "env:S"}]', "auth.keys.algorithm", "is no choice"),
        ("AUTH__KEYS", HMAC_KEY.replace("HS256", "none"), "auth.keys.algorithm", "is no choice"),
        ("AUTH__KEYS", HMAC_KEY.replace("HS256", "HS256,RS256"), "auth.keys.algorithm", "is no choice"),
        ("AUTH__KEYS", HMAC_KEY.replace("HS256", "RS256"), "auth.keys", '"a" has algorithm, kid, secret'),
        ("AUTH__KEYS", PUBLIC_KEY.replace("RS256", "HS256"), "auth.keys", '"a" has algorithm, kid, public_key_file'),
        ("AUTH__KEYS", HMAC_KEY.replace("env:TOKEN_SECRET", "correct-horse"), "auth.keys.secret", "it is no reference"),
        ("AUTH__KEYS", PUBLIC_KEY.replace("/non", "non"), "auth.keys.public_key_file", "is relative"),
        ("AUTH__KEYS", f"[{HMAC_KEY[1:-1]}, {HMAC_KEY[1:-1]}]", "auth.keys", 'two keys have the kid "a"'),
        ("AUTH__ALGORITHMS", "HS256", "auth.algorithms", "is no choice"),
        ("AUTH__JWKS_URL", "http://issuer.example/keys", "auth.jwks_url", "it is no URL that can be trusted"),
        ("AUTH__JWKS_URL", "http://127.0.0.1.issuer.example/", "auth.jwks_url", "it is no URL that can be trusted"),
        ("AUTH__JWKS_URL", "https://", "auth.jwks_url", "it is no URL that can be trusted"),
        ("AUTH__JWKS_URL", "https://issuer:99999/", "auth.jwks_url", "it is no URL that can be trusted"),
        ("AUTH__JWKS_URL", "file:///etc/passwd", "auth.jwks_url", "it is no URL that can be trusted"),
        ("AUTH__JWKS_URL", "https://a:correct-horse@issuer.example/", "auth.jwks_url", "it has a password in it"),
        ("AUTH__JWKS_FILE", "keys.json", "auth.jwks_file", "is relative"),
        ("AUTH__LEEWAY", "61s", "auth.leeway", "is out of bounds"),
        ("AUTH__REQUIRED", "perhaps", "auth.required", "is no choice"),
        ("API__PORT", "65536", "api.port", "is out of bounds"),
        ("API__HOST", " ", "api.host", "is no text"),
        ("API__LARGEST_BODY", "1", "api.largest_body", "is out of bounds"),
        ("REDIS__URL", "http://:correct-horse@redis", "redis.url", "it is no address of a Redis"),
        ("REDIS__URL", "redis:///0", "redis.url", "it is no address of a Redis"),
    ],
)
def test_what_cannot_be_set_for_the_api(name: str, value: str, field: str, because: str) -> None:
    loaded = load(environ={f"MAINSPRING_{name}": value})

    (problem,) = loaded.errors
    assert problem.field == field
    assert because in problem.reason
    assert "horse" not in str(loaded.problems)


def test_a_key_set_on_this_machine_needs_no_tls() -> None:
    for url in ("http://127.0.0.1:9000/keys", "http://localhost/keys", "http://[::1]:9000/keys", JWKS):
        loaded = load(environ={"MAINSPRING_AUTH__JWKS_URL": url})

        assert (loaded.settings.auth.jwks_url, loaded.errors) == (url, ())


def test_two_key_sets_are_one_too_many() -> None:
    environ = {"JWKS_URL": JWKS, "JWKS_FILE": "/etc/hosts", "ISSUER": "them", "AUDIENCE": "us"}

    (problem,) = load(environ={f"MAINSPRING_AUTH__{name}": value for name, value in environ.items()}).problems

    assert problem.remedy == "keep one of the two"


def test_the_long_name_of_the_dsn_wins() -> None:
    environ = {"MAINSPRING_DSN": DSN, "MAINSPRING_DATABASE__DSN": "postgresql://other/jobs"}

    assert load(environ=environ).settings.database.dsn == Secret("postgresql://other/jobs")


def test_all_problems_are_listed_at_once() -> None:
    written("""
        colour = "blue"
        log = "json"
        [worker]
        concurency = 4
        grace = "soon"
        [http]
        ports = [0]
        allow_networks = ["10.0.0.1/8"]
        [shell.commands]
        backup = "rm -rf /"
        """)

    loaded = load(environ={"MAINSPRING_CLUSTER__LEASE_TTL": "99d", "MAINSPRING_HTPP__PORTS": "80"})

    found = dict(problems(loaded))
    assert found["worker.concurency"] == "did you mean worker.concurrency?"
    assert found["log"] == "begin a section, [log], and put settings below it"
    assert found["cluster.lease_ttl"] == "use 1s to 10m"
    assert "colour" in found
    assert "htpp.ports" in found
    assert set(found) >= {"worker.grace", "http.ports", "http.allow_networks", "shell.commands"}
    assert {problem.severity for problem in loaded.problems} == {Severity.ERROR}
    assert all(problem.source and problem.remedy for problem in loaded.problems)


def test_raising_names_the_first_and_counts_the_rest() -> None:
    loaded = load(environ={"MAINSPRING_WORKER__GRACE": "soon", "MAINSPRING_LOG__FORMAT": "xml"})

    with pytest.raises(InvalidRequest) as refused:
        settings_or_raise(loaded)

    assert refused.value.exit_status == 2
    assert "log.format" in str(refused.value)
    assert "and 1 more; mainspring config check lists them all" in str(refused.value)
    assert settings_or_raise(loaded, "database") is loaded.settings


@pytest.mark.parametrize(
    ("content", "because"),
    [(None, "it cannot be read: No such file"), ("[worker", "it is no TOML"), ("\xff", "it is no TOML")],
)
def test_a_file_that_cannot_be_read(content: str | None, because: str) -> None:
    if content is not None:
        Path("x.toml").write_bytes(content.encode("latin-1"))

    (problem,) = load("x.toml", environ={}).problems

    assert problem.field == "config"
    assert because in problem.reason
    with pytest.raises(InvalidRequest, match="config: "):
        settings_or_raise(load("x.toml", environ={}), "database")


def test_a_variable_with_one_underscore_is_not_overlooked() -> None:
    (problem,) = load(environ={"MAINSPRING_DATABASE_DSN": DSN}).problems

    assert problem.remedy == "write MAINSPRING_DATABASE__DSN, with two underscores"


def test_empty_variables_and_those_of_others_do_not_count() -> None:
    assert load(environ={"MAINSPRING_WORKER__GRACE": "", "MAINSPRING_DSN": ""}).problems == ()
    environ = {"MAINSPRING_SERVICE_HOST": "10.0.0.1", "MAINSPRING_TESTING": "1", "MAINSPRING_PG_BIN": "/x", "HOME": "/"}

    assert load(environ=environ).problems == ()


@pytest.mark.parametrize(
    ("environ", "field", "because"),
    [
        ({"CLUSTER__HEARTBEAT_EVERY": "3s"}, "cluster.heartbeat_every", "leaves nothing of a lease of 6s"),
        ({"DATABASE__CONNECTIONS": "3"}, "database.connections", "3 are few for 200 runs at once in 2 pools"),
        ({"HTTP__CONNECT_TIMEOUT": "60s"}, "http.connect_timeout", "before it has connected"),
        ({"HTTP__ALLOW_NETWORKS": "0.0.0.0/0"}, "http.allow_networks", "opens every address"),
        (
            {"HTTP__ALLOW_NETWORKS": "10.1.0.0/16", "HTTP__DENY_NETWORKS": "10.0.0.0/8"},
            "http.allow_networks",
            "is denied by http.deny_networks",
        ),
        ({"HISTORY__KEEP_FOR": "2h"}, "history.keep_for", "whole days"),
        ({"SECRETS__ENVIRONMENT": "API_TOKEN"}, "secrets.environment", "API_TOKEN is not set here"),
        ({"SECRETS__ENVIRONMENT": "MAINSPRING_DSN"}, "secrets.environment", "the server's own"),
        ({"SECRETS__DIRECTORY": "/nonexistent"}, "secrets.directory", "is no directory here"),
        ({**TRUSTED, "AUTH__KEYS": HMAC_KEY}, "auth.keys", "TOKEN_SECRET, the secret of a, is not set here"),
        ({**TRUSTED, "AUTH__KEYS": PUBLIC_KEY}, "auth.keys", "/nonexistent is no file here"),
        ({**TRUSTED, "AUTH__JWKS_FILE": "/nonexistent"}, "auth.jwks_file", "is no file here"),
        ({"AUTH__AUDIENCE": "us", "AUTH__JWKS_URL": JWKS}, "auth.issuer", "wherever it comes from"),
        ({"AUTH__ISSUER": "them", "AUTH__JWKS_URL": JWKS}, "auth.audience", "the API refuses to start"),
        ({**TRUSTED, "AUTH__JWKS_URL": JWKS, "AUTH__REQUIRED": "no"}, "auth.required", "asked of nobody"),
        ({"API__HOST": "0.0.0.0", "AUTH__REQUIRED": "no"}, "auth.required", "can be reached from elsewhere"),
    ],
)
def test_what_will_probably_not_do_what_is_meant(environ: dict[str, str], field: str, because: str) -> None:
    loaded = load(environ={f"MAINSPRING_{name}": value for name, value in environ.items()})

    (problem,) = loaded.problems
    assert (problem.severity, problem.field) == (Severity.WARNING, field)
    assert because in problem.reason
    assert settings_or_raise(loaded) is loaded.settings


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (DSN, "postgresql://jobs:***@db:5432/jobs"),
        ("postgresql://jobs:a@b/c@db/jobs", "postgresql://jobs:***@db/jobs"),
        (
            "postgresql://db:5432/jobs?password=horse&sslmode=require",
            "postgresql://db:5432/jobs?password=***&sslmode=require",
        ),
        ("postgresql://jobs@db:5432/jobs", "postgresql://jobs@db:5432/jobs"),
        ("host=db password=horse", "***"),
        ("redis://:horse@redis:6379/0", "redis://:***@redis:6379/0"),
        ("rediss://jobs:horse@redis/0", "rediss://jobs:***@redis/0"),
    ],
)
def test_a_password_is_never_shown(dsn: str, shown: str) -> None:
    assert str(Secret(dsn)) == shown
    assert repr(Secret(dsn)) == f"Secret({shown})"


def test_nothing_that_is_printed_has_the_password() -> None:
    good = load(environ={"MAINSPRING_DSN": DSN})
    bad = load(environ={"MAINSPRING_DSN": DSN.replace("postgresql", "mysql"), "MAINSPRING_DATABASE__PASSWORT": "horse"})

    assert "horse" not in repr(good) + str(good.settings.shown()) + repr(bad)
    assert good.settings.database.dsn is not None
    assert good.settings.database.dsn.value == DSN
