"""What a person reads is kept in one file, so that a review sees each sentence that changes, and is plain English."""

from __future__ import annotations

import re

from tests.docs import sentences

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
