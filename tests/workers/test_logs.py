"""Log lines: one line for people, one object for collectors, and never a traceback for a refusal that has a reason."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from temporalio.exceptions import ApplicationError

from workers.configuration.process_settings import LogFormat, LogSettings
from workers.logs import configure, finish


@pytest.fixture(autouse=True)
def former_handlers() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    finish()
    root.handlers[:] = handlers
    root.setLevel(level)


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    finish()
    return capsys.readouterr().err.splitlines()


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


def test_plain_lines_say_when_how_bad_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    logging.getLogger("workers.worker").info("serving %s", "nodewarden")
    logging.getLogger("workers.worker").debug("not asked for")
    (line,) = written(capsys)
    assert line.endswith(" info workers.worker: serving nodewarden")


def test_json_lines_carry_the_workflow_as_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format=LogFormat.JSON))
    details = {"workflow_id": "episode/prod/node-7", "attempt": 2, "task_token": b"no text"}
    logging.getLogger("activities").warning("slow", extra={"temporal_activity": details})
    entry = json.loads(written(capsys)[0])
    assert entry["level"] == "warning"
    assert entry["message"] == "slow"
    assert entry["workflow_id"] == "episode/prod/node-7"
    assert entry["attempt"] == 2
    assert "task_token" not in entry


def test_an_activitys_refusal_is_one_line_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    error = raised(ApplicationError("no template", type="InvalidConfig"))
    details = {"workflow_id": "episode/prod/node-7", "activity_type": "isolation.pin-target"}
    logging.getLogger("activities").warning("failed", exc_info=error, extra={"temporal_activity": details})
    (line,) = written(capsys)
    assert line.endswith("failed: InvalidConfig: no template [episode/prod/node-7 isolation.pin-target]")


def test_a_bug_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    logging.getLogger("activities").error("failed", exc_info=raised(ZeroDivisionError("by zero")))
    lines = written(capsys)
    assert lines[1].startswith("  Traceback")
    assert lines[-1] == "  ZeroDivisionError: by zero"


def test_lines_go_to_the_stderr_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live table replaces stderr while it is drawn."""
    configure(LogSettings())
    replaced = io.StringIO()
    monkeypatch.setattr(sys, "stderr", replaced)
    logging.getLogger("a").warning("above the table")
    finish()
    assert "above the table" in replaced.getvalue()
