"""What a person reads is kept in one file, so that a review sees each sentence that changes, and is plain English."""

from __future__ import annotations

import re

import pytest

from tests.docs import reading, sentences

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


@pytest.mark.parametrize(
    "page", sorted(each for each in reading.pages() if not (FOR_CONTRIBUTORS.match(each) or REFERENCES.match(each)))
)
def test_no_page_for_users_asks_whose_or_whom(page: str) -> None:
    assert [line for line in reading.pages()[page].splitlines() if RIDDLES.search(line)] == []
