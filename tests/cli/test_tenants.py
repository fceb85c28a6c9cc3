"""``mainspring tenants`` and ``mainspring keys``: what an operator does, and what is written down of it."""

from typing import Any

import pytest

from mainspring.domain.keys import KeyView
from mainspring.store.keys import find_key
from tests.store.ledger import Ledger

from .conftest import Shell, Terminal

NOBODY = "00000000-0000-0000-0000-000000000000"


def logged(shell: Shell) -> list[dict[str, Any]]:
    query = "SELECT tenant, action, subject, before::text, after::text, reason FROM changes ORDER BY at"
    return shell.ledger(lambda ledger: ledger.rows(query))


def looked_up(shell: Shell, text: str) -> KeyView | None:
    async def use(ledger: Ledger) -> KeyView | None:
        return await find_key(ledger.db, text)

    return shell.ledger(use)


def test_a_tenant_from_beginning_to_end(shell: Shell) -> None:
    made = shell.json("tenants", "create", "acme", "--quota", "jobs=5", "--quota", "shortest_interval=1m")
    assert (made["name"], made["state"], made["quotas"]["jobs"]) == ("acme", "active", 5)
    assert made["quotas"]["shortest_interval"] == "1m"

    edited = shell.json("tenants", "edit", "acme", "--quota", "jobs=7", "--note", "grows", "--reason", "asked")
    assert (edited["quotas"]["jobs"], edited["quotas"]["shortest_interval"], edited["note"]) == (7, "1m", "grows")
    assert shell.json("tenants", "show", "acme") == edited
    assert shell.good("tenants", "suspend", "acme", "--reason", "unpaid").out == 'tenant "acme" is suspended\n'
    assert shell.good("tenants", "resume", "acme").out == 'tenant "acme" is active\n'
    assert [each["name"] for each in shell.good("tenants", "list", "-o", "json").items] == ["acme", "default"]
    assert shell.json("tenants", "delete", "acme", "--yes")["state"] == "deleted"
    assert [each["name"] for each in shell.good("tenants", "list", "-o", "json").items] == ["default"]
    assert "acme" in shell.good("tenants", "list", "--deleted").out

    log = logged(shell)
    assert [entry["action"].partition(".")[2] for entry in log] == ["create", "edit", "edit", "edit", "delete"]
    assert [entry["after"] for entry in log[2:4]] == ['{"state": "suspended"}', '{"state": "active"}']
    assert {(entry["tenant"], entry["subject"]) for entry in log} == {(None, "acme")}
    assert [entry["reason"] for entry in log] == ["", "asked", "unpaid", "", ""]
    assert '"jobs": 5' in log[1]["before"]
    assert '"jobs": 7' in log[1]["after"]


def test_what_can_go_wrong_with_a_tenant(shell: Shell) -> None:
    shell.good("tenants", "create", "acme")
    shell.good("jobs", "put", "nightly", "--every", "1m", "--task", "noop", "--tenant", "acme")

    shell.refused("tenants", "show", "nobody", status=3, because='there is no tenant "nobody"')
    shell.refused("tenants", "edit", "nobody", status=3, because='there is no tenant "nobody"')
    shell.refused("tenants", "create", "acme", status=4, because="already, or was")
    shell.refused("tenants", "create", "Acme!", status=2, because="is no name for a tenant")
    shell.refused("tenants", "create", "b", "--quota", "jobs", status=2, because="write it as jobs=500")
    shell.refused("tenants", "create", "b", "--quota", "jbs=5", status=2, because='there is no quota "jbs"')
    shell.refused("tenants", "create", "b", "--quota", "jobs=many", status=2, because="use a whole number")
    shell.refused("tenants", "delete", "acme", "--yes", status=4, because='tenant "acme" has 1 job left')
    assert [entry["action"] for entry in logged(shell)] == ["tenants.create"], "what was refused is not in the log"


def test_deleting_asks_first(shell: Shell) -> None:
    shell.good("tenants", "create", "acme")

    assert shell("tenants", "delete", "acme").status == 2
    assert shell("tenants", "delete", "acme", stdin=Terminal("n\n")).status == 130
    assert shell.json("tenants", "show", "acme")["state"] == "active"


def test_tenants_by_the_page(shell: Shell) -> None:
    for name in ("a", "b"):
        shell.good("tenants", "create", name)

    first = shell("tenants", "list", "-n", "2", "-o", "id")

    assert (first.out, first.err) == ("a\nb\n", "there are more: --after b\n")
    assert shell.good("tenants", "list", "--after", "b", "-o", "id").out == "default\n"


def test_a_key_is_shown_once_and_lets_somebody_in_until_it_is_revoked(shell: Shell) -> None:
    shell.good("tenants", "create", "acme")

    said = shell.good("keys", "create", "ci", "--tenant", "acme", "--role", "editor")
    text = said.out.strip()
    key = looked_up(shell, text)

    assert said.err == "keep it: it is not shown again\n"
    assert key is not None
    assert (key.tenant, key.name, key.role, key.good, key.expires_at) == ("acme", "ci", "editor", True, None)
    listed = shell.good("keys", "list", "--tenant", "acme")
    assert text not in listed.out
    assert f"ms_{key.prefix}…" in listed.out
    assert shell.good("keys", "list").out == "no keys\n"
    assert shell.good("keys", "revoke", str(key.id), "--reason", "leaked").out == 'key "ci" is revoked\n'
    after = looked_up(shell, text)
    assert after is not None
    assert not after.good
    assert shell.good("keys", "list", "--tenant", "acme").out == "no keys\n"
    assert "revoked" in shell.good("keys", "list", "--all", "--revoked").out
    log = logged(shell)[1:]
    assert [(entry["tenant"], entry["action"], entry["subject"]) for entry in log] == [
        ("acme", "keys.create", "ci"),
        ("acme", "keys.revoke", "ci"),
    ]
    assert text[3:20] not in str(log)


def test_a_key_of_the_whole_cluster_that_expires(shell: Shell) -> None:
    made = shell.json("keys", "create", "ops", "--cluster", "--role", "admin", "--expires-in", "90d")

    key = looked_up(shell, made["key"])
    assert key is not None
    assert (key.tenant, key.role, str(key.id)) == (None, "admin", made["id"])
    assert key.expires_at is not None
    assert 89 <= (key.expires_at - key.created_at).days <= 90
    assert "(the cluster)" in shell.good("keys", "list", "--all").out


@pytest.mark.parametrize(
    ("words", "status", "because"),
    [
        (("create", "ci", "--role", "god"), 2, "is not one of"),
        (("create", "ci", "--tenant", "nobody"), 3, 'there is no tenant "nobody"'),
        (("create", "ci", "--expires-in", "soon"), 2, "is not a duration"),
        (("create", ""), 2, "is no name"),
        (("revoke", NOBODY), 3, "there is no key"),
        (("revoke", "x"), 2, "is not a valid UUID"),
        (("list", "--after", "x"), 2, "is no cursor"),
    ],
)
def test_what_can_go_wrong_with_a_key(shell: Shell, words: tuple[str, ...], status: int, because: str) -> None:
    shell.refused("keys", *words, status=status, because=because)
    assert logged(shell) == []
