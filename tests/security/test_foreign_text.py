"""Text of a Node, a device or a caller reaches no terminal, log line, Event, message or page in a form that is obeyed (S50).

The attacker writes an annotation or a condition, answers for a BMC, or calls Temporal without keys: beside what they write a
person decides whether a machine is off.
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apprise
import pytest
import requests
from rich.console import Group
from rich.table import Table
from rich.text import Text

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import LONGEST_MESSAGE, EventRecorder, Happening
from activities.cluster.objects.check_statuses import ConditionText, conditions
from activities.cluster.report.nodefences import NodeFences
from activities.contracts.episode_start import introduced
from activities.contracts.target import EpisodeSnapshot
from policy.episode.messages import EpisodeStatus, Kind, Phase
from policy.episode.notices import PLAIN
from policy.values.display_text import STAND_IN
from policy.values.object_refs import ObjectRef
from starter.commands.session import complain
from starter.output.console import fitting_console
from starter.output.encoding import to_json
from starter.output.models import CommandAnswer
from starter.web import pages
from tests.cluster.acts.world import World
from tests.starter.builders import nodewarden
from tests.test_notifying import PARKED, Receiver, notifier, replace
from tests.test_notifying import receiver as receiver  # noqa: PLC0414 - a fixture
from tests.workers.test_logs import former_handlers as former_handlers  # noqa: PLC0414 - a fixture
from tests.workers.test_logs import written
from workers.configuration.process_settings import LogFormat, LogSettings
from workers.logs import configure
from workers.payloads.converter import DATA_CONVERTER, for_people

FORGED = "\x1b]0;safe\x07\x1b[2J\x1b[32moff is proven\x1b[0m\n\x9b1Anodewarden: it is off\u202e [red]x[/red] :boom: <b>@all</b>"
OBEYED = ("\x1b", "\x9b", "\x07", "\u202e")
IN_ASCII = FORGED.encode("ascii", "ignore").decode()


def holds_nothing_obeyed(text: str) -> bool:
    return STAND_IN in text and not any(each in text for each in OBEYED)


def test_a_terminal_gets_no_escape_but_ours_and_takes_no_text_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", out)
    out.isatty = lambda: True  # type: ignore[method-assign]
    console = fitting_console()
    table = Table(box=None)
    table.add_column("WHY")
    table.add_row(FORGED)
    console.print(Group(table, Text(FORGED, style="red")))
    shown = out.getvalue()
    assert "\x1b[31m" in shown, "colours of ours"
    ours = shown.replace("\x1b[31m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert holds_nothing_obeyed(ours)
    assert ours.count("[red]x[/red] :boom:") == 2


def test_a_pipe_gets_no_escape_and_takes_no_text_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """What is written to a file or a mail is looked at on a terminal later."""
    table = Table(box=None)
    table.add_column("WHY")
    table.add_row(FORGED)
    fitting_console().print(Group(table, Text(FORGED, style="red")))
    shown = capsys.readouterr().out
    assert holds_nothing_obeyed(shown)
    assert shown.count("[red]x[/red] :boom:") == 2


@pytest.mark.parametrize("columns", ["80", "240"], ids=["below the table", "in the table"])
async def test_a_verdict_of_evaluate_shows_a_condition_as_it_is_written(
    columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    check = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "workers", "namespace": "default"},
        "spec": {"clusterName": "prod", "selector": {"matchLabels": {"pool": "a"}}, "unhealthyConditions": []},
    }
    machine = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Machine",
        "metadata": {
            "name": "m1",
            "namespace": "default",
            "labels": {"pool": "a", "cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": [{"kind": "MachineSet", "name": "set", "controller": True}],
        },
        "spec": {"clusterName": "prod"},
        "status": {"failureReason": "CreateError", "failureMessage": FORGED},
    }
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [check, machine]}))
    result = await nodewarden("evaluate", "-f", str(tmp_path / "all.json"))
    assert "off is proven" in " ".join(result.output.split()), result.output
    assert holds_nothing_obeyed(result.output)
    assert "[red]x[/red] :boom:" in " ".join(result.output.split())
    assert not [line for line in result.output.splitlines() if line.startswith("nodewarden:")]


@pytest.mark.parametrize("command", ["evaluate", "explain node-7"])
@pytest.mark.parametrize("columns", ["80", "240"])
async def test_s50_a_hold_is_one_line_for_people(
    command: str, columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second line read as a sentence of ours about the node."""
    monkeypatch.setenv("COLUMNS", columns)
    labels = {"pool": "a"}
    forged = "looked at\n  node-7: off is proven, verified by Kubernetes"
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-7", "labels": labels, "annotations": {"nodewarden.io/hold": forged}},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }
    template = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "name": "f", "namespace": "nodewarden"}
    check = {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "workers"},
        "spec": {"selector": {"matchLabels": labels}, "minHealthy": "0%", "remediationTemplate": template},
    }
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [check, node]}))
    result = await nodewarden(*command.split(), "-f", str(tmp_path / "all.json"))
    assert "off is proven" in " ".join(result.output.split()), result.output
    assert not [line for line in result.output.splitlines() if line.strip().startswith("node-7: off")], result.output


def test_a_refusal_begins_no_line_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    complain("one\rtwo\x1b[32m")
    assert capsys.readouterr().err == f"nodewarden: one{STAND_IN}two{STAND_IN}[32m\n"


@pytest.mark.parametrize("forged", [FORGED, IN_ASCII], ids=["of any characters", "of ASCII alone"])
async def test_what_temporal_answers_is_cleaned_as_it_is_read(forged: str) -> None:
    """Each command and page shows it, and each of its sentences is one line."""
    converter = for_people(DATA_CONVERTER)
    about: dict[str, Any] = {"kind": Kind.FENCING, "cluster": "prod", "node": "node-7", "incident": "i", "reason": "drill"}
    about |= {"phase": Phase.NEEDS_HUMAN, "step": "power-management", "started": datetime.now(UTC)}
    status = EpisodeStatus(**about, doing=forged)
    [payload] = await DATA_CONVERTER.encode([status])
    [read] = await converter.decode([payload], [EpisodeStatus])
    assert holds_nothing_obeyed(read.doing)
    assert "\n" not in read.doing
    [unchanged] = await converter.decode(await DATA_CONVERTER.encode([replace(status, doing="powers off")]), [EpisodeStatus])
    assert unchanged == replace(status, doing="powers off")
    [as_it_is] = await DATA_CONVERTER.decode([payload], [EpisodeStatus])
    assert as_it_is == status, "what is decided by is the text as it is"


def test_a_programs_answer_is_json_that_a_terminal_may_show() -> None:
    shown = to_json(CommandAnswer(cluster="prod", answer=FORGED))
    assert holds_nothing_obeyed(shown)
    assert json.loads(shown)["answer"].startswith("\x1b]0;safe"), "in JSON's own spelling"


@pytest.mark.parametrize("form", LogFormat)
def test_a_log_line_is_one_line(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format=form))
    logging.getLogger("activities").warning("%s answers: %s", "bmc-7", f"{FORGED}\r\n12:00:00.000 info workers: off is proven")
    (line,) = written(capsys)
    assert ("\\u001b" in line) is (form is LogFormat.JSON)
    assert holds_nothing_obeyed(line)


def test_what_an_unexpected_error_repeats_begins_no_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    try:
        raise ValueError("bad\n12:00:00.000 info workers: off is proven\n\x1b[32m")
    except ValueError:
        logging.getLogger("activities").exception("failed")
    first, *others = written(capsys)
    assert first.endswith("failed")
    assert others[-2:] == ["  12:00:00.000 info workers: off is proven", f"  {STAND_IN}[32m"]
    assert all(each.startswith("  ") for each in others)


class Taken:
    """The API, which keeps what it is given."""

    def __init__(self) -> None:
        self.made: list[JsonObject] = []

    async def create(self, _: str, document: JsonObject) -> JsonObject:
        self.made.append(document)
        return document


async def test_an_event_is_one_line_that_kubectl_shows() -> None:
    api: Any = Taken()
    about = ObjectRef(api_version="v1", kind="Node", name="node-7")
    await EventRecorder(api).publish(Happening(about=about, uid="u", reason="Fenced", message=FORGED * 40))
    [event] = api.made
    assert holds_nothing_obeyed(event["message"])
    assert "\n" not in event["message"]
    assert len(event["message"]) == LONGEST_MESSAGE


async def test_a_message_to_people_holds_no_markup_call_or_link(receiver: Receiver) -> None:
    """Of mail that is HTML and of a chat; `json` with a format is both of them in Apprise."""
    receiver.file.write_text(receiver.file.read_text().strip() + "?format=html\n")
    async with notifier(receiver.file) as people:
        people.notify(replace(PARKED, text=f"{FORGED} [it is off](https://evil.example.com)", node="node-7\nforged"))
        [title] = await receiver.has(1)
    text = receiver.got[0]["message"]
    assert holds_nothing_obeyed(text)
    assert ("<b>" in text, "\u2039b\u203a@&nbsp;all" in text, "](" in text, "\n" in title) == (False, True, False, False), text


@pytest.mark.parametrize(
    "service", ["slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops", f"discord://{'1' * 18}/{'a' * 68}"]
)
async def test_a_chat_is_given_no_call_in_its_own_spelling(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discord calls a whole role by `<@&7>`, and Slack a channel by `<!channel>`."""
    sent: list[str] = []
    answer = SimpleNamespace(status_code=200, content=b"ok", text="ok", headers={})
    monkeypatch.setattr(requests, "request", lambda *_, **given: sent.append(str(given["data"])) or answer)
    monkeypatch.setattr(requests, "post", lambda *_, **given: sent.append(str(given["data"])) or answer)
    chat = apprise.Apprise()
    assert chat.add(service)
    title, text = PLAIN.of(replace(PARKED, text="its BMC answers <@&77> <!channel> <https://evil.example.com|off>", node="<@7>"))
    chat.notify(body=text, title=title, body_format=apprise.NotifyFormat.TEXT)
    assert "its BMC answers" in sent[0]
    assert re.findall(r"<[^>]*>", sent[0]) == []


async def test_an_object_that_kubectl_shows_is_cleaned(world: World) -> None:
    """A NodeFence and a condition; neither begins a line of its own in what `kubectl describe` prints."""
    told = conditions([], {"Ours": ConditionText(status="True", reason="R", message=FORGED)}, datetime.now(UTC))
    assert holds_nothing_obeyed(told[0]["message"])
    target, fences = await world.pinned(), NodeFences(world.connection)
    about: dict[str, Any] = {"kind": Kind.FENCING, "cluster": "prod", "node": "node-7", "incident": "i", "reason": FORGED}
    about |= {"phase": Phase.NEEDS_HUMAN, "step": "power-management", "started": datetime.now(UTC)}
    status = EpisodeStatus(**about, doing="waits", problem=FORGED)
    fence = fences._document("f", target, EpisodeSnapshot(status=status, sequence=1, at=datetime.now(UTC), message=FORGED))
    for field in ("reason", "problem", "message"):
        assert holds_nothing_obeyed(fence[field])
        assert "\n" not in fence[field]


def test_temporals_ui_is_given_no_link_of_anothers() -> None:
    """It takes our text for Markdown."""
    about = {"cluster": "prod", "node": "node-7", "reason": f"{FORGED} [end it](https://evil.example.com)", "requester": FORGED}
    named = about | {"node": f"{FORGED} [end it](https://evil.example.com)"}
    for given in (about, named):
        shown = introduced(Kind.FENCING, **given, page="")
        for text in (shown["static_summary"], shown["static_details"]):
            assert holds_nothing_obeyed(text)
            assert ("](" in text, "\n" in text) == (False, False)


def test_a_page_shows_each_value_as_text() -> None:
    shown = pages.templates.env.from_string("{{ said }} {{ advice | commands }} {{ 3 }}")
    body = shown.render(said=FORGED, advice=f"say `nodewarden abort {FORGED}`")
    assert holds_nothing_obeyed(body)
    assert ("<b>" in body, "&lt;b&gt;" in body, "<code>" in body) == (False, True, True)
