"""The README promises nothing that is not so: its commands parse, its examples are accepted as they stand, its names exist.

That the table of `temporal` commands works is held by `tests/system/test_temporal_cli.py`, which runs every line of it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from activities.contracts import search
from policy.dialects import parse
from policy.fence.templates import is_fencing_template
from policy.objects.nodes import NodeView
from starter.cli import app
from starter.client import Nodewarden
from starter.commands.groups import NodeOrCommand
from starter.commands.session import EXIT_CODES, Exit
from tests.policy.fencing_builders import plan_of_template
from workers.configuration.settings import load

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLE = "| tctl | temporal | what for |"
COMMAND = typer.main.get_command(app)


def blocks(language: str) -> list[str]:
    """Fenced blocks of a language, "" for those that name none."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def shell_lines(program: str) -> list[str]:
    """Indented lines that a reader would type, without comments and what they are piped into; a line that ends in a backslash with
    what follows it."""
    joined = README.replace("\\\n", " ")
    found = [line.strip() for line in joined.splitlines() if line.startswith(f"    {program} ")]
    return [re.sub(r"\s+(#|\| ).*$", "", line) for line in found]


def spelled_out(line: str) -> Iterator[str]:
    """`a|b` and `x / y` are several lines in one, `[…]` may be left out and may be written."""
    words = line.replace("[", "").replace("]", "")
    head, *others = words.split(" / ")
    yield from _alternatives(head)
    for other in others:
        yield from _alternatives(f"nodewarden {other}")


def _alternatives(line: str) -> Iterator[str]:
    choice = re.search(r"\S+\|\S+", line)
    if choice is None:
        yield line
        return
    for word in choice[0].split("|"):
        yield from _alternatives(line.replace(choice[0], word, 1))


COMMANDS = [each for line in shell_lines("nodewarden") for each in spelled_out(line)]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_line_is_understood(line: str) -> None:
    """The command exists, and takes these arguments and no fewer."""
    command: Any = COMMAND
    words = shlex.split(line)[1:]
    with COMMAND.make_context("nodewarden", [], resilient_parsing=True) as context:
        while hasattr(command, "commands"):
            if isinstance(command, NodeOrCommand):
                words = command.spelled_out(words)
            found = command.get_command(context, words[0])
            assert found is not None, f"{line}: no command {words[0]!r}; there are {', '.join(sorted(command.commands))}"
            command, words = found, words[1:]
        command.make_context(command.name, list(words), parent=context)


def test_all_commands_that_people_need_in_an_emergency_are_shown() -> None:
    shown = {shlex.split(line)[1] for line in COMMANDS}
    assert {"up", "worker", "status", "fence", "abort", "hold", "resume", "ack-off", "scan"} <= shown


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    """Of the README, of `--help` and of the code: one list."""
    told = re.search(r"Exit codes: (.*?)\.\n", README, flags=re.DOTALL)
    assert told is not None
    in_readme = {int(number) for number in re.findall(r"\b(\d+) ", told[1])}
    in_help = {int(number) for number in re.findall(r"\b(\d+) ", EXIT_CODES)}
    assert in_help == set(Exit)
    assert in_readme == in_help - {Exit.INTERRUPTED}


def test_the_objects_shown_are_accepted_as_they_stand() -> None:
    """Copied into a cluster they would be used: no unknown field, a device for any node, and the check names that template."""
    objects = [each for block in blocks("yaml") for each in yaml.safe_load_all(block) if "kind" in each]
    by_kind = {each["kind"]: each for each in objects}
    assert set(by_kind) == {"FencingTemplate", "NodeHealthCheck"}
    check = parse(by_kind["NodeHealthCheck"])
    reference = check.rungs[0].template
    assert is_fencing_template(reference)
    metadata = by_kind["FencingTemplate"]["metadata"]
    assert (reference.namespace, reference.name) == (metadata["namespace"], metadata["name"])
    plan = plan_of_template(by_kind["FencingTemplate"], NodeView(name="node-7", uid="7"))
    assert [device.endpoint for device in plan.devices] == ["ipmi://node-7.bmc.example.org:623"]
    (secret,) = plan.devices[0].credentials
    created = next(line for line in shell_lines("kubectl") if "create secret" in line)
    assert f" {secret.name} -n {secret.namespace} " in created
    for key in secret.keys.values():
        assert re.search(rf"--from-(literal|file)={key}=", created), f"the Secret shown lacks {key}"


def test_the_settings_shown_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    shown = [block for block in blocks("yaml") if "kind:" not in block]
    assert len(shown) == 1
    file = tmp_path / "nodewarden.yaml"
    file.write_text(shown[0], encoding="utf-8")
    settings = load(config=file)
    assert settings.temporal.address.endswith(":7233")
    assert list(settings.clusters) == ["prod", "edge"]
    assert settings.clusters["edge"].machines is not None
    assert settings.clusters["edge"].machines.context == "management"
    assert (settings.scan.cap, settings.metrics) == (1, "127.0.0.1:9464")
    for variable in re.findall(r"`(NODEWARDEN_[A-Z_]+)=([^`]+)`", README):
        monkeypatch.setenv(*variable)
        assert load(config=file).scan.cap == int(variable[1])


def test_the_python_shown_uses_what_there_is() -> None:
    (code,) = blocks("python")
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "asyncio":
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)
    calls = {
        node.func.attr: node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    signature = inspect.signature(Nodewarden.fence)
    fence = calls["fence"]
    signature.bind(None, *fence.args, **{str(keyword.arg): None for keyword in fence.keywords})
    compile(code, "README.md", "exec")


def test_its_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
    files = set(re.findall(r"`((?:deploy|simulator|docs)/[\w./-]+)`", README))
    for line in shell_lines("kubectl"):
        files |= set(re.findall(r"-f (\S+)", line))
    assert files
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_its_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {line.split()[1] for line in shell_lines("make") if not line.split()[1].startswith(".")}
    named |= set(re.findall(r"`make ([a-z-]+)", README))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_its_search_attributes_are_those_that_are_set() -> None:
    told = re.search(r"search attributes \(([^)]+)\)", README)
    assert told is not None
    assert re.findall(r"`(\w+)`", told[1]) == [key.name for key in search.ALL]


def test_what_it_shows_of_the_demo_and_of_the_tests_is_there() -> None:
    """Real output, pasted: the last line of each, and what `make test` closes with."""
    shown = blocks("")
    assert sum("✓ 2 nodes broken, 2 recovered" in block for block in shown) == 1
    assert sum(re.search(r"^=+ [0-9]+ passed.* in .*=+$", block, flags=re.MULTILINE) is not None for block in shown) == 1


def test_the_table_of_temporal_commands_is_one_that_its_test_reads() -> None:
    assert README.count(TABLE) == 1
