"""Writes the decision stream (`policy/episode/decisions.py`) where the setting `stream` says: lines of JSON, and logs by OTLP.

An activity hands its records over and completes once each sink has taken them: so records of a worker that is killed come
again, with the next attempt, under the same ids. No act waits for a sink for longer than `PATIENCE`, and for one that is late
not at all. What it has not taken is kept in memory, tried again, and counted as lost where that is full or the worker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
from temporalio.common import MetricMeter

from activities.contracts import metrics
from policy.episode.decisions import Decision, DecisionKind
from policy.values.display_text import cleaned

PATIENCE = 0.5
"""Seconds that an act waits for a sink."""
MOST_WAITING, AT_ONCE = 20_000, 500
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
LAST_SECONDS = 5.0
EXPORT_SECONDS = 4
"""So long an exporter of OTLP tries."""
REFUSALS = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.BAD_REQUEST})
"""After the second OTLP has nothing sent again as it is; OpenTelemetry's collector answers it to what is too large, too."""

_log = logging.getLogger(__name__)

Line = dict[str, Any]
"""A record as decoded JSON, its texts visible and on one line (S50)."""
RecordDecisions = Callable[[Sequence[Decision]], Awaitable[None]]
"""Returns once the records are written, or can't be soon. Raises nothing."""


class RefusedRecordsError(OSError):
    """A sink never takes these records together."""


class Sink(ABC):
    """Where records go. Called by one thread of its own."""

    name: str

    @abstractmethod
    def write(self, lines: Sequence[Line]) -> None:
        """Return once they are there. Raises OSError where they may not be: they are written again. RefusedRecordsError: fewer
        may be taken, and a single one never is."""


class FileSink(Sink):
    """Lines of JSON in a file, which may be renamed or deleted at any time (logrotate); None: on stdout."""

    name = "file"

    def __init__(self, path: Path | None) -> None:
        """Raises OSError where the file can't be written."""
        self._path = path
        self._file = 1 if path is None else self._opened(path)
        self._torn = False

    def write(self, lines: Sequence[Line]) -> None:
        """One write for all, so that workers with one file do not mix their lines; a kill leaves what is written."""
        if self._path is not None and not self._is_open_still(self._path):
            os.close(self._file)
            self._file = self._opened(self._path)
        left = b"".join([b"\n" if self._torn else b"", *(orjson.dumps(each) + b"\n" for each in lines)])
        self._torn = True
        while left:
            left = left[os.write(self._file, left) :]
        self._torn = False

    def _opened(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _is_open_still(self, path: Path) -> bool:
        try:
            there = path.stat()
        except FileNotFoundError:
            return False
        mine = os.fstat(self._file)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


class OtlpSink(Sink):
    """Log records by OTLP over HTTP. The body is the record, `log.record.uid` its id, by which collectors drop doubles."""

    name = "otlp"

    def __init__(self, endpoint: str, *, headers: Mapping[str, str], ca_file: Path | None, identity: str) -> None:
        """Raises ImportError without the extra `otel`."""
        import requests
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.sdk._logs.export import LogRecordExportResult
        from opentelemetry.sdk.resources import Resource

        answers, session = deque[int](maxlen=1), requests.Session()

        def answered(response: requests.Response, **_options: object) -> None:
            answers.append(response.status_code)

        session.hooks["response"].append(answered)
        exporter = OTLPLogExporter(
            endpoint=endpoint,
            headers=headers,
            certificate_file=str(ca_file) if ca_file else None,
            timeout=EXPORT_SECONDS,
            session=session,
        )
        resource = Resource.create({"service.name": "nodewarden", "service.instance.id": identity})

        def record(line: Line) -> ReadableLogRecord:
            at = int(datetime.fromisoformat(line["at"]).timestamp() * 1e6) * 1000
            severity = SeverityNumber.WARN if line["kind"] == DecisionKind.ASKED else SeverityNumber.INFO
            names = {"k8s.cluster.name": line["cluster"], "k8s.node.name": line["node"], "k8s.node.uid": line["uid"]}
            attributes = {"log.record.uid": line["id"], **{key: value for key, value in names.items() if value}}
            return ReadableLogRecord(
                LogRecord(  # pyrefly: ignore[direct-abstract-base-instantiation] - an ABC without an abstract method
                    timestamp=at,
                    observed_timestamp=at,
                    severity_number=severity,
                    severity_text=severity.name,
                    body=line,
                    attributes=attributes,
                    event_name="nodewarden.decision",
                ),
                resource,
            )

        def export(lines: Sequence[Line]) -> int | None:
            """None: they are taken; else the last answer's status, 0 where there was none."""
            answers.clear()
            if exporter.export([record(each) for each in lines]) is LogRecordExportResult.SUCCESS:
                return None
            return answers[0] if answers else 0

        self._export = export

    def write(self, lines: Sequence[Line]) -> None:
        """The exporter itself tries again for a moment."""
        status = self._export(lines)
        if status in REFUSALS:
            raise RefusedRecordsError(f"the collector, or a proxy before it, refuses them with HTTP {status}")
        if status is not None:
            raise OSError("the collector did not take them")


class _Lane:
    """The queue of one sink, and the thread that empties it."""

    def __init__(self, sink: Sink, meter: MetricMeter) -> None:
        self._sink, self._meter, self._loop = sink, meter, asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting = deque[Line]()
        self._ends = False
        self._accepted = self._done = self._lost = 0
        self._expected = deque[tuple[int, asyncio.Future[None]]]()
        self.late = False
        """Whether an act has waited for it in vain since it last had written everything."""
        for result in ("written", "lost"):
            metrics.DECISIONS.add(meter, 0, sink=sink.name, result=result)
        self._thread = threading.Thread(target=self._serve, name=f"decision stream: {sink.name}", daemon=True)
        self._thread.start()

    def put(self, lines: Sequence[Line]) -> asyncio.Future[None]:
        """Done once they are written, or dropped because too many wait."""
        written = self._loop.create_future()
        with self._changed:
            if len(self._waiting) + len(lines) > MOST_WAITING:
                self._drop(len(lines), f"{len(self._waiting)} wait already")
                written.set_result(None)
                return written
            self._waiting.extend(lines)
            self._changed.notify()
        self._accepted += len(lines)
        self._expected.append((self._accepted, written))
        return written

    async def close(self) -> None:
        """Write what is left, within a moment."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join, LAST_SECONDS)
        if self._waiting:
            self._drop(len(self._waiting), "the worker ends")

    def _drop(self, number: int, why: str) -> None:
        self._lost += number
        metrics.DECISIONS.add(self._meter, number, sink=self._sink.name, result="lost")
        if self._lost == number or self._ends:
            _log.error("decision stream, %s: %d records are lost: %s", self._sink.name, number, why)

    def _taken(self, number: int, refused: RefusedRecordsError | None) -> None:
        """So many wait no longer: they are written, or lost."""
        self._done += number
        if refused is None:
            metrics.DECISIONS.add(self._meter, number, sink=self._sink.name, result="written")
        else:
            self._drop(number, str(refused))
        while self._expected and self._expected[0][0] <= self._done:
            _, written = self._expected.popleft()
            if not written.done():
                written.set_result(None)
        if not self._expected:
            self.late, self._lost = False, self._lost if refused else 0

    def _remove(self, number: int, refused: RefusedRecordsError | None = None) -> None:
        with self._changed:
            for _ in range(number):
                self._waiting.popleft()
        with contextlib.suppress(RuntimeError):  # a write that has outlived its worker's loop
            self._loop.call_soon_threadsafe(self._taken, number, refused)

    def _serve(self) -> None:
        """After a failure half as many go in one write, and after each success twice as many: a request may be too large for the
        sink, and not each proxy says so."""
        pause, at_once = 0.0, AT_ONCE
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ends)
                if not self._waiting:
                    return
                lines = [self._waiting[place] for place in range(min(len(self._waiting), at_once))]
            try:
                self._sink.write(lines)
            except Exception as error:  # noqa: BLE001 - whatever a library raises, the next try may be better
                at_once = max(len(lines) // 2, 1)
                if isinstance(error, RefusedRecordsError):
                    if len(lines) > 1:
                        continue
                    self._remove(1, error)  # and a pause: a sink that refuses everything empties no queue
                elif not pause:
                    _log.warning("decision stream, %s: records are not taken, and are tried again: %s", self._sink.name, error)
                pause = min(pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
                with self._changed:
                    if self._ends or self._changed.wait_for(lambda: self._ends, pause):
                        return
                continue
            if pause:
                _log.info("decision stream, %s: records are taken again", self._sink.name)
            pause, at_once = 0.0, min(at_once * 2, AT_ONCE)
            self._remove(len(lines))


class DecisionStream:
    """The sinks of one worker process. A context: what is left at its end is written within a moment, or counted as lost."""

    def __init__(self, sinks: Iterable[Sink], *, meter: MetricMeter = MetricMeter.noop) -> None:
        self._sinks, self._meter = tuple(sinks), meter
        self._lanes: tuple[_Lane, ...] = ()

    async def __aenter__(self) -> Self:
        self._lanes = tuple(_Lane(each, self._meter) for each in self._sinks)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.gather(*(each.close() for each in self._lanes))

    async def record(self, decisions: Sequence[Decision]) -> None:
        if not decisions:
            return
        lines = [cleaned(orjson.loads(orjson.dumps(each))) for each in decisions]
        written = [(each, each.put(lines)) for each in self._lanes]
        awaited = [future for lane, future in written if not lane.late]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*map(asyncio.shield, awaited))
        for lane, future in written:
            lane.late = lane.late or not future.done()
