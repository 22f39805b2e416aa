"""Between workflows and activities defaults are left out, and what is sent is read as what was meant; people get all of it."""

from __future__ import annotations

import importlib
import json
import pkgutil
import threading
import time
import typing
from abc import ABC
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from temporalio.converter import ActivitySerializationContext, DataConverter, WorkflowSerializationContext
from temporalio.exceptions import ActivityError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from activities import contracts
from activities.errors import FINAL, ErrorType, error_message, failure
from activities.keyring import LEAST_BYTES
from policy.episode.messages import Outcome
from workers.errors import expectations
from workers.payloads.converter import DATA_CONVERTER, converter_with
from workers.payloads.encryption import Encryption
from workflows.kit.messages import ResumeRequest

WORKFLOW = WorkflowSerializationContext(namespace="default", workflow_id="w")
ACTIVITY = ActivitySerializationContext(
    namespace="default",
    activity_id="1",
    activity_type="a",
    activity_task_queue="q",
    workflow_id="w",
    workflow_type="W",
    is_local=False,
)
PLAIN: dict[Any, Any] = {
    str: "a word",
    int: 7,
    float: 0.5,
    bool: True,
    bytes: b"bytes",
    datetime: datetime(2026, 11, 24, 18, 15, 13, 45, tzinfo=UTC),
    timedelta: timedelta(minutes=7),
    Any: "anything",
}
BETWEEN, FOR_PEOPLE = DATA_CONVERTER.with_context(ACTIVITY), DATA_CONVERTER.with_context(WORKFLOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    wanted: bool = True
    inner: Inner = field(default_factory=lambda: Inner(name="usual"))
    wait: timedelta = timedelta(seconds=5)
    until: datetime | None = None
    others: tuple[Inner, ...] = ()


def _wire_types() -> list[type]:
    """Whatever goes into an activity or comes out of one, in all contracts."""
    found: set[type] = set()
    for module in pkgutil.iter_modules(contracts.__path__):
        for each in vars(importlib.import_module(f"{contracts.__name__}.{module.name}")).values():
            if isinstance(each, type) and issubclass(each, ABC):
                acts = [act for act in vars(each).values() if hasattr(act, "__temporal_activity_definition")]
                found |= {hint for act in acts for hint in typing.get_type_hints(act).values() if is_dataclass(hint)}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def _sent(converter: DataConverter, value: Any) -> bytes:
    [payload] = converter.payload_converter.to_payloads([value])
    return payload.data


def _read(converter: DataConverter, data: bytes, kind: Any) -> Any:
    [payload] = converter.payload_converter.to_payloads([None])
    payload.metadata["encoding"], payload.data = b"json/plain", data
    return converter.payload_converter.from_payload(payload, kind)


def test_defaults_are_left_out_between_workflows_and_activities_at_any_depth() -> None:
    said = Outer(wanted=False, others=(Inner(name="one"), Inner(name="two", tags=("x",))))
    assert json.loads(_sent(BETWEEN, said)) == {"wanted": False, "others": [{"name": "one"}, {"name": "two", "tags": ["x"]}]}


def test_one_converter_serves_all_activities_and_another_all_else_whichever_is_asked_for_first() -> None:
    """The SDK asks several times for each payload."""
    encrypting = converter_with(Encryption([b"k" * LEAST_BYTES]))
    for one in (DATA_CONVERTER, BETWEEN, FOR_PEOPLE, encrypting, encrypting.with_context(ACTIVITY)):
        between, for_people = one.with_context(ACTIVITY), one.with_context(WORKFLOW)
        assert one.with_context(replace(ACTIVITY, activity_id="2")) is between
        assert one.with_context(replace(WORKFLOW, workflow_id="v")) is for_people
        assert json.loads(_sent(between, Outer())) == {}
        assert json.loads(_sent(for_people, Outer())).keys() == {each.name for each in fields(Outer)}
        assert between.payload_codec is for_people.payload_codec is one.payload_codec


def test_people_get_every_field() -> None:
    told = json.loads(_sent(FOR_PEOPLE, Outer(until=datetime(2026, 11, 24, tzinfo=UTC))))
    assert told == {
        "wanted": True,
        "inner": {"name": "usual", "tags": []},
        "wait": "PT5S",
        "until": "2026-11-24T00:00:00Z",
        "others": [],
    }


def test_a_field_with_another_value_than_its_default_is_never_left_out() -> None:
    """None, "" and () are values where they are not the default."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd:
        limit: int | None = 3
        word: str = "go"
        names: tuple[str, ...] = ("a",)

    assert json.loads(_sent(BETWEEN, Odd(limit=None, word="", names=()))) == {"limit": None, "word": "", "names": []}


def _value(hint: Any, *, full: bool) -> Any:
    """Something of that type. full: no field of it has its default, no collection is empty; else as little as there can be."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1]
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        wanted = (each for each in fields(hint) if each.init and (full or _is_required(each)))
        made = {each.name: _value(hints[each.name], full=full) for each in wanted}
        made |= {each.name: not each.default for each in fields(hint) if full and isinstance(each.default, bool)}
        return typing.cast(type, hint)(**made)
    if origin in {typing.Union, UnionType}:
        return _value(next(each for each in arguments if each is not type(None)), full=full)
    if origin is tuple:
        each = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(_value(kind, full=full) for kind in each)
    if origin in {Mapping, dict}:
        return {_value(arguments[0], full=full): _value(arguments[1], full=full)}
    if origin is frozenset:
        return frozenset({_value(arguments[0], full=full)})
    pytest.fail(f"a wire type has a field of type {hint}, which this test can't make")


def _is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


@pytest.mark.parametrize("full", [False, True], ids=["the least", "all"])
def test_each_wire_type_is_read_as_what_was_sent(*, full: bool) -> None:
    for kind in _wire_types():
        meant = _value(kind, full=full)
        for converter in (BETWEEN, FOR_PEOPLE):
            assert _read(converter, _sent(converter, meant), kind) == meant


# Whether Temporal tries again is said by the error itself, since no retry policy lists the errors that are final.


@pytest.mark.parametrize("kind", ErrorType)
def test_an_error_says_whether_it_is_final(kind: ErrorType) -> None:
    assert failure(kind, "why").non_retryable is (kind in FINAL)


def test_what_a_repetition_could_do_twice_or_lock_out_is_final() -> None:
    """S33: an unclear outcome is read before anything is repeated; more tries with wrong credentials lock an account."""
    assert {ErrorType.AMBIGUOUS, ErrorType.EXPIRED, ErrorType.UNAUTHORIZED, ErrorType.NOT_LICENSED, ErrorType.VETOED} <= FINAL


@pytest.mark.parametrize("limit", TimeoutType)
@pytest.mark.parametrize("last", [None, failure(ErrorType.TRANSIENT, "the API answers 503")])
def test_an_activity_that_ran_out_of_time_says_what_failed_else_that_no_worker_did_it(
    limit: TimeoutType, last: Exception | None
) -> None:
    timeout = ActivityTimeout("activity ScheduleToClose timeout", type=limit, last_heartbeat_details=[])
    timeout.__cause__ = last
    error = ActivityError(
        "Activity task timed out",
        scheduled_event_id=5,
        started_event_id=0,
        identity="",
        activity_type="look",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = timeout
    said = "the API answers 503" if last else "no worker has done it in time: does one serve the cluster?"
    assert error_message(error) == said


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (
            ResumeRequest,
            {"reason": "x", "question": "soon"},
            "who: expected a value, got none; question: expected a valid integer",
        ),
        (Outcome, "fine", "the argument: expected 'recovered', "),
        (int, {}, "the argument: expected a valid integer"),
        (tuple[str, ...], 3, "the argument: expected a valid tuple, got 3"),
    ],
    ids=str,
)
def test_what_a_signal_or_an_input_lacks_is_said_in_our_words(kind: type, value: object, said: str) -> None:
    """As the log of a dropped signal and the failure of a workflow have it."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    assert expectations(refused.value.errors(include_url=False), "the argument").startswith(said)


def test_a_schema_is_made_once_however_many_workflows_need_it_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each made its own, which took so long that Temporal's SDK gave up the workflow tasks of a worker that took over others'."""
    made = list[Any]()

    def slowly(kind: Any) -> TypeAdapter[Any]:
        made.append(kind)
        time.sleep(0.2)
        return TypeAdapter(kind)

    @dataclass(frozen=True)
    class Unknown:
        name: str

    monkeypatch.setattr("workers.payloads.converter.TypeAdapter", slowly)
    (payload,) = BETWEEN.payload_converter.to_payloads([{"name": "node-7"}])
    together = threading.Barrier(4)

    def read(_: int) -> Any:
        together.wait()
        return BETWEEN.payload_converter.from_payloads([payload], [Unknown])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, range(4))) == [[Unknown("node-7")]] * 4
    assert made == [Unknown]
