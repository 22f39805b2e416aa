"""Notifies people who look at neither kubectl nor dashboards: by chat, pagers, mail, webhooks.

The services are Apprise's business, and where to send is in files, as the addresses contain tokens (S12): they are read at each
sending, and neither they nor what a service answers is logged. The caller does not wait and does not learn of failures: no act of
ours depends on a message. The same words about one incident are sent once by a worker within a while; more than a few messages in
a minute become one. What waits to be sent is lost with its worker, and what another worker is given again is sent again: so each
message names its incident, and an episode that needs a person is repeated (`REMIND_EVERY`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from temporalio.common import MetricMeter

from activities.contracts import metrics
from activities.contracts.episode_start import page_of
from policy.episode.notices import FIELDS, Notice, NoticeRule, Severity

_log = logging.getLogger(__name__)
# It names addresses, and with them tokens. Merely disabled it would speak again once any library configures logging.
logging.getLogger("apprise").addFilter(lambda _: False)

SINGLY = 5
"""Messages in a minute to one address; the rest of that minute is one more."""
MINUTE_SECONDS = 60.0
QUIET_SECONDS = 20 * 60.0
"""The same words about one incident are no news for so long. Less than `REMIND_EVERY` of `policy/episode/notices.py`."""
REMEMBERED, WAITING, LISTED = 1000, 1000, 20
FLUSH_SECONDS = 5.0
IN_ADDRESSES = ("when", "cluster", "node", "subject", "outcome", "severity", "thread")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(IN_ADDRESSES) + r")\}")
TRIES, TRY_AGAIN = 3, timedelta(seconds=5)


Notify = Callable[[Notice], None]
"""Notifies people, without waiting."""

Taken = set[tuple[str, tuple[str | int, ...]]]
"""Which address has taken which news."""


def discard_notice(notice: Notice) -> None:
    """Where no recipient is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """Where the addresses of a person or a team are, and which notices they want."""

    name: str
    url_file: Path
    rule: NoticeRule = field(default_factory=NoticeRule, hash=False)


class Notifier:
    """The messages of one worker process. A context: what is left at its end is tried once, as one message."""

    def __init__(self, recipients: Sequence[Recipient], *, page: str = "", meter: MetricMeter = MetricMeter.noop) -> None:
        self._waiting = {each: deque[Notice](maxlen=WAITING) for each in recipients}
        """Until they are sent, or given up. Of more than so many the oldest go: they would be one message anyway."""
        self._taken = {each: Taken() for each in recipients}
        """Of what is being sent, which addresses have taken it: a try that ends in the middle is not sent to those again."""
        self._news = {each: asyncio.Event() for each in recipients}
        self._page = page
        self._meter = meter
        self._notified: OrderedDict[tuple[str | int, ...], float] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._serve(recipient), name=recipient.name) for recipient in self._waiting]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await asyncio.gather(
                    *(self._try(each, list(left), self._taken[each]) for each, left in self._waiting.items() if left)
                )

    def notify(self, notice: Notice) -> None:
        """Have it sent to all recipients that want it, with a link to our page, unless it was sent a while ago."""
        now, key = asyncio.get_running_loop().time(), notice.repetition_key
        if now - self._notified.get(key, float("-inf")) < QUIET_SECONDS:
            return
        self._notified[key] = now
        self._notified.move_to_end(key)
        while len(self._notified) > REMEMBERED:
            self._notified.popitem(last=False)
        notice = replace(notice, link=page_of(self._page, notice.cluster, notice.node))
        for recipient, waiting in self._waiting.items():
            if recipient.rule.wants(notice):
                waiting.append(notice)
                self._news[recipient].set()

    async def _serve(self, recipient: Recipient) -> None:
        waiting, publication, clock = self._waiting[recipient], self._news[recipient], asyncio.get_running_loop().time
        sent = deque[float](maxlen=SINGLY)
        while True:
            await publication.wait()
            publication.clear()
            while waiting:
                several = len(sent) == SINGLY and (left := sent[0] + MINUTE_SECONDS - clock()) > 0
                if several:
                    await asyncio.sleep(left)
                notices = list(waiting) if several else [waiting[0]]
                sent.append(clock())
                await self._send(recipient, notices)
                for each in notices:
                    with contextlib.suppress(ValueError):  # it was one of too many
                        waiting.remove(each)

    async def _send(self, recipient: Recipient, notices: Sequence[Notice]) -> None:
        problem, done = "", self._taken[recipient]
        done.clear()
        for attempt in range(TRIES):
            await asyncio.sleep(attempt * TRY_AGAIN.total_seconds())
            problem = await self._try(recipient, notices, done)
            if not problem:
                break
        else:
            _log.warning("%s: %r was not sent: %s", recipient.name, _message(recipient.rule, notices).title, problem)
        metrics.NOTIFICATIONS.add(self._meter, result="failed" if problem else "sent")

    async def _try(self, recipient: Recipient, notices: Sequence[Notice], done: Taken) -> str:
        """done: who has taken what already, and is not troubled again."""
        return await asyncio.to_thread(_sent, recipient, notices, done)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """As a service is given it."""

    title: str
    text: str
    severity: Severity
    good: bool


def _message(rule: NoticeRule, notices: Sequence[Notice]) -> _Message:
    """Of one as it is, of several a digest."""
    title, text = rule.written(notices[0]) if len(notices) == 1 else _digest(rule, notices)
    gravest = max((each.severity for each in notices), key=lambda each: each.rank)
    return _Message(title=title, text=text, severity=gravest, good=all(each.good for each in notices))


def _digest(rule: NoticeRule, notices: Sequence[Notice]) -> tuple[str, str]:
    counts = Counter(each.outcome or each.when.value for each in notices)
    title = f"nodewarden: {len(notices)} messages: " + ", ".join(f"{number} {what}" for what, number in counts.most_common())
    more = [f"and {len(notices) - LISTED} more: `nodewarden status`"] if len(notices) > LISTED else []
    return title, "\n\n".join(["\n".join(rule.written(each)) for each in notices[:LISTED]] + more)


def _sent(recipient: Recipient, notices: Sequence[Notice], done: Taken) -> str:
    """Send to every address of the file. "" or what is wrong first; an address that takes nothing keeps it from no other."""
    try:
        lines = [line.strip() for line in recipient.url_file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        return f"url_file can't be read: {type(error).__name__}"
    addresses = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if not addresses:
        return "url_file contains no address"
    problems = []
    for number, address in addresses:
        # Where the address names the thread, each thread gets a message of its own: a digest would end no incident of a pager.
        threads = {each.thread: [each] for each in notices} if _PLACEHOLDER.search(address) else {"": list(notices)}
        for several in threads.values():
            left = [each for each in several if (address, each.repetition_key) not in done]
            if left and (problem := _sent_to(address, recipient.rule, left, number)):
                problems.append(problem)
            else:
                done.update((address, each.repetition_key) for each in left)
    return problems[0] if problems else ""


def _sent_to(address: str, rule: NoticeRule, notices: Sequence[Notice], line: int) -> str:
    """One message. "" or what is wrong, in words of ours: a service's own may repeat its token."""
    import apprise

    message = _message(rule, notices)
    kinds = {
        Severity.INFO: apprise.NotifyType.SUCCESS if message.good else apprise.NotifyType.INFO,
        Severity.WARNING: apprise.NotifyType.WARNING,
        Severity.CRITICAL: apprise.NotifyType.FAILURE,
    }
    service = apprise.Apprise()
    try:
        if not service.add(addressed(address, notices[-1])):
            return f"url_file: line {line} is no address that Apprise knows"
        kind, text = kinds[message.severity], apprise.NotifyFormat.TEXT
        taken = service.notify(body=message.text, title=message.title, notify_type=kind, body_format=text)
    except Exception as error:  # noqa: BLE001 - a service's plugin may fail in any way, and its message may contain the address
        return f"{type(error).__name__} in Apprise"
    return "" if taken else "not all of its services took it"


def addressed(address: str, notice: Notice) -> str:
    """The address for that notice. Whatever is filled in is quoted, so that no name becomes an option, a path or a host (S41). A
    name of dots alone, which no quoting keeps from being a step of the path, is left out."""

    def filled(found: re.Match[str]) -> str:
        value = FIELDS[found[1]](notice)
        return quote(value, safe="") if value.strip(".") else ""

    return _PLACEHOLDER.sub(filled, address)
