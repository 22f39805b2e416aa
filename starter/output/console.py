"""The console that fits where stdout goes."""

from __future__ import annotations

import io
import os
import re
import sys

from rich.console import Console

from starter.output import PIPE_WIDTH

_TRAILING = re.compile(r"(?<! ) +$", re.MULTILINE)


class _Unpadded(io.TextIOBase):
    """stdout, without the spaces by which tables are made rectangles: for grep, diff and mails."""

    def write(self, text: str) -> int:
        return sys.stdout.write(_TRAILING.sub("", text))

    def flush(self) -> None:
        sys.stdout.flush()


def fitting_console(*, width: int | None = PIPE_WIDTH) -> Console:
    """As wide as the terminal. Elsewhere as wide as COLUMNS says, else `width`: the default folds no lines."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(file=_Unpadded(), width=None if "COLUMNS" in os.environ else width, highlight=False)  # type: ignore[arg-type]
