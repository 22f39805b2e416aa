"""What is printed, as plain text of a given width."""

from __future__ import annotations

import io

from rich.console import RenderableType

from starter.output.console import PlainConsole


def drawn(shown: RenderableType, *, width: int = 140) -> list[str]:
    """The lines that are not empty."""
    console = PlainConsole(file=io.StringIO(), width=width, force_terminal=False, highlight=False, markup=False, emoji=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]
