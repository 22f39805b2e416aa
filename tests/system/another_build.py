"""Another build of nodewarden, to run beside this one: its workflows have another order of steps, and their states more fields.

So an episode that came to the wrong build would stop with Temporal's TMPRL1100 at its next task, and not look as if nothing was.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.system.worker_process import ROOT

STEP = "a step that only this build has"
EXECUTES = "    result: Result = await workflow.execute_activity_method(activity, request,"
TIMER = f'    await workflow.sleep(timedelta(milliseconds=1), summary="{STEP}")'
READS = "        await self.case.power.try_out()"
ISOLATES = """        await self._wait_before_isolation()
        await self.case.isolation.carry_out()"""
CHANGES = (
    # A timer before each activity of every workflow: no history of the other build has that.
    ("kit/options.py", EXECUTES, f"{TIMER}\n{EXECUTES}"),
    # An episode's steps in another order.
    ("fencing/story.py", f"{READS}\n{ISOLATES}", f"{ISOLATES}\n{READS}"),
    # What goes from history to history, and back to the other build.
    ("episode/state.py", '    run_id: str = ""', f'    run_id: str = ""\n    newer: str = "{STEP}"'),
    ("scanner/state.py", '    build: str = ""', f'    build: str = ""\n    newer: str = "{STEP}"'),
)


def make(folder: Path) -> Path:
    """The packages of the repository, with workflows of their own. Where to import them from."""
    folder.mkdir()
    for each in ROOT.iterdir():
        if each.name != "workflows" and not each.name.startswith("."):
            (folder / each.name).symlink_to(each)
    shutil.copytree(ROOT / "workflows", folder / "workflows", ignore=shutil.ignore_patterns("__pycache__"))
    for name, today, then in CHANGES:
        file = folder / "workflows" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(today) == 1, f"{name}: {today!r}"
        file.write_text(text.replace(today, then), encoding="utf-8")
    return folder
