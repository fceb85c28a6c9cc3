"""Arguments: a call of a task as JSON, and back again, checked against the function's annotations.

A payload is one object with a value for each parameter by its name. What may be written as JSON may be an
argument: numbers, text, lists, dates, UUIDs, enums, dataclasses, msgspec structs, pydantic models.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json
from mainspring.domain.references import names_secret, references_in, with_secrets
from mainspring.tasks.context import Context

_NOT_GIVEN: Final = object()
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments:
    """The parameters of one task, less the context."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        """Read the signature; annotations are looked up when they are first needed, so that they may name later types.

        Raises:
            InvalidRequest: a parameter could not be given by name.
        """
        self._task = task
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        self.context_name = next((each.name for each in parameters if _is_context(each.annotation)), None)
        own = [each for each in parameters if each.name != self.context_name]
        self._any_name = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in own)
        self._own = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        for each in self._own:
            if each.kind not in _BY_NAME:
                reason = f'parameter "{each}" of task "{task}" has no name to give it by'
                raise InvalidRequest(reason, field="task", value=task, allowed="use plain or keyword-only parameters")
        # No parameter but the context: the task reads ctx.payload itself.
        self.takes_payload_whole = not own and self.context_name is not None
        self._names = [each.name for each in self._own]
        self._positional = [each.name for each in self._own if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
        """Write a call as JSON values.

        Raises:
            InvalidRequest: the task cannot be called like this, or a value has no JSON form.
        """
        if len(args) > len(self._positional):
            raise self._refused(
                f"takes {len(self._positional)} arguments by place, {len(args)} are given", args, self._shown
            )
        given = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise self._refused(f"{name} is given twice", value, self._shown, name)
            given[name] = value
        try:
            written = msgspec.to_builtins(given, enc_hook=_write_foreign)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise self._refused(f"cannot be written as JSON: {error}", given, "pass plain values") from None
        self.check(written)
        return written

    def check(self, payload: Json) -> None:
        """Say what is wrong with a payload, if anything is."""
        if self.takes_payload_whole:
            return
        try:
            msgspec.convert({} if payload is None else payload, self._strict, dec_hook=_read_foreign)
        except (msgspec.ValidationError, TypeError):
            if names_secret(payload):  # a text, when the task is called
                self.check(with_secrets(payload, dict.fromkeys(references_in(payload), "")))
            else:
                self.read(payload)  # again, to say it in our words

    def read(self, payload: Json) -> dict[str, Any]:
        """Turn a payload into the arguments of a call.

        Raises:
            InvalidRequest: the payload does not fit the function; ``field`` says where.
        """
        if self.takes_payload_whole:
            return {}
        if payload is not None and not isinstance(payload, Mapping):
            raise self._refused(
                f"is {type(payload).__name__}, not an object of arguments by name", payload, self._shown
            )
        document = payload or {}
        unknown = [name for name in document if name not in self._names]
        if unknown and not self._any_name:
            raise self._refused("there is no such parameter", document[unknown[0]], self._shown, unknown[0])
        missing = [each.name for each in self._own if each.default is each.empty and each.name not in document]
        if missing:
            raise self._refused("is missing", None, self._shown, missing[0])
        try:
            read = msgspec.convert(document, self._shape, dec_hook=_read_foreign)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at ")
            name = where.strip("`").removeprefix("$").removeprefix(".") or None
            raise self._refused(_plain(reason), document, self._shown, name) from None
        given = {name: value for name in self._names if (value := getattr(read, name)) is not _NOT_GIVEN}
        return {**given, **{name: document[name] for name in unknown}}

    @cached_property
    def _strict(self) -> Any:
        return msgspec.defstruct("Strict", (), bases=(self._shape,), forbid_unknown_fields=not self._any_name)

    @cached_property
    def _shape(self) -> Any:
        hints = self._hints()
        fields = []
        for each in self._own:
            kind = hints.get(each.name, Any)
            optional = each.default is not each.empty
            fields.append(
                (each.name, kind, msgspec.field(default_factory=lambda: _NOT_GIVEN)) if optional else (each.name, kind)
            )
        return msgspec.defstruct(self._task.replace(".", "_").title() or "Call", fields, kw_only=True)

    def _hints(self) -> dict[str, Any]:
        try:
            return _hints_of(self._function)
        except NameError as error:
            reason = f"an annotation cannot be resolved: {error}"
            raise self._refused(reason, str(error), "import the name where the task is defined") from None

    @cached_property
    def _shown(self) -> str:
        own = ", ".join(str(each) for each in (*self._own, *(["**"] if self._any_name else [])))
        return f"call {self._task}({own})"

    def _refused(self, reason: str, value: object, allowed: str, name: str | None = None) -> InvalidRequest:
        field = "payload" if name is None else f"payload.{name}"
        return InvalidRequest(reason, field=field, value=value, allowed=allowed)


def result_type(function: Callable[..., Any]) -> Any:
    """Return what a function says it returns; Any where it does not."""
    try:
        return _hints_of(function).get("return", Any)
    except NameError:
        return Any


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    written_as = function.func if isinstance(function, partial) else function
    return typing.get_type_hints(written_as, include_extras=True)


def read_value(value: Json, kind: Any) -> Any:
    """Turn JSON values into ``kind``, as far as it fits; as it is where it does not."""
    try:
        return msgspec.convert(value, kind, dec_hook=_read_foreign)
    except (msgspec.ValidationError, TypeError):
        return value


def written(value: Any) -> str:
    """Write a value as JSON text.

    Raises:
        TypeError: it has no JSON form.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_write_foreign).decode()
    except (ValueError, NotImplementedError) as error:
        raise TypeError(str(error)) from None


def _is_context(annotation: object) -> bool:
    return annotation is Context or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "Context")


def _write_foreign(value: Any) -> Any:
    """Write pydantic models and their like, without knowing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__qualname__} has no JSON form")
    return dump(mode="json")


def _read_foreign(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(value, kind):
        return value
    raise NotImplementedError(f"{kind.__qualname__} cannot be read from JSON")


def _plain(reason: str) -> str:
    """Say it without the marks of code: ``Expected `int`, got `str``` becomes ``expected int, got str``."""
    text = reason.replace("`", "")
    return text[:1].lower() + text[1:]
