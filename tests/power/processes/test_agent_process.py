"""Operations in a process of their own: killed by the deadline with all they started."""

from __future__ import annotations

import asyncio
import sys

import pytest

from activities.errors import ErrorType
from activities.power.agent_process import OUTPUT_LIMIT, run
from tests.power.conftest import fails, within
from tests.power.processes.process_table import gone


async def test_what_it_says_and_how_it_ended_are_returned() -> None:
    ended = await run(["sh", "-c", "cat; echo oh >&2; exit 3"], b"hello", within(10))
    assert (ended.stdout, ended.stderr, ended.returncode, ended.timed_out) == (b"hello", b"oh\n", 3, False)


async def test_it_is_killed_at_the_deadline_and_its_last_words_are_kept() -> None:
    ended = await run(["sh", "-c", "echo sent; exec sleep 60"], b"", within(0.3))
    assert ended.timed_out
    assert ended.stdout == b"sent\n"
    assert ended.returncode == -9


@pytest.mark.parametrize("script", ["sleep 60 & echo $!; wait", "sleep 60 & echo $!"])
async def test_what_it_started_is_killed_too(script: str) -> None:
    """S34: also where the process itself has ended and left another that holds its output open."""
    ended = await run(["sh", "-c", script], b"", within(0.3))
    await gone(int(ended.stdout))


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ("setsid sh -c 'echo $$; exec sleep 60' & wait", 0.5),
        ("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2", 0.5),
        ("setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' & sleep 0.2", 10),
    ],
    ids=["with us to the deadline", "holding our output open", "behind an agent that ended well"],
)
async def test_what_has_left_its_session_is_killed_too_and_waited_for_no_longer_than_the_deadline(
    script: str, seconds: float
) -> None:
    """S34: a tool in a session of its own would command later, and hold a power slot as long as it lived."""
    async with asyncio.timeout(5):
        ended = await run(["sh", "-c", script], b"", within(seconds))
    await gone(int(ended.stdout))


async def test_a_flood_of_output_is_cut() -> None:
    ended = await run([sys.executable, "-c", f"print('x' * {2 * OUTPUT_LIMIT})"], b"", within(10))
    assert len(ended.stdout) == OUTPUT_LIMIT


async def test_it_inherits_nothing_that_may_be_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """S12: a worker may have credentials in its environment, as `env:` references want them; what it starts may not."""
    for name in ("NODEWARDEN_CREDENTIAL_BMC", "TEMPORAL_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k3p-my-s3cret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    ended = await run(["env"], b"", within(10))
    assert b"k3p-my-s3cret" not in ended.stdout
    assert b"HTTPS_PROXY=http://proxy.example:3128\n" in ended.stdout


async def test_a_program_that_is_not_there_is_transient() -> None:
    await fails(run(["/no/such/program"], b"", within(1)), ErrorType.TRANSIENT, "no process could be started")
