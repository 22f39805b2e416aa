"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from policy.episode.messages import FencingInput, RemediationInput, episode_id
from policy.scan.obstacles import WITHOUT_TEMPORAL
from starter.client import Nodewarden
from starter.commands import episodes as commands
from starter.commands.session import Session, complain, print_answer
from starter.handles import episodes
from tests.starter.builders import CIRCUIT_BREAKER, nodewarden
from tests.starter.conftest import SETTINGS
from tests.workers.server import SILENT
from workers.embedded.server import free_ports

ROOT = Path(__file__).parents[2]


PAST = "2026-01-01T00:00:00Z"
UNREACHABLE = "clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}"
"""Settings of a cluster whose API server does not answer."""


async def test_rights_are_printed_for_kubectl_and_a_feature_that_there_is_not_is_wrong_usage() -> None:
    printed = await nodewarden("deploy", "rbac")
    assert (printed.exit_code, printed.stdout) == (0, (ROOT / "deploy/rbac.yaml").read_text())
    less = await nodewarden("deploy", "rbac", "--features", "drain", "--roles", "power, workflows", "--secrets", "bmc")
    assert "name: nodewarden-power" in less.stdout
    assert "eviction" not in less.stdout
    refused = await nodewarden("deploy", "rbac", "--features", "drain,dance")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--features: dance: expected all or some of" in refused.stderr


def test_help_loads_neither_temporal_nor_pydantic_nor_what_reads_a_cluster() -> None:
    """It must answer at once, and so must completion; and each command loads as much."""
    heavy = {"temporalio", "pydantic", "aiohttp", "kubernetes", "msgspec", "activities.cluster.objects"}
    script = f"import sys, starter.cli; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("needs", "without"),
    [
        (
            "starter.output.explanation, starter.plans.cluster_objects, starter.output.console",
            ["temporalio", "aiohttp", "google"],
        ),
        ("starter.client, starter.output.display, workers.errors", ["temporalio.worker", "aiohttp", "kubernetes"]),
        ("starter.deploy.rights", ["temporalio", "aiohttp", "kubernetes", "pydantic"]),
    ],
    ids=["judging files", "looking at Temporal", "printing rights"],
)
def test_a_command_loads_no_client_that_it_does_not_need(needs: str, without: list[str]) -> None:
    """Each is a quarter of a second of a core, for each command that somebody or some script says."""
    script = f"import sys, {needs}; print(sorted(set({without}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"


async def test_help_names_the_exit_codes() -> None:
    output = " ".join((await nodewarden("--help")).output.split())
    for code in ("0 done", "1 failed", "2 wrong usage", "3 refused", "4 no such", "5 Temporal"):
        assert code in output


@pytest.mark.parametrize("words", [(), ("fence",), ("up",), ("fence", "begin")], ids=" ".join)
async def test_help_shows_a_type_only_for_an_option_that_takes_a_value(words: tuple[str, ...]) -> None:
    assert "bool>" not in (await nodewarden(*words, "--help")).output


async def test_version_is_there_for_people_and_programs() -> None:
    assert (await nodewarden("version")).output.startswith("nodewarden ")
    assert (await nodewarden("--version")).output == f"nodewarden {metadata.version('nodewarden')}\n"
    assert json.loads((await nodewarden("version", "-o", "json")).output)["temporalio"]


async def test_fence_starts_joins_and_refuses(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    """S13."""
    first = await nodewarden("fence", "node-1", "-c", cluster, "--reason", "smoke", "-y")
    assert (first.exit_code, first.output.split(" (")[0]) == (0, "started fencing of node-1: it has its permit")
    again = await nodewarden("-c", cluster, "-o", "json", "fence", "node-1", "--reason", "smoke", "-y")
    answer = json.loads(again.output)
    assert (answer["joined"], answer["permit"]) == (True, True)
    other = await nodewarden("fence", "node-1", "-c", cluster, "--reason", "noise", "-y")
    assert other.exit_code == 3
    assert other.stdout == ""
    assert other.stderr.startswith("nodewarden: node-1 has an open Fencing ")
    assert other.stderr.endswith(" (in progress): smoke\n")


@pytest.mark.parametrize(
    ("node", "code", "out", "err"),
    [
        ("queued-1", 0, "started fencing of queued-1: it waits for a permit: 1 of 1 in use: node-held (", ""),
        ("sick-1", 0, "started fencing of sick-1: it waits for a person: ipmi://sick:623: the BMC refuses our password (", ""),
        ("refused-1", 3, "", "nodewarden: refused-1 is not fenced: no permit was to be had\n"),
    ],
)
async def test_fence_says_what_the_scanner_says_to_it(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path, client: object, cluster: str, node: str, code: int, out: str, err: str
) -> None:
    result = await nodewarden("fence", node, "-c", cluster, "--reason", "smoke", "-y")
    assert (result.exit_code, result.stderr) == (code, err)
    assert result.stdout.startswith(out)
    assert bool(result.stdout) is bool(out)


async def test_fence_says_when_no_scanner_has_answered(
    keyboard: Path, cluster: str, client: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", SILENT)
    assert (await nodewarden("scan", "start", "-c", cluster)).exit_code == 0
    monkeypatch.setattr(episodes, "DECIDED_WITHIN", timedelta(milliseconds=300))
    result = await nodewarden("fence", "node-1", "-c", cluster, "--reason", "smoke", "-y")
    assert (result.exit_code, result.stdout.split(" (")[0]) == (
        0,
        "started fencing of node-1: no answer yet: it begins once a worker serves it",
    )


async def acknowledge(warden: Nodewarden, cluster: str, node: str) -> None:
    await warden.episode(cluster, node).ack_off(who="amy", reason="pulled the plug", question=7)


async def abort(warden: Nodewarden, cluster: str, node: str) -> None:
    await warden.episode(cluster, node).abort(who="amy", reason="false alarm")


async def leave(warden: Nodewarden, cluster: str, node: str) -> None:
    """It ends by itself, or never."""


FENCE, REMEDIATE = ("fence", "--reason", "smoke", "-y"), ("remediate", "--with", "reboot=10m", "--reason", "smoke", "-y")


@pytest.mark.parametrize(
    ("words", "node", "then", "code", "said"),
    [
        (FENCE, "node-1", acknowledge, 0, "node-1: recovered after "),
        (FENCE, "node-2", abort, 1, "node-2: aborted after "),
        (FENCE, "refused-1", leave, 3, "nodewarden: refused-1 is not fenced: no permit was to be had"),
        (FENCE, "refused-nosuch", leave, 4, "nodewarden: no permit was to be had"),
        (REMEDIATE, "refused-nosuch", leave, 4, "nodewarden: as the script says"),
        (
            FENCE,
            "sick-1",
            leave,
            1,
            "nodewarden: sick-1 waits for a person: ipmi://sick:623: the BMC refuses our password; fix the c",
        ),
        (REMEDIATE, "gone-1", leave, 0, "gone-1: replaced after "),
        (REMEDIATE, "refused-1", leave, 3, "nodewarden: refused-1 is not remediated: as the script says"),
        (REMEDIATE, "left-1", leave, 1, "left-1: released after "),
        (REMEDIATE, "node-1", abort, 1, "node-1: aborted after "),
    ],
)
async def test_the_exit_code_says_whether_the_node_was_repaired(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path,
    warden: Nodewarden,
    cluster: str,
    words: tuple[str, ...],
    node: str,
    then: Callable[..., Awaitable[None]],
    code: int,
    said: str,
) -> None:
    waiting = asyncio.create_task(nodewarden(*words, node, "-c", cluster, "--wait"))
    while then is not leave and not await warden.episode(cluster, node).is_open():
        await asyncio.sleep(0.05)
    await then(warden, cluster, node)
    result = await waiting
    assert result.exit_code == code, result.output
    assert said in result.output
    if words is FENCE and not node.startswith("refused"):
        assert f"episode {node}: Fencing" in result.stderr


AMY = ("--who", "amy")
NO_REASON = "nodewarden: --reason: expected a name or a sentence for the decision record, got nothing"
NOBODY = "nodewarden: no open episode of node-1"


@pytest.mark.parametrize(
    ("words", "node", "code", "said"),
    [
        (("abort",), "sick-1", 0, "abort noted"),
        (("abort", "--reason", "enough", "--power-on"), "sick-1", 0, "abort noted"),
        (("ack-off", *AMY, "--reason", "pulled the plug", "--question", "7", "--yes"), "sick-1", 0, "off acknowledged"),
        (("ack-off", *AMY, "--reason", "pulled the plug", "--yes"), "sick-1", 3, "nodewarden: ack-off: asked now is 7"),
        (("return-path", *AMY, "-r", "it writes no more", "--question", "7"), "sick-1", 0, "given back for amy"),
        (("return-path", *AMY, "-r", "it writes no more"), "sick-1", 3, "nodewarden: return-path: asked now is 7"),
        (("hold", *AMY), "sick-1", 0, "held by amy"),
        (
            ("resume", *AMY, "--question", "7"),
            "sick-1",
            0,
            f"goes on for amy; it goes on only once there is a permit for it: {CIRCUIT_BREAKER}",
        ),
        (("resume", *AMY), "sick-1", 3, "nodewarden: resume: asked now is 7"),
        (("resume",), "well-1", 3, "nodewarden: resume: this one goes on by itself"),
        *(
            (words, "node-1", 4, NOBODY)
            for words in (
                ("abort",),
                ("resume",),
                ("return-path", "-r", "x"),
                ("ack-off", *AMY, "--reason", "saw it", "--question", "7", "--yes"),
            )
        ),
        *(((word, "--reason", " "), "node-1", 2, NO_REASON) for word in ("fence", "abort", "hold", "resume")),
    ],
)
async def test_people_talk_to_an_episode(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path, warden: Nodewarden, cluster: str, words: tuple[str, ...], node: str, code: int, said: str
) -> None:
    """Where somebody answers it is what he says, and otherwise why nobody did. S48: an answer carries its question's number."""
    if node != "node-1":
        await warden.start_scanner(cluster)
        await warden.fence(cluster, node, reason="smoke")
    result = await nodewarden(*words, node, "-c", cluster)
    assert (result.exit_code, result.stderr if code else result.stdout) == (code, f"{said}\n")
    assert bool(result.stdout) is (code == 0)


@pytest.mark.parametrize("missing", ["--who", "--reason"])
async def test_vouching_for_off_needs_a_name_and_a_reason(keyboard: Path, cluster: str, missing: str) -> None:
    """S8."""
    given = {"--who": "amy", "--reason": "saw it"}
    del given[missing]
    result = await nodewarden("ack-off", "node-1", "-c", cluster, *(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert missing in result.stderr


@pytest.mark.parametrize(
    ("terminal", "typed", "code", "said"),
    [
        (False, "", 2, "no terminal: confirm with --yes"),
        (True, "y\n", 1, "expected its name, got 'y'"),
        (True, "\n", 1, "expected its name, got ''"),
        (True, "sick-2\n", 1, "expected its name, got 'sick-2'"),
        (True, "sick-1\n", 0, "off acknowledged"),
    ],
)
async def test_vouching_for_off_wants_the_name_of_the_node_typed(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path,
    warden: Nodewarden,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    typed: str,
    code: int,
    said: str,
) -> None:
    """S8: and it says what happens if the person is wrong."""
    monkeypatch.setattr(commands, "on_a_terminal", lambda: terminal)
    await warden.fence(cluster, "sick-1", reason="drill")
    result = await nodewarden("ack-off", "sick-1", "-c", cluster, *AMY, "-r", "saw it", "--question", "7", text=typed)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "two write to each volume" in result.output


async def test_before_a_person_vouches_for_off_it_is_said_what_each_device_says(
    keyboard: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: now, and last to the episode, each with its age. A device that says on is overridden by name."""
    monkeypatch.setattr(commands, "on_a_terminal", lambda: True)
    episode = await warden.fence(cluster, "sick-on", reason="drill")
    words = ("ack-off", "sick-on", "-c", cluster, *AMY, "-r", "saw it", "--question", "7", "--override", "device-reads-on")
    result = await nodewarden(*words, text="sick-on\n")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "ipmi://10.0.0.9:623 does not answer now; it answered 2h05m ago" in said
    assert re.search(r"ipmi://10.0.0.9:623 said on \d+s ago", said)
    assert said.index("said on") < said.index("Type the name")
    assert (await episode.result()).message.endswith("saw it (device-reads-on)")
    wrong = await nodewarden(*words[:-1], "everything", text="sick-on\n")
    assert (wrong.exit_code, "device-reads-on" in wrong.output) == (2, True)


async def test_what_is_at_stake_begins_no_line_above_the_prompt(
    keyboard: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S50: the API server's answer is another's text, and below it a person types that a machine is off."""

    async def forged(*_: object) -> list[str]:
        return ["can't be read: no\nipmi://10.0.0.7 says off now"]

    monkeypatch.setattr("starter.commands.episodes._at_stake", forged)
    monkeypatch.setattr(commands, "on_a_terminal", lambda: True)
    result = await nodewarden("ack-off", "sick-1", "-c", cluster, *AMY, "-r", "saw it", text="sick-2\n")
    assert "no ipmi://10.0.0.7 says off now\n" in result.output, result.output


async def begun_with(warden: Nodewarden, cluster: str, node: str, kind: type[Any]) -> Any:
    """The input of the node's open episode."""
    history = await warden.client.get_workflow_handle(episode_id(cluster, node)).fetch_history()
    (asked,) = await warden.client.data_converter.decode(
        history.events[0].workflow_execution_started_event_attributes.input.payloads, [kind]
    )
    return asked


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [("y\n", 1, "expected its name, got 'y'"), ("node-1\n", 0, "node-1"), (None, 2, "no terminal: confirm with --yes")],
)
@pytest.mark.parametrize(("word", "kind"), [("fence", FencingInput), ("remediate", RemediationInput)])
async def test_overriding_a_circuit_breaker_wants_the_name_of_the_node_typed(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path,
    warden: Nodewarden,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    kind: type[Any],
    typed: str | None,
    code: int,
    said: str,
) -> None:
    """S17: and it says what happens if the unhealthy nodes have one cause."""
    monkeypatch.setattr(commands, "on_a_terminal", lambda: typed is not None)
    asked = (word, "node-1", "-c", cluster, "-r", "data at risk", "--override", "circuit-breaker")
    result = await nodewarden(*asked, text=typed or "")
    assert (result.exit_code, said in result.output) == (code, True), result.output
    assert typed is None or "if they have one cause, this makes it worse" in result.output
    assert await warden.episode(cluster, "node-1").is_open() is (code == 0)
    if code == 0:
        assert (await begun_with(warden, cluster, "node-1", kind)).override == "circuit-breaker"


async def test_nothing_but_a_circuit_breaker_is_overridden(keyboard: Path, cluster: str) -> None:
    """S17: no quorum, no cap, no pause."""
    for what in ("quorum", "pause", "cap", "all"):
        result = await nodewarden("fence", "node-1", "-c", cluster, "-r", "x", "--yes", "--override", what)
        assert (result.exit_code, "circuit-breaker" in result.stderr) == (2, True), result.output


async def test_a_word_for_off_without_an_episode_begins_one(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    """S8: with the override, where one is said; asked twice it is the same one."""
    said = ("ack-off", "node-1", "-c", cluster, *AMY, "-r", "pulled the plug", "--yes", "--override", "circuit-breaker")
    result = await nodewarden(*said)
    assert (result.exit_code, result.stdout.partition(":")[0]) == (0, "started freeing of node-1"), result.output
    asked = await begun_with(warden, cluster, "node-1", FencingInput)
    assert (asked.seen_off, asked.override, asked.reason, asked.requester) == (True, "circuit-breaker", "pulled the plug", "amy")
    again = await nodewarden(*said)
    assert (again.exit_code, "asked now is 7" in again.stderr) == (3, True), again.output
    missing = await nodewarden("ack-off", "refused-nosuch", "-c", cluster, *AMY, "-r", "saw it", "--yes")
    assert missing.exit_code == 4


async def test_the_scanner_is_started_shown_and_stopped(keyboard: Path, client: object, cluster: str) -> None:
    assert (await nodewarden("scan", "status", "-c", cluster)).exit_code == 4
    started = await nodewarden("scan", "start", "-c", cluster, "--cap", "2")
    assert started.output == f"scanner of {cluster} started: view live, cluster Lease held\n"
    assert "runs already" in (await nodewarden("scan", "start", "-c", cluster)).output
    shown = await nodewarden("scan", "status", "-c", cluster)
    assert shown.exit_code == 0
    assert "1 of 2 permits in use" in shown.output
    assert json.loads((await nodewarden("scan", "status", "-c", cluster, "-o", "json")).output)["cap"] == 2
    stopped = await nodewarden("scan", "stop", "-c", cluster, "--reason", "enough")
    assert (stopped.exit_code, stopped.output) == (0, f"the scanner of {cluster} stops\n")
    while (again := await nodewarden("scan", "stop", "-c", cluster)).exit_code == 0:
        await asyncio.sleep(0.05)
    assert again.exit_code == 4
    (keyboard / SETTINGS).write_text(UNREACHABLE.format(cluster=cluster), encoding="utf-8")
    # S44: whoever looks reads who stopped it, why, and what starts it.
    for words in (("status",), ("scan", "status"), ("explain", "node-1")):
        found = await nodewarden(*words, "-c", cluster)
        assert f"no open scanner of {cluster}, nothing is begun: stopped by " in " ".join(found.output.split()), words
        assert "enough; `nodewarden scan start` starts it" in " ".join(found.output.split())


async def test_a_pause_is_the_first_thing_that_is_said(keyboard: Path, client: Client, warden: Nodewarden, cluster: str) -> None:
    """S44: who, why, until when and what ends it, instead of a view that is live."""
    await warden.start_scanner(cluster)
    refused = await nodewarden("pause", "-c", cluster, "--reason", "drill", "--for", "2h", "--until", "2126-11-25T12:00:00Z")
    assert (refused.exit_code, refused.stderr) == (2, "nodewarden: --until, --for: expected one of them or none\n")
    assert (await nodewarden("pause", "-c", cluster)).exit_code == 2
    said = "paused by amy, until 2126-11-25T12:00:00Z: the switch is replaced (`nodewarden unpause --of amy` ends it)"
    words = ("--who", "amy", "--reason", "the switch is replaced", "--until", "2126-11-25T12:00:00Z")
    assert (await nodewarden("pause", "-c", cluster, *words)).stdout == f"{cluster} is {said}\n"
    (keyboard / SETTINGS).write_text(UNREACHABLE.format(cluster=cluster), encoding="utf-8")
    for look in (("status",), ("scan", "status"), ("explain", "node-1")):
        assert said in " ".join((await nodewarden(*look, "-c", cluster)).output.split())
    # S44: neither new settings nor a scanner that was terminated end it.
    await nodewarden("scan", "stop", "-c", cluster)
    await nodewarden("scan", "start", "-c", cluster)
    await client.get_workflow_handle(f"scanner/{cluster}").terminate("a test")
    assert "started" in (await nodewarden("scan", "start", "-c", cluster)).output
    assert said in " ".join((await nodewarden("status", "-c", cluster)).output.split())
    refused = await nodewarden("unpause", "-c", cluster, "--who", "bob")
    assert (refused.exit_code, said in " ".join(refused.stderr.split())) == (3, True), "S44: it is not of bob"
    answer = await nodewarden("unpause", "-c", cluster, "--who", "bob", "--of", "amy")
    assert answer.stdout == f"{cluster} goes on, says bob\n"
    assert "view live" in (await nodewarden("status", "-c", cluster)).output


async def test_status_shows_nodes_checks_and_circuit_breakers(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    """S17: the reason why nothing is done is in `status`."""
    await warden.start_scanner(cluster)
    result = await nodewarden("status", "-c", cluster)
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "node-1 zone-a Unknown unhealthy (ReadyUnknown) yes" in text
    assert "NodeHealthCheck/workers 1/2 circuit breaker open: only 1 of 2 nodes is healthy" in text
    document = json.loads((await nodewarden("status", "-c", cluster, "-o", "json")).output)
    assert document["scanner"]["report"]["rows"][0]["health"] == "unhealthy"


async def test_status_says_where_else_to_look(
    keyboard: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the settings know it."""
    await warden.start_scanner(cluster)
    assert "https://" not in (await nodewarden("status", "-c", cluster)).output
    monkeypatch.setenv("NODEWARDEN_PAGE_URL", "https://nodes.example.com/")
    monkeypatch.setenv("NODEWARDEN_TEMPORAL__UI_URL", "https://temporal.example.com")
    text = " ".join((await nodewarden("status", "-c", cluster)).output.split())
    scanner = f"https://temporal.example.com/namespaces/default/workflows/scanner%2F{cluster}"
    assert f"page https://nodes.example.com/c/{cluster}, Temporal {scanner}" in text
    monkeypatch.setenv("NODEWARDEN_DOCS_URL", "https://docs.example.com/")
    text = "".join((await nodewarden("status", "-c", cluster)).output.split())
    assert f"{scanner},runbookhttps://docs.example.com/runbooks/needs-a-person.html" in text
    monkeypatch.setenv("NODEWARDEN_PAGE_URL", "nodes.example.com")
    refused = await nodewarden("status", "-c", cluster)
    assert (refused.exit_code, "expected an address such as https://nodes.example.com" in refused.output) == (2, True)


async def test_no_temporal_is_code_5_and_one_line(keyboard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{port}")
    monkeypatch.setenv("NODEWARDEN_TEMPORAL__PATIENCE", "200ms")
    result = await nodewarden("status", "-c", "prod")
    assert result.exit_code == 5
    assert result.stderr.startswith(f"nodewarden: cannot reach Temporal at 127.0.0.1:{port}: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.endswith(f"; {WITHOUT_TEMPORAL}\n")


async def test_a_kubeconfig_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    result = await nodewarden("status")
    assert (result.exit_code, result.stderr.rstrip().endswith(f"; the kubeconfig {tmp_path / 'gone'} does not exist")) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("settings", "words", "code", "said"),
    [
        ("", (), 2, ["clusters: there is no current kubeconfig context; name a cluster in nodewarden.yaml or set KUBECONFIG"]),
        ("clusters: {prod: {context: p}, stage: {context: s}}", (), 2, ["--cluster: expected one of prod, stage, got nothing"]),
        ("scan: {cap: 0}\nlog: {level: loud}", (), 2, ["scan.cap", "log.level"]),
        ("", ("-c", "prod"), 5, ["temporal.address (TEMPORAL_ADDRESS): expected host:port of a Temporal service; none is set"]),
    ],
)
async def test_settings_that_lead_nowhere_are_told_a_line_for_each(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path, monkeypatch: pytest.MonkeyPatch, settings: str, words: tuple[str, ...], code: int, said: list[str]
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    (keyboard / SETTINGS).write_text(settings, encoding="utf-8")
    result = await nodewarden("status", *words)
    assert result.exit_code == code
    lines = [line.removeprefix("nodewarden: ") for line in result.stderr.splitlines()]
    assert [line.startswith(begin) for line, begin in zip(lines, said, strict=True)] == [True] * len(said), lines


async def test_a_namespace_that_is_missing_is_code_2(keyboard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    result = await nodewarden("status", "-c", "prod")
    assert result.exit_code == 2
    assert "has no namespace 'elsewhere'" in result.stderr


async def test_a_bug_is_one_line_unless_asked_for(keyboard: Path, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(Nodewarden, "status", broken)
    result = await nodewarden("status", "-c", cluster)
    assert result.exit_code == 1
    assert result.stderr == "nodewarden: unexpected ZeroDivisionError: division by zero (--debug shows where)\n"
    assert isinstance((await nodewarden("--debug", "status", "-c", cluster)).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("worker", "--deployment", "nodewarden"), "--deployment and --build-id: expected both or neither"),
        (("worker", "--build-id", "1"), "--deployment and --build-id: expected both or neither"),
        (("worker", "--role", "everything"), "--role: expected one of all, workflows, cluster, power, got 'everything'"),
        (("worker", "-c", "prod"), "--cluster: 'prod' is not among the clusters known here: c-"),
        (("fence", "node-1", "--template", "ipmi"), "--template: expected NAMESPACE/NAME of a FencingTemplate, got 'ipmi'"),
        (("remediate", "node-1", "--with", "reboot=soon"), "--with: expected a time-out such as 10m"),
        (("preserve", "node-1", "--for", "3 days"), "--for: expected a duration above 0 and of at most 365d"),
        (("preserve", "node-1", "--for", "0s"), "--for: expected a duration above 0"),
        (("preserve", "node-1", "--for", "8761h"), "--for: expected a duration above 0"),
        (("preserve", "node-1", "--reason", " "), "--reason: expected a name or a sentence"),
        (("preserve", "extend", "node-1"), "--until, --for: expected exactly one of them"),
        (("preserve", "extend", "node-1", "--for", "1h", "--until", "2036-01-01T00:00:00Z"), "--until, --for: expected exactly"),
        (("preserve", "extend", "node-1", "--until", "tomorrow"), "--until: expected a moment such as 2026-11-24T09:30:00Z"),
        (("preserve", "extend", "node-1", "--until", PAST, "--shorten"), f"--until: expected a moment to come, got {PAST}"),
        (("pause", "--reason", "x", "--until", PAST), f"--until: expected a moment to come, got {PAST}"),
        (("hold", "node-1", "--reason", "x", "--until", PAST), f"--until: expected a moment to come, got {PAST}"),
        (("release", "node-1", "--reason", " "), "--reason: expected a name or a sentence"),
        (("preserve", "plan"), "-f: expected a file with Kubernetes objects, got nothing"),
        (("preserve", "plan", "-f", "-", "--now", "tomorrow"), "--now: expected a moment such as 2026-11-21T09:30:00Z, got"),
        (("evaluate",), "-f: expected a file"),
        (("evaluate", "-f", "-", "--now", "yesterday"), "--now: expected a moment such as"),
        (("evaluate", "-f", "-", "--now", "2026-11-21"), "--now: expected a moment such as"),
    ],
)
async def test_nonsense_is_code_2_and_nothing_is_begun(
    keyboard: Path, warden: Nodewarden, cluster: str, words: tuple[str, ...], said: str
) -> None:
    result = await nodewarden(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith(f"nodewarden: {said}"), result.stderr
    assert not await warden.episode(cluster, "node-1").is_open()


async def test_fence_needs_a_reason_and_a_yes_and_a_dry_run_needs_none(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    refused = await nodewarden("fence", "node-1", "-c", cluster)
    assert (refused.exit_code, refused.stderr) == (2, f"{NO_REASON}\n")
    unasked = await nodewarden("fence", "node-1", "-c", cluster, "--reason", "smoke")
    assert (unasked.exit_code, "no terminal: confirm with --yes" in unasked.stderr) == (2, True)
    (keyboard / SETTINGS).write_text(UNREACHABLE.format(cluster=cluster), encoding="utf-8")
    dry, plan = [await nodewarden("fence", *words, "-c", cluster) for words in (("node-1", "--dry-run"), ("plan", "node-1"))]
    assert (dry.exit_code, dry.stderr) == (plan.exit_code, plan.stderr) == (5, plan.stderr)
    assert not await warden.episode(cluster, "node-1").is_open()


@pytest.mark.parametrize(
    ("command", "question"),
    [("fence", "Switch node-1 off and on again, and delete its pods?"), ("remediate", "Carry out these steps on node-1")],
)
@pytest.mark.parametrize(
    ("answer", "words", "code", "begun"),
    [("n\n", (), 1, False), ("y\n", (), 0, True), ("", ("--yes",), 0, True)],
)
async def test_what_disrupts_a_node_asks_on_a_terminal(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path,
    warden: Nodewarden,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    question: str,
    answer: str,
    words: tuple[str, ...],
    code: int,
    begun: bool,
) -> None:
    monkeypatch.setattr(commands, "on_a_terminal", lambda: True)
    result = await nodewarden(command, "node-1", "-c", cluster, "--reason", "smoke", *words, text=answer)
    assert result.exit_code == code, result.output
    assert (question in result.output) is not bool(words)
    assert ("the steps can't be shown" in result.output) is (command == "remediate" and not words)
    assert await warden.episode(cluster, "node-1").is_open() is begun


async def test_all_clusters_at_a_glance(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    known = f"clusters: {{{cluster}: {{context: test}}, {cluster}-b: {{context: other}}}}"
    (keyboard / SETTINGS).write_text(known, encoding="utf-8")
    await warden.start_scanner(cluster)
    await warden.fence(cluster, "sick-1", reason="smoke")
    async with asyncio.timeout(10):
        while not await warden.history.open(cluster):
            await asyncio.sleep(0.1)
    result = await nodewarden("status", "--all")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert result.exit_code == 4, "nobody looks after one of them"
    assert lines[0] == "CLUSTER NODES UNHEALTHY EPISODES WAIT FOR A PERSON STATE"
    assert lines[1] == f"{cluster} 2 1 1 1 view live, cluster Lease held"
    assert lines[2].startswith(f"{cluster}-b - - 0 0 no open scanner of {cluster}-b, nothing is begun")
    each = [json.loads(line)["cluster"] for line in (await nodewarden("status", "--all", "-o", "json")).stdout.splitlines()]
    assert each == [cluster, f"{cluster}-b"]
    refused = await nodewarden("status", "--all", "-c", cluster)
    assert (refused.exit_code, refused.stderr) == (2, "nodewarden: --all, --cluster: expected one of them\n")


async def test_a_settings_file_of_the_current_folder_runs_no_program_and_is_named(keyboard: Path) -> None:
    """S51: one planted in /tmp named a cluster, whose kubeconfig ran a program of its author."""
    ran = keyboard / "ran"
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "touch",
            "args": [str(ran)],
            "interactiveMode": "Never",
        }
    }
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (keyboard / "planted").write_text(json.dumps(kubeconfig), encoding="utf-8")
    (keyboard / "nodewarden.yaml").write_text("clusters: {c: {kubeconfig: planted}}", encoding="utf-8")
    result = await nodewarden("doctor")
    assert not ran.exists()
    assert "nodewarden: ./nodewarden.yaml is not read; name it (--config nodewarden.yaml)" in result.stderr
    await nodewarden("--config", "nodewarden.yaml", "doctor")
    assert ran.exists(), "as it was meant by the person who names it"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [40, 80])
def test_a_line_breaks_between_words_on_a_terminal_and_nowhere_else(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = "node-1 waits for a person: " + "its BMC does not answer; fix-the-cause " * 4 + "http://127.0.0.1:8090/" + "x" * 90
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    complain(said)
    plain = re.sub(r"\x1b\[\d*m", "", screen.getvalue())
    lines = plain.splitlines()
    assert [word for line in lines for word in line.split()] == f"nodewarden: {said}".split()
    assert all(len(line) <= columns for line in lines[:-1])
    assert lines[-1].startswith("http://"), "what is longer than the terminal stays whole, and begins a line"
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    complain(said)
    assert file.getvalue() == f"nodewarden: {said}\n"


@pytest.mark.parametrize(
    ("command", "said", "never"),
    [
        ("status", "default: what the settings name, else the current kubeconfig context", ""),
        ("up", "the clusters of the settings, else over that of the current kubeconfig context", ""),
        ("resume", "End your hold of NODE or of its episode", ""),
        ("preserved", "who asked, why, until when", "since when"),
        ("doctor", "What is not as it should be comes with what to do", "Each line"),
    ],
)
async def test_help_says_what_is_so(keyboard: Path, command: str, said: str, never: str) -> None:
    assert keyboard
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", (await nodewarden(command, "--help")).output).split())
    assert said in text
    assert not never or never not in text


async def test_settings_are_a_line_each_on_a_terminal_too(keyboard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (await nodewarden("settings", "show")).output.splitlines()
    piped = [line for line in said if len(line) < 80]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    print_answer(Session(), "\n".join(piped), lambda: None)
    assert keyboard
    assert len(piped) > 50
    assert screen.getvalue().splitlines() == piped
