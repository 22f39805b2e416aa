"""The pictures of the pages, taken of a real demo: `make pictures` shows one and writes docs/pictures/*.svg.

Each is what a terminal of that width shows, as rich draws it. Its font would come from another host, so it is the reader's own.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from demo.repair import Demo
from starter.handles.status import ClusterStatus
from starter.output.status_table import render
from tests.docs.reading import DOCS

WIDTH = 122
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, monospace", FONT)
LIVE, ENDING = "live", "ending"


def terminal() -> Console:
    """What is printed on it is kept as a picture."""
    return Console(record=True, force_terminal=True, color_system="truecolor", width=WIDTH, file=StringIO(), legacy_windows=False)


def picture(console: Console, title: str) -> str:
    """As SVG, without spaces at the ends of its lines, and with the same names for the same things each time."""
    drawn = console.export_svg(title=title, code_format=FORMAT, unique_id="nodewarden")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


class Photographed(Demo):
    """A demo of which the live table is taken when it shows most: the second node under repair, off and not yet back."""

    def __init__(self, state: Path) -> None:
        super().__init__(state, keep=False)
        self.live = ""

    def _follow(self, statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            report = status.scanner.report if status.scanner is not None else None
            away = {row.node for row in report.rows if row.ready != "True"} if report is not None else set()
            proven = any(episode.off_proof is not None and episode.node in away for episode in status.episodes)
            waits = status.scanner is not None and (status.scanner.queue or status.scanner.refused)
            if proven and waits:
                console = terminal()
                console.print(render(status, now=datetime.now(UTC), where=self._where))
                self.live = picture(console, "nodewarden status --watch")
        super()._follow(statuses)

    async def _settled(self, simulation: object) -> None:
        """From here on the summary is printed."""
        await super()._settled(simulation)  # type: ignore[arg-type]
        self._console = terminal()

    def ending(self) -> str:
        return picture(self._console, "make demo")


async def taken(state: Path) -> dict[str, str]:
    """Show a demo, and take both. Raises RuntimeError where it did not end well or nothing could be taken."""
    demo = Photographed(state)
    code = await demo.run()
    if code or not demo.live:
        raise RuntimeError(f"the demo ended with {code}, and the live table was {'' if demo.live else 'not '}taken")
    return {LIVE: demo.live, ENDING: demo.ending()}


def main(write: Callable[[Path, str], object] = lambda path, text: path.write_text(text, encoding="utf-8")) -> None:
    """Into docs/pictures."""
    with tempfile.TemporaryDirectory() as folder:
        for name, drawn in asyncio.run(taken(Path(folder))).items():
            write(DOCS / "pictures" / f"{name}.svg", drawn)


if __name__ == "__main__":
    sys.exit(main())
