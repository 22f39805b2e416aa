"""Messages to people, against a local receiver: told once, in storms as one, and no act of ours ever waits or fails by them."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import apprise
import pytest
from aiohttp import web

from activities import notification_sender
from activities.notification_sender import SINGLY, Notifier, Recipient, addressed
from policy.episode.events import When
from policy.episode.notices import KnownNode, Notice, NoticeRule, Severity, Wording
from policy.values.selectors import Operator, Requirement, Selector

pytestmark = pytest.mark.timeout(30)

TOKEN = "xoxb-secret-token"
PARKED = Notice(when=When.NEEDS_HUMAN, cluster="prod", node="node-7", subject="i-1", text="incident i-1: off is not proven")
ENDED = replace(PARKED, when=When.ENDED, outcome="recovered", text="incident i-1: recovered: the node is back")
KNOWN = KnownNode(labels={"topology.kubernetes.io/zone": "zone-a"}, checks=frozenset({"NodeHealthCheck/gpu"}))
ZONE_A, ZONE_B = (
    Selector(requirements=(Requirement(key="topology.kubernetes.io/zone", operator=Operator.IN, values=(zone,)),))
    for zone in ("zone-a", "zone-b")
)


@dataclass
class Receiver:
    """A service of messages. statuses: of its first answers; then it takes all."""

    got: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    """Of what was taken, as it was asked for."""
    statuses: list[int] = field(default_factory=list)
    refused: str = "nothing"
    """What no path may contain."""
    asked: int = 0
    file: Path = Path()
    port: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return web.Response(status=status, text=f"no such token: {TOKEN}")
        if self.refused in request.path:
            return web.Response(status=500)
        self.got.append(await request.json())
        self.paths.append(request.raw_path)
        return web.Response()

    async def has(self, count: int) -> list[str]:
        async with asyncio.timeout(15):
            while len(self.got) < count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # and no more
        assert len(self.got) == count
        return [each["title"] for each in self.got]


@pytest.fixture
async def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    monkeypatch.setattr(notification_sender, "TRY_AGAIN", timedelta(milliseconds=10))
    service = Receiver(file=tmp_path / "urls")
    app = web.Application()
    app.router.add_post("/{path:.*}", service.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service.port = runner.addresses[0][1]
    service.file.write_text(f"# the team's chat\njson://127.0.0.1:{service.port}/{TOKEN}\n", encoding="utf-8")
    yield service
    await runner.cleanup()


@asynccontextmanager
async def notifier(file: Path, **rule: Any) -> AsyncIterator[Notifier]:
    async with Notifier([Recipient(name="notifications[0]", url_file=file, rule=NoticeRule(**rule))]) as opened:
        yield opened


async def test_what_is_told_twice_is_sent_once_and_names_its_incident(receiver: Receiver) -> None:
    async with notifier(receiver.file) as people:
        for notice in (PARKED, PARKED, ENDED, replace(PARKED, text="incident i-1: the pods do not go")):
            people.notify(notice)
        titles = await receiver.has(3)
    assert titles[:2] == ["nodewarden: needs-human: node-7 (prod)", "nodewarden: recovered: node-7 (prod)"]
    assert receiver.got[0]["message"] == PARKED.text
    assert [each["type"] for each in receiver.got[:2]] == ["failure", "success"], (
        "pagers take it for critical, and for the end of it"
    )


async def test_a_message_leads_to_the_page_where_there_is_one(receiver: Receiver) -> None:
    """And who words it puts the address where they like. It is ours: in what others have written that `@` would call somebody."""
    own = {When.ENDED: Wording(text="{outcome}, see {link} for more")}
    recipient = Recipient(name="notifications[0]", url_file=receiver.file, rule=NoticeRule(wordings=own))
    async with Notifier([recipient], page="https://example.com/@nodes") as people:
        for notice in (PARKED, ENDED, replace(PARKED, node="", text="all is halted", when=When.HALTED)):
            people.notify(notice)
        await receiver.has(3)
    of_node = "https://example.com/@nodes/c/prod/nodes/node-7"
    assert [each["message"] for each in receiver.got] == [
        f"{PARKED.text}\n{of_node}",
        f"recovered, see {of_node} for more",
        "all is halted\nhttps://example.com/@nodes/c/prod",
    ]


@pytest.mark.parametrize(
    ("changes", "heard"),
    [
        ({"when": frozenset({When.NEEDS_HUMAN})}, ["needs-human"]),
        ({"clusters": frozenset({"staging"})}, []),
        ({"outcomes": frozenset({"recovered"}), "clusters": frozenset({"prod"})}, ["needs-human", "recovered"]),
        ({"severity": Severity.CRITICAL}, ["needs-human"]),
        ({"nodes": ("gpu-*", "node-?")}, ["needs-human", "recovered"]),
        ({"nodes": ("gpu-*",)}, []),
        ({"after": timedelta(hours=1)}, ["recovered"]),
        ({"checks": ("NodeHealthCheck/gpu*",), "labels": ZONE_A}, ["needs-human", "recovered"]),
        ({"checks": ("NodeHealthCheck/cpu", "MachineHealthCheck/*")}, []),
        ({"checks": ("NodeHealthCheck/gpu",), "labels": ZONE_B}, []),
    ],
)
async def test_everybody_hears_what_he_wants_to(receiver: Receiver, changes: dict[str, Any], heard: list[str]) -> None:
    async with notifier(receiver.file, **changes) as people:
        people.notify(replace(PARKED, known=KNOWN))
        people.notify(replace(ENDED, known=KNOWN))
        assert [title.split(": ")[1] for title in await receiver.has(len(heard))] == heard


async def test_who_hears_that_all_is_halted_hears_that_it_is_no_longer(receiver: Receiver) -> None:
    """Also by a rule that leaves out what is no trouble; in the same thread, and a pager resolves it."""
    halted = Notice(when=When.HALTED, cluster="prod", subject="halted", text="paused by ada: a test")
    async with notifier(receiver.file, severity=Severity.WARNING) as people:
        people.notify(halted)
        people.notify(replace(halted, text="new repairs begin again", over=True))
        assert await receiver.has(2) == ["nodewarden: halted: prod", "nodewarden: no longer halted: prod"]
    assert [each["type"] for each in receiver.got] == ["warning", "success"]


async def test_an_unknown_node_is_reported_all_the_same(receiver: Receiver) -> None:
    """One that is gone has no labels and no checks any more."""
    async with notifier(receiver.file, labels=ZONE_B, checks=("MachineHealthCheck/*",)) as people:
        people.notify(PARKED)
        await receiver.has(1)


async def test_an_escalation_is_sent_only_once_no_person_has_acted_for_so_long(receiver: Receiver) -> None:
    """By the reminders, which come as long as nobody does anything."""
    async with notifier(receiver.file, when=frozenset({When.NEEDS_HUMAN}), after=timedelta(hours=1)) as people:
        for minutes in (0, 30, 60):
            people.notify(replace(PARKED, waited=timedelta(minutes=minutes), text=f"still waits, {minutes} minutes"))
        await receiver.has(1)
    assert receiver.got[0]["message"] == "still waits, 60 minutes"


async def test_titles_and_texts_are_as_they_are_configured(receiver: Receiver) -> None:
    wordings = {When.NEEDS_HUMAN: Wording(title="[{severity}] {node}:\n{when}", text="{cluster}/{node} {{now}}: {text}")}
    async with notifier(receiver.file, wordings=wordings) as people:
        people.notify(PARKED)
        people.notify(ENDED)
        titles = await receiver.has(2)
    assert titles == ["[critical] node-7: needs-human", ENDED.title]
    assert receiver.got[0]["message"] == f"prod/node-7 {{now}}: {PARKED.text}"


@pytest.mark.parametrize("written", ["{nod}", "{node.__class__}", "{node!r}", "{node:>9}", "{0}", "{", "{}"])
def test_words_that_no_message_could_fill_in_are_refused_at_once(written: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        Wording(text=written)


async def test_all_that_is_told_of_an_episode_is_one_thread_where_the_service_has_them(receiver: Receiver) -> None:
    """A pager's deduplication key, a chat's thread: whatever the service's address in Apprise can name. Quoted (S41)."""
    receiver.file.write_text(f"json://127.0.0.1:{receiver.port}/{{thread}}?:node={{node}}&:key={{thread}}&:left={{other}}\n")
    async with notifier(receiver.file) as people:
        people.notify(PARKED)
        people.notify(ENDED)
        people.notify(replace(PARKED, node="a&:node=b/../c", subject="i-2"))
        await receiver.has(3)
    assert [each["key"] for each in receiver.got] == ["nodewarden/prod/i-1"] * 2 + ["nodewarden/prod/i-2"]
    assert [each["node"] for each in receiver.got] == ["node-7", "node-7", "a&:node=b/../c"]
    assert {each["left"] for each in receiver.got} == {"{other}"}
    assert len({path.count("/") for path in receiver.paths}) == 1, "nothing that was filled in is a step of the path"


async def test_s41_a_name_of_dots_is_no_step_of_the_path(receiver: Receiver) -> None:
    """Dots are never quoted: the message went to another place of the service, with its token left out."""
    receiver.file.write_text(f"json://127.0.0.1:{receiver.port}/hooks/{TOKEN}/{{node}}/alert\n")
    async with notifier(receiver.file) as people:
        for node in ("..", "."):
            people.notify(replace(PARKED, node=node, subject=node))
        await receiver.has(2)
    assert [TOKEN in path for path in receiver.paths] == [True, True], receiver.paths


def test_the_addresses_of_the_page_are_taken_by_apprise_with_their_thread() -> None:
    page = (Path(__file__).parent.parent / "docs/notifications.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| [^|]+ \| `(\w+://[^`]+)` \|", page, flags=re.MULTILINE)
    assert len(found) == 5
    for written in found:
        service = apprise.Apprise()
        assert service.add(addressed(written, PARKED)), written
        (plugin,) = service
        assert any(each in unquote(plugin.url()) for each in (PARKED.thread, f"<{PARKED.subject}@nodewarden>")), written


async def test_a_storm_is_no_digest_where_each_is_a_thread(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a pager would never hear which incidents are over. Of each the latest is told."""
    monkeypatch.setattr(notification_sender, "MINUTE_SECONDS", 1.0)
    receiver.file.write_text(f"json://127.0.0.1:{receiver.port}/{TOKEN}?:key={{thread}}\n")
    async with notifier(receiver.file) as people:
        for number in range(SINGLY + 3):
            people.notify(replace(PARKED, subject=f"i-{number}"))
        people.notify(replace(ENDED, subject=f"i-{SINGLY + 2}"))
        titles = await receiver.has(SINGLY + 3)
    assert [each["key"][-1] for each in receiver.got] == [str(number) for number in range(SINGLY + 3)]
    assert titles[-1] == ENDED.title


async def test_who_has_taken_it_is_not_told_again_because_another_has_not(receiver: Receiver) -> None:
    second = f"json://127.0.0.1:{receiver.port}/other\n"
    receiver.file.write_text(receiver.file.read_text() + second)
    receiver.statuses = [200, 500]
    async with notifier(receiver.file) as people:
        people.notify(PARKED)
        await receiver.has(2)
    assert [path.strip("/") for path in receiver.paths] == [TOKEN, "other"]


async def test_a_problem_that_returns_after_a_persons_command_is_told_again(receiver: Receiver) -> None:
    """S44: who said `resume` hears that it was in vain, within the minutes in which the same words are no news."""
    async with notifier(receiver.file) as people:
        for words in (0, 0, 1):
            people.notify(replace(PARKED, commands_given=words))
        await receiver.has(2)


async def test_a_receiver_that_does_not_take_it_leaves_it_to_the_others(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an address that no plugin survives nor a thread that the service refuses, however often it is tried."""
    add = apprise.Apprise.add
    monkeypatch.setattr(apprise.Apprise, "add", lambda self, url: 1 / 0 if "broken" in url else add(self, url))
    monkeypatch.setattr(notification_sender, "MINUTE_SECONDS", 0.5)
    address = f"json://127.0.0.1:{receiver.port}/{{subject}}?:key={{thread}}\n"
    receiver.file.write_text(f"json://127.0.0.1:{receiver.port}/broken\n{address}")
    receiver.refused = "i-5"
    async with notifier(receiver.file) as people:
        for number in range(SINGLY + 3):  # the last three are sent together
            people.notify(replace(PARKED, subject=f"i-{number}"))
        await receiver.has(SINGLY + 2)
    assert [path.split("?")[0].strip("/") for path in receiver.paths] == ["i-0", "i-1", "i-2", "i-3", "i-4", "i-6", "i-7"]


async def test_a_storm_is_a_few_messages_and_one_for_the_rest(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_sender, "MINUTE_SECONDS", 1.0)
    async with notifier(receiver.file) as people:
        for number in range(40):
            people.notify(replace(PARKED, subject=f"i-{number}", node=f"node-{number}"))
        titles = await receiver.has(SINGLY + 1)
    assert titles[-1] == f"nodewarden: {40 - SINGLY} messages: {40 - SINGLY} needs-human"
    digest = receiver.got[-1]["message"]
    assert f"node-{SINGLY} (prod)" in digest
    assert f"and {40 - SINGLY - notification_sender.LISTED} more" in digest


async def test_a_service_that_fails_is_tried_again_and_its_token_is_nowhere(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """S12: neither in our words nor in Apprise's, nor in what the service answers; also once a library such as uvicorn has
    configured logging."""
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3").setLevel(logging.WARNING)  # as workers have it
    receiver.statuses = [500, 200, 500, 500, 500]
    async with notifier(receiver.file) as people:
        people.notify(PARKED)
        await receiver.has(1)
        people.notify(ENDED)
        async with asyncio.timeout(15):
            while "was not sent" not in caplog.text:
                await asyncio.sleep(0.01)
    assert receiver.asked == 5
    assert "notifications[0]: 'nodewarden: recovered: node-7 (prod)' was not sent: not all of its services took it" in caplog.text
    assert TOKEN not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", "url_file contains no address"),
        (f"# ours\ncarrier-pigeon://{TOKEN}\n", "url_file: line 2 is no address that Apprise knows"),
        (None, "url_file can't be read: FileNotFoundError"),
    ],
)
async def test_what_is_wrong_with_the_file_is_said_without_what_it_contains(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, lines: str | None, problem: str
) -> None:
    """S12; and who tells does not hear of it."""
    monkeypatch.setattr(notification_sender, "TRY_AGAIN", timedelta(0))
    if lines is not None:
        (tmp_path / "urls").write_text(lines, encoding="utf-8")
    async with notifier(tmp_path / "urls") as people:
        people.notify(PARKED)
        async with asyncio.timeout(15):
            while problem not in caplog.text:
                await asyncio.sleep(0.01)
    assert TOKEN not in caplog.text


async def test_what_waits_when_its_worker_ends_is_one_last_message(receiver: Receiver) -> None:
    async with notifier(receiver.file) as people:
        for number in range(SINGLY + 3):
            people.notify(replace(PARKED, subject=f"i-{number}"))
        await receiver.has(SINGLY)
    assert (await receiver.has(SINGLY + 1))[-1] == "nodewarden: 3 messages: 3 needs-human"


async def test_who_has_taken_it_does_not_get_it_again_because_the_worker_ends_meanwhile(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_sender, "TRY_AGAIN", timedelta(minutes=1))
    receiver.refused = "broken"
    receiver.file.write_text(f"json://127.0.0.1:{receiver.port}/broken\njson://127.0.0.1:{receiver.port}/well\n")
    async with notifier(receiver.file) as people:
        people.notify(PARKED)
        await receiver.has(1)
    assert [path.strip("/") for path in receiver.paths] == ["well"]


async def test_publishing_never_waits(tmp_path: Path) -> None:
    """However slow the service is, and however much is told."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(10), notifier(tmp_path / "urls") as people:
        began = loop.time()
        for number in range(notification_sender.WAITING + 10):
            people.notify(replace(PARKED, subject=f"i-{number}"))
        assert loop.time() - began < 1
