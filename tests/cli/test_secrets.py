"""``mainspring secrets``: values come from files and standard input, and never come out."""

import base64
import io
from pathlib import Path

import pytest

from mainspring.sealing import Sealer, key_id
from mainspring.store.secrets import open_secret

from .conftest import Shell

OLD, NEW = b"o" * 32, b"n" * 32
VALUE = "hunter2-canary"


@pytest.fixture
def keyed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell with a key to seal with."""
    monkeypatch.setenv("OLD_KEY", base64.b64encode(OLD).decode())
    monkeypatch.setenv("NEW_KEY", base64.b64encode(NEW).decode())
    monkeypatch.setenv("MAINSPRING_SECRETS__SEAL_WITH", "env:OLD_KEY")
    return shell


def opened(shell: Shell, name: str, *, key: bytes = OLD, tenant: str = "default") -> str:
    return shell.ledger(lambda ledger: open_secret(ledger.db, tenant, name, Sealer(key)))


def test_a_secret_is_put_from_a_file_and_listed_without_its_value(keyed: Shell, tmp_path: Path) -> None:
    (tmp_path / "value").write_text(VALUE + "\n")

    made = keyed.json("secrets", "put", "smtp", "--from-file", str(tmp_path / "value"))
    said = keyed.good("secrets", "list")

    assert (made["name"], made["version"], made["key_id"]) == ("smtp", 1, key_id(OLD))
    assert opened(keyed, "smtp") == VALUE
    assert "smtp" in said.out
    assert VALUE not in said.out + str(made) + str(keyed.json("secrets", "list"))


def test_a_secret_is_put_from_standard_input_for_a_tenant(keyed: Shell) -> None:
    said = keyed("secrets", "put", "smtp", "--tenant", "acme", stdin=io.StringIO(f"{VALUE}\n"))

    assert (said.status, said.out) == (0, 'secret "smtp" is at version 1; workers use it within a minute\n')
    assert opened(keyed, "smtp", tenant="acme") == VALUE
    assert keyed.json("secrets", "list")["items"] == []


def test_no_command_takes_a_value_as_an_argument(keyed: Shell) -> None:
    keyed.refused("secrets", "put", "smtp", VALUE, status=2, because="unexpected extra argument")


def test_nothing_is_no_secret(keyed: Shell) -> None:
    keyed.refused("secrets", "put", "smtp", status=2, because="value: the value cannot be kept")


def test_a_file_that_is_no_text_is_refused(keyed: Shell, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"\xff\xfe")

    keyed.refused("secrets", "put", "smtp", "--from-file", str(tmp_path / "value"), status=2, because="cannot be read")


def test_without_a_key_nothing_is_put(shell: Shell) -> None:
    said = shell("secrets", "put", "smtp", stdin=io.StringIO(VALUE))

    assert said.status == 2
    assert said.err.startswith("error: secrets.seal_with: no key is set; name a key, env:NAME or file:/path")
    assert shell.json("secrets", "list")["items"] == []


def test_a_key_in_place_of_its_name_is_refused_and_not_repeated(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    key = base64.b64encode(OLD).decode()
    monkeypatch.setenv("MAINSPRING_SECRETS__SEAL_WITH", key)

    said = shell("secrets", "put", "smtp", stdin=io.StringIO(VALUE))

    assert said.status == 2
    assert "never the secret itself" in said.err
    assert key not in said.err


def test_a_secret_is_deleted(keyed: Shell) -> None:
    keyed("secrets", "put", "smtp", stdin=io.StringIO(VALUE))

    assert keyed.json("secrets", "delete", "smtp") == {"name": "smtp", "deleted": 1}
    keyed.refused("secrets", "delete", "smtp", status=3, because='there is no secret "smtp"')


def test_what_was_done_to_a_secret_is_in_the_log_without_it(keyed: Shell) -> None:
    keyed("secrets", "put", "smtp", "--tenant", "acme", stdin=io.StringIO(VALUE))
    keyed.good("secrets", "delete", "smtp", "--tenant", "acme")

    log = keyed.ledger(lambda ledger: ledger.rows("SELECT * FROM changes ORDER BY at"))
    assert [(entry["tenant"], entry["action"], entry["subject"]) for entry in log] == [
        ("acme", "secrets.put", "smtp"),
        ("acme", "secrets.delete", "smtp"),
    ]
    assert VALUE not in str(log)


def test_rotating_takes_a_new_key_into_use(keyed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        keyed("secrets", "put", name, stdin=io.StringIO(VALUE))
    monkeypatch.setenv("MAINSPRING_SECRETS__SEAL_WITH", "env:NEW_KEY")

    missing = keyed("secrets", "rotate")
    monkeypatch.setenv("MAINSPRING_SECRETS__ALSO_OPEN_WITH", "env:OLD_KEY")
    done = keyed.good("secrets", "rotate")

    assert (missing.status, missing.out) == (1, "0 sealed anew, 2 do not open: their keys are missing\n")
    assert (done.out, done.err) == ("2 sealed anew\n", "2 of 2\n")
    assert opened(keyed, "b", key=NEW) == VALUE
    assert keyed.good("secrets", "rotate").out == "0 sealed anew\n"


def test_a_secret_that_is_written_into_a_job_is_refused(shell: Shell) -> None:
    payload = f'{{"smtp": [{{"password": "{VALUE}"}}]}}'

    said = shell("jobs", "put", "mail", "--on-demand", "--task", "noop", "--payload", payload)

    assert said.status == 2
    assert said.err.startswith("error: payload.smtp[0].password: this is a secret, its name says so")
    assert VALUE not in said.err
    shell.given_job("mail", "--payload", '{"smtp": [{"password": {"$secret": "store:smtp"}}]}')
    edited = shell("jobs", "edit", "mail", "--payload", payload)
    assert (edited.status, VALUE in edited.err) == (2, False)
