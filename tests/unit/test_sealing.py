"""Sealing: what was sealed opens under its own label and key, and under nothing else; masks; and how keys are read."""

import base64
import html
import json
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from mainspring.config import Settings, values
from mainspring.config.settings import SecretsSettings
from mainspring.domain.errors import InvalidRequest
from mainspring.roles import node_settings
from mainspring.sealing import CannotOpen, Label, Sealed, Sealer, key_id, own_secret, read_sealer
from mainspring.worker.masking import Mask
from tests.linear import in_linear_time

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
LABEL = Label("acme", "smtp", 3)
VALUE = "hunter2 ü\n0451"


def test_what_was_sealed_opens_under_its_label() -> None:
    sealer = Sealer(KEY)

    sealed = sealer.seal(VALUE, LABEL)

    assert sealer.open(sealed, LABEL) == VALUE
    assert sealed.key_id == key_id(KEY) == "630dcd29"
    assert len(sealed.nonce) == 12
    assert b"hunter2" not in sealed.sealed


def test_no_nonce_is_used_twice() -> None:
    sealer = Sealer(KEY)

    sealed = [sealer.seal(VALUE, LABEL) for _ in range(1_000)]

    assert len({each.nonce for each in sealed}) == len({each.sealed for each in sealed}) == 1_000


@pytest.mark.covers("F98", "F103")
@pytest.mark.parametrize(
    "moved",
    [
        replace(LABEL, tenant="evil"),
        replace(LABEL, name="other"),
        replace(LABEL, version=2),
        Label("acm", "esmtp", 3),
        Label("acme/smtp", "", 3),
    ],
)
def test_a_row_that_was_moved_does_not_open(moved: Label) -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal(VALUE, LABEL)

    with pytest.raises(CannotOpen, match="not what was sealed under this name") as refused:
        sealer.open(sealed, moved)

    assert "hunter2" not in str(refused.value) + repr(vars(refused.value)) + repr(sealed) + repr(sealer)


def test_a_bit_that_was_changed_is_seen() -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal(VALUE, LABEL)
    flipped = bytes([sealed.sealed[0] ^ 1]) + sealed.sealed[1:]

    for broken in (replace(sealed, sealed=flipped), replace(sealed, nonce=os.urandom(12)), replace(sealed, sealed=b"")):
        with pytest.raises(CannotOpen):
            sealer.open(broken, LABEL)


def test_older_keys_open_and_do_not_seal() -> None:
    old, new = Sealer(OTHER), Sealer(KEY, [OTHER])
    sealed = old.seal(VALUE, LABEL)

    assert new.open(sealed, LABEL) == VALUE
    assert new.seal(VALUE, LABEL).key_id == key_id(KEY)
    with pytest.raises(CannotOpen, match=f"sealed with the key {key_id(OTHER)}, which is not here"):
        Sealer(KEY).open(sealed, LABEL)


def test_a_row_cannot_pretend_to_be_sealed_with_another_key() -> None:
    sealed = Sealer(OTHER).seal(VALUE, LABEL)

    with pytest.raises(CannotOpen):
        Sealer(KEY, [OTHER]).open(Sealed(key_id(KEY), sealed.nonce, sealed.sealed), LABEL)


def test_keys_are_read_from_variables_and_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(base64.b64encode(OTHER).decode() + "\n")
    variables = {"KEY": base64.b64encode(KEY).decode()}

    sealer = read_sealer("env:KEY", [f"file:{tmp_path}/key"], variables)

    assert sealer.key_id == key_id(KEY)
    assert sealer.open(Sealer(OTHER).seal(VALUE, LABEL), LABEL) == VALUE


@pytest.mark.parametrize(
    ("value", "because"),
    [
        ("", "has nothing in it"),
        ("hunter2", "is no key"),
        (base64.b64encode(KEY[:16]).decode(), "is no key"),
        (base64.b64encode(KEY + KEY).decode(), "is no key"),
        (base64.b64encode(KEY).decode() + "!", "is no key"),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(value: str, because: str) -> None:
    with pytest.raises(InvalidRequest, match=because) as refused:
        read_sealer("env:KEY", [], {"KEY": value})

    assert refused.value.field == "secrets.seal_with"
    assert not value or value not in str(refused.value) + repr(vars(refused.value))


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="16 bytes are no key"):
        Sealer(KEY[:16])


@pytest.mark.parametrize("reference", ["env:NONE", "file:/nowhere", "file:/", "store:x", ""])
def test_a_secret_of_the_operator_that_is_not_there_is_named(reference: str) -> None:
    with pytest.raises(InvalidRequest, match="has nothing in it"):
        own_secret(reference, {}, field="secrets.vault_token")


def test_a_worker_gets_what_its_settings_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", base64.b64encode(KEY).decode())
    monkeypatch.setenv("A_TOKEN", "hvs.0451")
    named = SecretsSettings(seal_with="env:A_KEY", vault_url="https://vault:8200", vault_token="env:A_TOKEN")

    targets = node_settings(Settings(secrets=named), scheduler=False, worker=True).targets

    assert targets is not None
    assert targets.sealer is not None
    assert targets.sealer.key_id == key_id(KEY)
    assert targets.vault is not None
    assert (targets.vault.url, targets.vault.token()) == ("https://vault:8200", "hvs.0451")


@pytest.mark.parametrize(
    ("named", "field"),
    [
        (SecretsSettings(seal_with="env:NONE_OF_OURS"), "secrets.seal_with"),
        (SecretsSettings(vault_url="https://vault:8200"), "secrets.vault_token"),
    ],
)
def test_a_worker_whose_keys_are_missing_does_not_start(named: SecretsSettings, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        node_settings(Settings(secrets=named), scheduler=False, worker=True)

    assert refused.value.field == field


@pytest.mark.parametrize("path", ["../x", "a/../b", "a//b", "/a", "a b", "a%2fb", "a" * 201])
def test_a_prefix_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="is no path"):
        values.vault_path(path, "secrets.vault_prefix")

    assert values.vault_path("mainspring/{tenant}/", "secrets.vault_prefix") == "mainspring/{tenant}/"


CANARY = 'c4n/ry+"quoted" ü\\0451\n&more='


@pytest.mark.covers("F103")
@pytest.mark.parametrize(
    "spelling",
    [
        CANARY,
        json.dumps(CANARY),
        json.dumps(CANARY, ensure_ascii=False),
        json.dumps(json.dumps(CANARY)),
        repr(CANARY),
        repr(CANARY.encode()),
        quote(CANARY),
        quote(CANARY, safe=""),
        quote_plus(CANARY),
        CANARY.encode().hex(),
        json.dumps(repr(CANARY)),
        repr(json.dumps(CANARY)),
        repr((repr(CANARY), "'\"")),
        json.dumps(json.dumps(json.dumps(CANARY))),
        quote(json.dumps(CANARY)),
        quote(quote(CANARY, safe=""), safe=""),
        html.escape(CANARY),
        html.escape(json.dumps(CANARY, ensure_ascii=False)),
        base64.b64encode(CANARY.encode()).decode(),
        base64.urlsafe_b64encode(CANARY.encode()).decode(),
        base64.b64encode(f"user:{CANARY}".encode()).decode(),
        base64.b64encode(f"ab{CANARY}cd".encode()).decode(),
        base64.urlsafe_b64encode(f"a{CANARY}".encode()).decode(),
    ],
)
def test_a_mask_knows_the_spellings_of_a_secret(spelling: str) -> None:
    masked = Mask([CANARY]).text(f"before {spelling} after")

    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "***" in masked
    for part in ("c4n", "0451", "quoted", "YzRu", CANARY[4:8].encode().hex()):
        assert part not in masked


@pytest.mark.covers("F103")
@pytest.mark.parametrize("cut", range(1, 24))
def test_a_secret_that_a_cut_line_ends_in_is_masked_as_far_as_it_goes(cut: int) -> None:
    secret = "abcdefghijklmnopqrstuvwx"
    line = "." * (100 - cut) + secret[:cut] + "…"

    shown = Mask([secret]).line(line, longest=100)

    assert shown == "." * (100 - cut) + "***…"
    assert Mask([secret]).line("an a", longest=100) == "an a"  # a line that is whole is left alone


@pytest.mark.parametrize(
    "text", ["\\" * 200_000, "c4n" + "\\" * 200_000, "%25" * 80_000, "c4n/ry+" * 30_000, "c4n" * 80_000]
)
def test_masking_takes_linear_time(text: str) -> None:
    mask = Mask([CANARY, "\\\\a\\/%", "/" * 50])

    with in_linear_time():
        mask.text(text)


def test_a_mask_of_a_long_key_is_made_at_once_and_hides_each_of_its_lines() -> None:
    lines = [base64.b64encode(os.urandom(48)).decode() for _ in range(50)]

    with in_linear_time():
        mask = Mask(["\n".join(["-----BEGIN KEY-----", *lines])])

    assert {mask.text(f"said: {line}") for line in lines} == {"said: ***"}


def test_a_mask_leaves_other_text_alone() -> None:
    assert Mask(["hunter2"]).text("hunter 2, hunt, er2") == "hunter 2, hunt, er2"
    assert Mask(["hunter2"]).json({"hunter2": [1, None, True, "x"]}) == {"***": [1, None, True, "x"]}
    assert Mask(["451"]).json([451, 1451.5, True]) == ["***", "1***.5", True]
