"""What others have written is shown without what a terminal, a log or a chat would obey, and otherwise as it is (S50)."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.values.display_text import LONGEST, STAND_IN, cleaned, in_a_line, visible, without_calls
from tests.fuzz.strange import PATIENCE

pytestmark = PATIENCE

OBEYED = (
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[32mproven\x1b[0m",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x9b31m",
    "\r\x7f\x08\x08",
    "\u202eneve\u2066",
    "\u2028forged",
    "a\u200bb\ufeff",
    "\ud800",
    "\U000e0041",
    "x\n12:00:00.000 info workers: off is proven",
    "[click](https://evil.example.com)",
    "@everyone @here",
    "<!channel> <@&7> <https://evil.example.com|it is off>",
    "\x00",
)
TEXTS = st.one_of(
    st.text(st.characters(), max_size=60),
    st.lists(st.one_of(st.sampled_from(OBEYED), st.text(st.characters(), max_size=8)), max_size=6).map("".join),
)


def hidden(text: str) -> set[str]:
    """Of controls, formats, halves of pairs, and separators of lines."""
    kinds = {"Cc", "Cs", "Zl", "Zp"}
    return {each for each in text if unicodedata.category(each) in kinds or each in "\u202a\u202e\u2066\u200b\ufeff\xad"}


@given(text=TEXTS)
@example(text="".join(OBEYED))
def test_nothing_that_is_obeyed_is_left(text: str) -> None:
    assert hidden(visible(text)) <= {"\n", "\t"}
    assert not hidden(in_a_line(text))
    assert len(in_a_line(text).splitlines()) <= 1
    called = without_calls(text)
    assert not hidden(called)
    assert not [each for each in ("](", "<", ">") if each in called]
    assert not re.search(r"(?<!\w)@\w", called)


@given(text=TEXTS)
def test_it_is_the_same_twice(text: str) -> None:
    for clean in (visible, in_a_line, without_calls):
        assert clean(clean(text)) == clean(text)


SEEN = st.characters(categories=("L", "N", "P", "S", "Mn")).filter(lambda each: not "\U000e0100" <= each <= "\U000e01ef")
"""Marks, too, but for the supplement of variation selectors: those are seen by no one."""


@given(text=st.text(SEEN, min_size=1, max_size=80))
def test_what_is_seen_is_left_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert in_a_line(text) == text
    assert STAND_IN in text or STAND_IN not in visible(text)


@given(text=TEXTS, times=st.integers(1, 3000), longest=st.integers(1, 200))
def test_it_is_bounded(text: str, times: int, longest: int) -> None:
    assert len(in_a_line(text * times)) <= LONGEST
    assert len(in_a_line(text * times, longest)) <= longest


LEAVES = st.none() | st.booleans() | st.integers() | TEXTS


@given(found=st.recursive(LEAVES, lambda some: st.lists(some) | st.dictionaries(TEXTS, some)))
def test_what_json_holds_keeps_its_shape(found: object) -> None:
    shown = cleaned(found)
    assert type(shown) is type(found)
    assert not hidden(json.dumps(shown, ensure_ascii=False))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("by ann@example.com: enough", "by ann@example.com: enough"),
        ("two\r\nlines\tand a tab", "two lines and a tab"),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),
        ("\x1b[32mproven", f"{STAND_IN}[32mproven"),
    ],
)
def test_it_says_the_same(written: str, shown: str) -> None:
    assert without_calls(written) == shown
