"""The reference says what the code says, and all of it."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

import workflows.definitions
from policy.episode.messages import PreservationInput
from tests.docs import reference
from workers.configuration.settings import Settings


@pytest.mark.parametrize("page", [*reference.FILES, *reference.PARTS])
def test_the_page_is_what_the_code_says(page: str) -> None:
    assert (reference.DOCS / page).read_text(encoding="utf-8") == reference.expected(page), "make it anew: make reference"


def _undescribed(schema: dict[str, Any], whole: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, each in schema["properties"].items():
        found = reference.resolved(each, whole)
        if not found.get("description"):
            yield path + name
        if found.get("properties"):
            yield from _undescribed(found, whole, f"{path}{name}.")


def test_every_setting_says_what_it_means() -> None:
    whole = Settings.model_json_schema()
    assert list(_undescribed(whole, whole)) == []


def test_every_workflow_is_there() -> None:
    modules = [
        importlib.import_module(f"workflows.definitions.{each.name}")
        for each in pkgutil.iter_modules(workflows.definitions.__path__)
    ]
    classes = {
        each
        for module in modules
        for _, each in inspect.getmembers(module, inspect.isclass)
        if each.__module__ == module.__name__ and hasattr(each, "__temporal_workflow_definition")
    }
    assert classes == {shell for shell, *_ in reference.INPUTS}
    for shell, given, _ in reference.INPUTS:
        (taken,) = reference.workflow._Definition.must_from_class(shell).arg_types or ()
        assert issubclass(taken, given)


def test_a_schema_has_the_fields_that_a_payload_has() -> None:
    """Spelled, and with durations, as the payload converter writes them."""
    written = json.loads(TypeAdapter(PreservationInput).dump_json(PreservationInput(cluster="prod", node="node-7")))
    schema = reference.schemas()["$defs"]["PreservationInput"]
    assert set(written) == set(schema["properties"])
    assert schema["properties"]["hold"]["anyOf"][0]["format"] == "duration"


def test_nothing_of_our_own_state_is_shown() -> None:
    assert not {"EpisodeState", "ScannerState"} & set(reference.schemas()["$defs"])
