"""Text made safe to show to people (S50): every output for people cleans texts of other authors here, and nowhere else.

A Node's annotation, a BMC's error or an API server's answer may hold escapes that a terminal obeys, characters that reorder or
hide the text around them, a line that looks like ours, or text that a chat turns into a link or a mention. Decisions and
comparisons use the text as it is; only output goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import islice
from typing import Any

LONGEST = 8000
"""Characters of one sentence or log line; more is cut off."""
STAND_IN = "\N{REPLACEMENT CHARACTER}"
# C0 except tab and line end, DEL, C1; soft hyphen; marks and overrides of direction; line separators; characters without width;
# lone surrogates; tags. The joiners U+200C and U+200D stay: scripts need them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_SPACES = re.compile(r"\s+")
_CALL = re.compile(r"(?<!\w)@(?=\w)")
_BRACKETS = str.maketrans("<>", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}")


def visible(text: str) -> str:
    """The same text and lines, with each invisible character replaced by a visible one."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub(STAND_IN, text.replace("\r\n", "\n"))


def in_a_line(text: str, longest: int = LONGEST) -> str:
    """The visible text on one line, cut to `longest` characters."""
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return visible(_SPACES.sub(" ", text).strip() if not text.isprintable() else text)


def without_calls(text: str) -> str:
    """The visible text on one line, in which a chat finds no mention (`@everyone`, `<!channel>`) and no link that hides its
    address."""
    return _CALL.sub("@ ", in_a_line(text)).replace("](", "] (").translate(_BRACKETS)


def cleaned(found: Any) -> Any:
    """Decoded JSON with each text in it visible and on one line."""
    if isinstance(found, str):
        return in_a_line(found)
    if isinstance(found, list):
        return [cleaned(each) for each in found]
    return {in_a_line(name): cleaned(each) for name, each in found.items()} if isinstance(found, dict) else found


# Lists and numbers as people write them: `a, b and 7 more`; `1 pod`, `2 pods`.


def some_of(names: Collection[str], most: int = 3) -> str:
    """The first ones in their order, and how many more there are; never the names of a whole fleet."""
    more = len(names) - most
    return ", ".join(islice(names, most)) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """noun: in the singular, with a plural in s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
