"""The console that fits where stdout goes."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from policy.values.display_text import visible
from starter.output import PIPE_WIDTH

_TRAILING = re.compile(r"(?<! ) +$", re.MULTILINE)


class _Unpadded(io.TextIOBase):
    """stdout, without the spaces by which tables are made rectangles: for grep, diff and mails."""

    def write(self, text: str) -> int:
        return sys.stdout.write(_TRAILING.sub("", text))

    def flush(self) -> None:
        sys.stdout.flush()


class PlainConsole(Console):
    """Takes no text for markup, and hands no character that is not seen to the terminal: what others have written may hold both
    (S50). Colours of ours are styles, and no characters yet."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See the base class."""
        for each in super().render(renderable, options):
            known = each.control or each.text.isprintable()
            yield each if known else Segment(visible(each.text), each.style)


def fitting_console(*, width: int | None = PIPE_WIDTH, markup: bool = False) -> Console:
    """As wide as the terminal. Elsewhere as wide as COLUMNS says, else `width`: the default folds no lines. markup: where no text
    is another's."""
    if sys.stdout.isatty():
        return PlainConsole(highlight=False, markup=markup, emoji=False)
    width = None if "COLUMNS" in os.environ else width
    return PlainConsole(file=_Unpadded(), width=width, highlight=False, markup=markup, emoji=False)  # type: ignore[arg-type]
