"""Log lines on stderr: one line for people, or one JSON object for collectors, Temporal's core included."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from queue import SimpleQueue
from textwrap import indent
from typing import Any

from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError

from policy.values.display_text import in_a_line, visible
from workers.configuration.process_settings import LogFormat, LogSettings

_CONTEXTS = ("temporal_workflow", "temporal_activity")
_QUIET = ("temporalio.worker", "aiohttp.access", "asyncio", "kubernetes", "urllib3", "botocore")


_writers: list[QueueListener] = []


def configure(settings: LogSettings, *, file: Path | None = None) -> None:
    """Set up the root logger. file: where lines go that would only disturb the terminal; None: stderr.

    Lines are written by a thread of their own: workflow code logs from inside the sandbox, where a handler could not even import
    what it writes with, and a slow terminal must hold up no work.
    """
    output = logging.FileHandler(file) if file is not None else _CurrentStderr()
    output.setFormatter(_JsonFormatter() if settings.format is LogFormat.JSON else _PlainFormatter())
    lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
    finish()
    writer = QueueListener(lines, output)
    writer.start()
    _writers.append(writer)
    atexit.register(finish)
    root = logging.getLogger()
    root.handlers[:] = [_Hand(lines)]
    root.setLevel(settings.level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # What they append to the text is a dictionary; we have the same as fields, or as two words.
    activity.logger.activity_info_on_message = False
    workflow.logger.workflow_info_on_message = False


def finish() -> None:
    """Write what is still queued. Called at exit."""
    while _writers:
        _writers.pop().stop()


class _Hand(QueueHandler):
    """Hands records over as they are; the inherited way would format them here, in the sandbox."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


class _CurrentStderr(logging.Handler):
    """Writes to whatever stderr is at that moment: a live table redirects it, so that lines appear above the table."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - a log line must not end what it tells of; this is logging's own way to say so
            self.handleError(record)


def _story(record: logging.LogRecord) -> tuple[str, bool]:
    """The text, and whether a traceback belongs under it: refusals with a reason of their own need none."""
    text = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, asyncio.CancelledError):
        return f"{text}: it was cancelled", False
    if isinstance(error, ApplicationError) and error.type:
        return f"{text}: {error.message if error.message.startswith(error.type) else f'{error.type}: {error.message}'}", False
    return text, error is not None


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        text, traceback = _story(record)
        line = in_a_line(f"{moment} {record.levelname.lower()} {record.name}: {text}{_context(record)}")
        if traceback and record.exc_info:
            line += "\n" + indent(visible(self.formatException(record.exc_info)), "  ", lambda _: True)  # begins no line of ours
        return line


def _context(record: logging.LogRecord) -> str:
    for context in _CONTEXTS:
        details = getattr(record, context, None)
        if isinstance(details, Mapping):
            words = [str(details[key]) for key in ("workflow_id", "activity_type") if key in details]
            return f" [{' '.join(words)}]"
    return ""


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text, traceback = _story(record)
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text,
        }
        for context in _CONTEXTS:
            details = getattr(record, context, None)
            if isinstance(details, Mapping):
                entry |= {key: value for key, value in details.items() if isinstance(value, str | int | float)}
        if traceback and record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return visible(json.dumps(entry, ensure_ascii=False, default=str))
