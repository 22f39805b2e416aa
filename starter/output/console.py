"""The console that fits where stdout goes, and how it breaks lines: between words; within a command, a path or an address only
where no line has room for it. `Sentences` is a table with a sentence as its last column, for which a terminal may have no
room."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from policy.values.display_text import visible
from starter.output import PIPE_WIDTH

WIDEST = 1000
ROOM = 30
"""With fewer columns left the sentences stand below their table: one word a line is none."""
_TRAILING = re.compile(r"(?<! ) +$", re.MULTILINE)
_COMMAND = re.compile(r"(?:(?<![^\s`])[^\s`]*)?`[^`\n]+`[^\s`]*")
_WORD = re.compile(r"\S+")
_PART = re.compile(r"[^/,=?&]*[/,=?&]*")
"""Of a path, an address or a list without spaces: where a line ends that has no room for all of it."""
_NO_SPACE = "\ue000"
"""Of no alphabet, and as wide as a space: what stands in a command for its spaces while lines are broken."""


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
        """See the base class. Every text is broken as `_Wrapped` does it."""
        if isinstance(renderable, str):
            chosen = options or self.options
            renderable = self.render_str(renderable, highlight=chosen.highlight, markup=chosen.markup)
        for each in super().render(_Wrapped.of(renderable) if type(renderable) is Text else renderable, options):
            known = each.control or each.text.isprintable()
            yield each if known else Segment(visible(each.text), each.style)


class _Wrapped(Text):
    """Text of which what stands between backticks stays on one line, to be copied, and what is longer than a line is broken where
    it has a joint."""

    @classmethod
    def of(cls, text: Text) -> _Wrapped:
        return cls(
            text.plain,
            style=text.style,
            justify=text.justify,
            overflow=text.overflow,
            no_wrap=text.no_wrap,
            end=text.end,
            tab_size=text.tab_size,
            spans=list(text.spans),
        )

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """The lines of at most so many columns."""
        whole = self.copy()
        whole.plain = _COMMAND.sub(
            lambda found: found[0].replace(" ", _NO_SPACE) if cell_len(found[0]) <= width else found[0], self.plain
        )
        if not options.get("no_wrap") and (joints := _joints(whole.plain, width)):
            whole = Text("\n").join(whole.divide(joints))
        lines = whole.wrap(console, width, **options)
        for line in lines:
            line.plain = line.plain.replace(_NO_SPACE, " ")
        return lines


def _joints(text: str, width: int) -> list[int]:
    """Where words that are longer than a line are to be broken; one of their parts that is longer still is broken anywhere."""
    found = []
    for word in _WORD.finditer(text):
        left = width
        if cell_len(word[0]) > width:
            for part in _PART.finditer(word[0]):
                size = cell_len(part[0])
                if size > left and part.start():
                    found.append(word.start() + part.start())
                    left = width
                left -= size
    return found


def fitting_console(*, width: int | None = PIPE_WIDTH, markup: bool = False) -> Console:
    """As wide as the terminal. Elsewhere as wide as COLUMNS says, else `width`: the default folds no lines. markup: where no text
    is another's."""
    if sys.stdout.isatty():
        return PlainConsole(highlight=False, markup=markup, emoji=False)
    width = None if "COLUMNS" in os.environ else width
    return PlainConsole(file=_Unpadded(), width=width, highlight=False, markup=markup, emoji=False)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """table: with the last column, or without it. below: what each sentence is about, and the sentence; "" is left out. alone:
    they stand instead of the table and not below it, each under a line of its own that says all that its row would."""

    table: Callable[[bool], Table]
    below: Sequence[tuple[str | Text, Text]]
    room: int = ROOM
    indent: int = 0
    alone: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bare = self.table(False)
        left = options.max_width - console.measure(bare, options=options.update(width=WIDEST)).maximum
        widest = max((cell_len(found) for _, said in self.below for found in _COMMAND.findall(said.plain)), default=0)
        if left >= max(self.room, bare.padding[1] + widest):
            yield self.table(True)
            return
        if not self.alone:
            yield bare
        for about, said in self.below:
            if self.alone:
                yield about
                yield Padding(said, (0, 0, 0, 2))
            elif said:
                line: RenderableType = Text.assemble((f"{about}: ", "bold"), said, overflow="fold")
                yield Padding(line, (0, 0, 0, self.indent))
