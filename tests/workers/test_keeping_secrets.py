"""What a worker knows stays in its memory: no core dump, and nobody of the same user looks into it (S12)."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workers import os_process

ROOT = Path(__file__).parents[2]
CHILD = "import os, resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0], flush=True); os.abort()"
DIES = f"""
import os, subprocess, sys
{{guard}}
subprocess.run([sys.executable, "-S", "-c", {CHILD!r}])
os.abort()
"""
GUARD = "from workers.os_process import keep_memory_private; keep_memory_private()"
ITSELF = """
import os, time
print(len(os.listdir("/proc/self/fd")) > 2, flush=True)
time.sleep(60)
"""
NOBODY = 65534
PYTHON = shutil.which("python3", path=os.defpath)
"""Which every user may run, other than that of an environment."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def _dumps_as_it_would_elsewhere() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def _dies(folder: Path, guard: str) -> int:
    """The status with which it ended, of which the kernel says whether it was dumped."""
    process = subprocess.Popen(
        [sys.executable, "-c", DIES.format(guard=guard)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        preexec_fn=_dumps_as_it_would_elsewhere,  # noqa: PLW1509 - it takes no lock
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0
    assert os.WTERMSIG(status) == signal.SIGABRT
    if guard:
        assert said.strip() in {b"0", b"1"}
    return status


def test_neither_a_worker_nor_what_it_starts_leaves_a_core(tmp_path: Path) -> None:
    if not os.WCOREDUMP(_dies(tmp_path, guard="")):
        pytest.skip("nothing leaves a core on this machine")
    for each in tmp_path.iterdir():
        each.unlink()
    assert not os.WCOREDUMP(_dies(tmp_path, guard=GUARD))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0 or PYTHON is None, reason="becomes two processes of another user")
@pytest.mark.parametrize("guarded", [False, True])
def test_another_process_of_the_same_user_does_not_look_into_it(guarded: bool) -> None:
    """As a fence agent could. It itself still sees which files it has open, which starting another one needs."""
    guard = f"{Path(os_process.__file__).read_text()}\nkeep_memory_private()\n" if guarded else ""
    assert PYTHON is not None
    process = subprocess.Popen(
        [PYTHON, "-c", guard + ITSELF], env={"PASSWORD": "secret"}, cwd="/", user=NOBODY, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"True"
        look = f"print(open('/proc/{process.pid}/environ', 'rb').read())"
        looked = subprocess.run([PYTHON, "-S", "-c", look], cwd="/", user=NOBODY, capture_output=True, text=True, check=False)
        assert ("PASSWORD=secret" in looked.stdout) is not guarded
        assert ("PermissionError" in looked.stderr) is guarded
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
