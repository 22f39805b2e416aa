"""Sentences, and tables whose last column is one. Where a terminal leaves no room for it there, the sentences stand below: one
word a line is none. Commands in them are to be copied, so they are broken only where no line has room for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDEST = 1000
ROOM = 30
"""With fewer columns left the sentences stand below."""
_COMMAND = re.compile(r"(?<!\S)\S*`[^`\n]+`\S*")
_NO_SPACE = "\ue000"
"""Of no alphabet, and as wide as a space: what stands in a command for its spaces while lines are broken."""


class Sentence(Text):
    """Words of which whatever stands between backticks stays on one line."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """The lines of at most so many columns."""
        whole = self.copy()
        whole.plain = _COMMAND.sub(lambda found: _whole(found[0]) if cell_len(found[0]) <= width else found[0], self.plain)
        lines = whole.wrap(console, width, **options)
        for line in lines:
            line.plain = line.plain.replace(_NO_SPACE, " ")
        return lines


def _whole(command: str) -> str:
    return command.replace(" ", _NO_SPACE)


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
                line: RenderableType = Sentence.assemble((f"{about}: ", "bold"), said, overflow="fold")
                yield Padding(line, (0, 0, 0, self.indent))
