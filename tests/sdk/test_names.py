"""The blocking client has the names of the async one, and takes the same arguments. Each exception has its reason."""

import inspect
from collections.abc import Mapping
from inspect import Parameter
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import pytest

from mainspring import Client
from mainspring.domain.ids import RunId
from mainspring.sdk import client, handles, nouns, sync
from mainspring.sdk.client import Transactional
from mainspring.sdk.handles import JobHandle, Run
from mainspring.sdk.nouns import DeadLetters, Jobs, Runs, Workers
from mainspring.sdk.sync import (
    SyncClient,
    SyncDeadLetters,
    SyncJob,
    SyncJobs,
    SyncRun,
    SyncRuns,
    SyncTransactional,
    SyncWorkers,
)

NOTHING: Final[Any] = None  # nobody is asked anything here
BLOCKING = SyncClient(Client("postgresql://nowhere"))
RUN = Run[Any](NOTHING, RunId(UUID(int=0)))
JOB = JobHandle(NOTHING, NOTHING)
PAIRS: Mapping[str, tuple[object, object]] = {
    "client": (Client("postgresql://nowhere"), BLOCKING),
    "jobs": (Jobs(NOTHING, "default"), SyncJobs(BLOCKING)),
    "runs": (Runs(NOTHING), SyncRuns(BLOCKING)),
    "dead letters": (DeadLetters(NOTHING), SyncDeadLetters(BLOCKING)),
    "workers": (Workers(NOTHING), SyncWorkers(BLOCKING)),
    "a run": (RUN, SyncRun(BLOCKING, RUN)),
    "a job": (JOB, SyncJob(BLOCKING, JOB)),
    "a transaction": (Transactional(NOTHING, NOTHING, "default"), SyncTransactional(BLOCKING, NOTHING)),
}
ONLY_ASYNC: Mapping[str, Mapping[str, str]] = {
    "client": {
        "sync": "it makes the blocking one",
        "backend": "its methods are coroutines; whoever wants them has them of SyncClient.client, through wait()",
        "ledger": "as backend",
    }
}
ONLY_BLOCKING: Mapping[str, Mapping[str, str]] = {
    "client": {
        "client": "the async one, which does all the work",
        "close": "it opens with its first call, often outside of any block; the async one is closed by leaving its own",
        "wait": "runs a coroutine where the async client lives: what the names above stand on",
        "ask": "as wait, for one question to the async client",
        "each": "as wait, for an async iterator",
    }
}
NO_PAIR: Mapping[str, str] = {
    "Targetted": "says what jobs.put takes: the same for both",
}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("what", PAIRS)
def test_the_blocking_client_has_the_names_of_the_async_one(what: str) -> None:
    ours, blocking = PAIRS[what]

    assert public(ours) - public(blocking) == set(ONLY_ASYNC.get(what, ()))
    assert public(blocking) - public(ours) == set(ONLY_BLOCKING.get(what, ()))


@pytest.mark.parametrize("what", PAIRS)
def test_they_take_the_same_arguments(what: str) -> None:
    ours, blocking = PAIRS[what]
    shared = public(type(ours)) & public(type(blocking))

    for name in shared:
        one, other = getattr(type(ours), name), getattr(type(blocking), name)
        assert isinstance(one, property) == isinstance(other, property), name
        if not isinstance(one, property):
            _compare(name, _parameters(one), _parameters(other))


def _parameters(method: Any) -> Mapping[str, Parameter]:
    return inspect.signature(method).parameters


def _compare(name: str, ours: Mapping[str, Parameter], blocking: Mapping[str, Parameter]) -> None:
    """See that what is named by both is alike; what is not may be passed on as it comes."""
    for each in ours.keys() & blocking.keys():
        assert (ours[each].kind, ours[each].default) == (blocking[each].kind, blocking[each].default), (name, each)
    passed_on = any(each.kind is Parameter.VAR_KEYWORD for each in blocking.values())
    more = {each for each in blocking.keys() - ours.keys() if blocking[each].kind is not Parameter.VAR_KEYWORD}
    missing = {each for each in ours.keys() - blocking.keys() if ours[each].kind is not Parameter.VAR_KEYWORD}
    assert more == set(), name
    assert passed_on or missing == set(), name
    assert all(ours[each].kind is Parameter.KEYWORD_ONLY for each in missing), name


@pytest.mark.parametrize("module", [client, handles, nouns, sync])
def test_no_class_is_without_its_counterpart(module: ModuleType) -> None:
    paired = {type(each).__name__ for pair in PAIRS.values() for each in pair}
    made_here = {
        name
        for name in public(module)
        if inspect.isclass(of := getattr(module, name)) and of.__module__ == module.__name__
    }

    assert made_here - paired - NO_PAIR.keys() == set()


def test_the_key_may_come_second_and_is_shown_nowhere() -> None:
    for made in (Client("https://jobs.example.com", "ms_key"), Client("https://jobs.example.com", key="ms_key")):
        assert made._key == "ms_key"
        assert repr(made) == "<client of https://jobs.example.com>"
    for blocking in (Client.sync("https://h", "ms_key"), Client.sync(url="https://h", key="ms_key")):
        assert blocking.client._key == "ms_key"
    with pytest.raises(TypeError):
        Client("https://jobs.example.com", "ms_key", "shop")  # type: ignore[call-arg]
