"""A table whose last column is a sentence. Where a terminal leaves no room for one there, the sentences stand below it: one word
a line is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDEST = 1000
ROOM = 30
"""With fewer columns left the sentences stand below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """table: with the last column, or without it. below: whom each sentence is about, and the sentence; "" is left out. alone:
    they stand instead of the table and not below it, each under a line of its own that says all that its row would."""

    table: Callable[[bool], Table]
    below: Sequence[tuple[str | Text, Text]]
    room: int = ROOM
    indent: int = 0
    alone: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bare = self.table(False)
        if options.max_width - console.measure(bare, options=options.update(width=WIDEST)).maximum >= self.room:
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
