"""The reference says what the code says, and all of it; each sentence that a person reads is kept in one file."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

import workflows.definitions
from policy.episode.messages import PreservationInput
from tests.docs import reading, reference, sentences
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


# What a person reads is kept in one file, so that a review sees each sentence that changes, and is plain English.

FOR_CONTRIBUTORS = re.compile(r"docs/(adr/|adding-|architecture|benchmarks|conformance|safety|semantics|reference/workflows)")
REFERENCES = re.compile(r"docs/(fencing|remediation|preservation|migrate|security)\.md|SECURITY\.md")
"""Long ones, which cite rules in their words; not yet rewritten."""
RIDDLES = re.compile(r"\b(whoever|whomever|whose|whom|nobody|somebody)\b", re.IGNORECASE)


def test_the_file_has_every_sentence() -> None:
    assert sentences.FILE.read_text(encoding="utf-8") == sentences.sentences(), "make it anew: make reference"


def test_what_fills_a_sentence_and_what_only_programs_see_is_not_in_it() -> None:
    source = '''
log.warning("only for the log")
raise ValueError(f"{key}: expected {'one of them' if many else name}, "
                 f"got {value:>10}")
assert found, "only for us"
def helper(name):
    """Not shown anywhere."""
def begin(context: typer.Context):
    """Fence NODE now."""
'''
    assert set(sentences.texts_of_python(source)) >= {"{…}: expected {…}, got {…}", "one of them", "Fence NODE now."}
    assert not [each for each in sentences.texts_of_python(source) if "only for" in each or "Not shown" in each]
    page = '<p title="Its own title">It is <b>safe</b> now, {{ "since long" if x }} {# not this #}</p>{% if x %}<p>Not so</p>'
    assert {each.strip() for each in sentences.texts_of_template(page)} - {""} == {
        "Its own title",
        "It is safe now, {…}",
        "since long",
        "Not so",
    }


def test_no_sentence_asks_whose_or_whom() -> None:
    assert [found for found in sentences.gathered() if RIDDLES.search(found[0])] == []


def test_no_page_for_users_asks_whose_or_whom() -> None:
    users = {page: text for page, text in reading.pages().items() if not (FOR_CONTRIBUTORS.match(page) or REFERENCES.match(page))}
    assert [(page, line) for page, text in users.items() for line in text.splitlines() if RIDDLES.search(line)] == []
