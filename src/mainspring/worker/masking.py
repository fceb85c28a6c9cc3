"""Masking: nothing that an attempt leaves behind shows the secrets it was given.

Promise. Whatever a task prints, logs, raises, reports or returns has ``***`` in place of every secret that its payload
named, as it is and in the spellings that programs put text into: JSON, URLs, base64 at any offset, hex, Python's repr.

Not promised. A task that means harm can write a secret in a form nobody would look for: a letter a line. It has it
already.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from mainspring.domain.job import Json
from mainspring.domain.settling import Discarded, ErrorInfo, Failed, Outcome, Snoozed, Succeeded
from mainspring.domain.urls import HIDDEN
from mainspring.tasks.arguments import written
from mainspring.tasks.context import Completion, Output

_SHORTEST_PART: Final = 4  # shorter parts of a secret are words that stand everywhere
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "-_.~")  # what nobody escapes
_SHORT: Final = {"\n": ("n",), "\r": ("r",), "\t": ("t",), " ": ("+",), "'": ("&#x27;", "&#39;")}
_BACKSLASH: Final = r"(?:\\|%(?:25)*+5[Cc])"  # as it is, or as URLs have it
_LONGEST_PATTERN: Final = 4_000  # characters: longer ones take seconds to compile, and are found in plain forms only
_SHORTEST_CODE: Final = 6  # characters of base64 that do not depend on what stands around a secret


class Mask:
    """Puts ``***`` in place of every secret an attempt has used, however it is likely to be written."""

    __slots__ = ("_forms", "_patterns", "longest")

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = [_known(value) for value in values]
        self._forms = sorted({form for forms, _ in known for form in forms}, key=len, reverse=True)  # parts last
        self._patterns = tuple(dict.fromkeys(pattern for _, patterns in known for pattern in patterns))
        self.longest = len(self._forms[0]) if self._forms else 0

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        for pattern in self._patterns:
            text = pattern.sub(HIDDEN, text)
        return text

    def line(self, text: str, *, longest: int) -> str:
        """Mask a line that may have been cut at ``longest`` bytes, in the middle of a secret."""
        masked = self.text(text)
        if len(text.encode(errors="replace")) < longest:
            return masked
        bare = masked.rstrip("…\N{REPLACEMENT CHARACTER}")  # how cut lines end
        begun = max((_begun(bare, form) for form in self._forms), default=0)
        return bare[: len(bare) - begun] + HIDDEN + "…" if begun else masked

    def json(self, value: Json) -> Json:
        """Return ``value`` with every text in it masked, keys included."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self.json(each) for name, each in value.items()}
            case list():
                return [self.json(each) for each in value]
            case int() | float() if not isinstance(value, bool) and (shown := self.text(str(value))) != str(value):
                return shown
        return value

    def result(self, result: object) -> Json:
        """Return what a task returned, as plain JSON values, masked.

        Raises:
            TypeError: it has no JSON form.
        """
        return self.json(msgspec.json.decode(written(result)))


NOTHING_HIDDEN: Final = Mask()
_TRACEBACK: Final = logging.Formatter()


@dataclass(slots=True)
class MaskedOutput:
    """An output that keeps nothing unmasked."""

    _output: Output
    mask: Mask
    _longest: int  # bytes at which whoever reads lines has cut them

    @property
    def full(self) -> bool:
        return bool(getattr(self._output, "full", False))

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        self._output.line(self.mask.line(text, longest=self._longest), stream=stream, level=level, at=at)

    def progress(self, done: float, note: str) -> None:
        self._output.progress(done, self.mask.line(note, longest=self._longest))


class MaskedCompletion:
    """A completion whose result is masked, too: it goes to the ledger without passing the worker."""

    def __init__(self, completion: Completion, mask: Mask) -> None:
        self._completion = completion
        self._mask = mask

    @property
    def asked(self) -> bool:
        return self._completion.asked

    @asked.setter
    def asked(self, asked: bool) -> None:
        self._completion.asked = asked

    async def complete(self, connection: Any, result: Json) -> None:
        await self._completion.complete(connection, self._mask.result(result))

    def complete_sync(self, connection: Any, result: Json) -> None:
        self._completion.complete_sync(connection, self._mask.result(result))


def hide_in(record: logging.LogRecord, mask: Mask) -> None:
    """Mask a record for whoever gets it: handlers that the user has set up see no secret, either."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit their message
        message = f"{record.msg} {record.args}"
    record.msg, record.args = mask.text(message), None
    if record.exc_info:
        record.exc_text, record.exc_info = mask.text(_TRACEBACK.formatException(record.exc_info)), None
    if record.stack_info:
        record.stack_info = mask.text(record.stack_info)


def masked(outcome: Outcome, mask: Mask) -> Outcome:
    """Return how an attempt ended, without the secrets it had."""
    match outcome:
        case Succeeded() if outcome.result is not None:
            try:
                return Succeeded(mask.result(outcome.result))
            except TypeError as error:
                message = f"the result has no JSON form: {mask.text(str(error))}; return plain values"
                return Failed(error=ErrorInfo(type="result_without_json", message=message))
        case Failed():
            return replace(outcome, error=_masked_error(outcome.error, mask))
        case Discarded() | Snoozed():
            return replace(outcome, reason=mask.text(outcome.reason))
    return outcome


def _masked_error(error: ErrorInfo, mask: Mask) -> ErrorInfo:
    return ErrorInfo(
        type=mask.text(error.type),
        message=mask.text(error.message),
        bases=tuple(map(mask.text, error.bases)),
        traceback=mask.text(error.traceback),
    )


def _begun(text: str, form: str) -> int:
    """Return how many characters at the end of a text are the beginning of ``form``."""
    at = text.find(form[0], max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at = text.find(form[0], at + 1)
    return 0


@lru_cache(maxsize=100)  # a worker uses the same few for ever, and this is slower than the request it serves
def _known(value: str) -> tuple[tuple[str, ...], tuple[re.Pattern[str], ...]]:
    parts = {value, *(part for part in value.split() if len(part) >= _SHORTEST_PART)}  # "Bearer 0451…": the latter too
    parts -= {"Bearer", "Basic", "Digest", "Token", "token", "bearer", "basic"}
    odd = [part for part in parts if len(part) <= _LONGEST_PATTERN and not _PLAIN.issuperset(part)]
    forms = {form for part in parts for form in _spellings(part) if form}
    return tuple(forms), tuple(_escaped(part) for part in sorted(odd, key=len, reverse=True))


def _spellings(text: str) -> Iterable[str]:
    content = text.encode(errors="surrogatepass")
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text)[1:-1].replace("/", r"\/")
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield repr(content)[2:-1]
    yield html.escape(text)
    yield quote(text, safe="", errors="replace")
    yield quote(text, errors="replace")
    yield quote_plus(text, errors="replace")
    yield content.hex()
    yield content.hex().upper()
    yield base64.b64encode(content).decode().rstrip("=")
    yield base64.urlsafe_b64encode(content).decode().rstrip("=")
    yield from _inside_base64(content)


def _escaped(text: str) -> re.Pattern[str]:
    """Return a pattern for a text whose odd characters were escaped, and that perhaps more than once: a repr in JSON.

    It never goes back: backslashes are taken all at once, and where they begin, once.
    """
    first, *rest = re.findall(r"\\+|.", text, re.DOTALL)
    begins = rf"(?<!\\)(?<!5[Cc]){_BACKSLASH}++" if first[0] == "\\" else _escapes(first)
    others = (f"{_BACKSLASH}++" if each[0] == "\\" else _before(each) + _escapes(each) for each in rest)
    return re.compile(begins + "".join(others))


def _before(character: str) -> str:
    return "" if character in _PLAIN else f"{_BACKSLASH}*+"


def _escapes(character: str) -> str:
    """Return a pattern for one character; for a letter without backslashes before it: those change its meaning."""
    if character in _PLAIN:
        return re.escape(character)
    if character == "%":
        return "%(?:25)*+"
    content = character.encode(errors="surrogatepass")
    code = ord(character)
    spelled = {
        character,
        html.escape(character),
        f"&#{code};",
        f"u{code:04x}",
        f"u{code:04X}",
        *_SHORT.get(character, ()),
    }
    octets = rf"{_BACKSLASH}*+".join(f"x{byte:02x}" for byte in content)
    percent = "".join(f"%(?:25)*+(?:{byte:02x}|{byte:02X})" for byte in content)
    return f"(?:{'|'.join(map(re.escape, spelled))}|{octets}|{percent})"


def _inside_base64(content: bytes) -> Iterable[str]:
    """Yield what a secret looks like in the middle of something that was encoded as a whole: ``user:secret``."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + content)
        first = (8 * before + 5) // 6  # the first character that is made of the secret alone
        after = (before + len(content)) % 3
        sure = coded[first : len(coded) - (4 if after else 0)]  # the last group has what follows in it
        if len(sure) >= _SHORTEST_CODE:
            yield sure.decode()
            yield sure.decode().replace("+", "-").replace("/", "_")
