"""What the pages show is so: objects are accepted as they stand, settings load, names exist, and each problem has its page.

Commands are held by `test_commands.py`, links by `test_site.py`. That the table of `temporal` commands
works is held by `tests/system/test_temporal_cli.py`, which runs every line of it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from activities.contracts import search_attributes
from activities.contracts.episode_start import queries
from activities.errors import ErrorType
from policy.checks.circuit_breakers import OpenReason
from policy.dialects import parse
from policy.episode import advice
from policy.episode.node_action import Verb
from policy.fence.template_reader import is_fencing_template
from policy.objects.nodes import NodeView
from policy.remediation.ladder import Unusable
from policy.scan.permit_rules import AdmissionRefusal
from starter.client import Nodewarden
from starter.commands.session import EXIT_CODES, Exit
from tests.docs.reading import ROOT, lines_of, pages, shown, spelled_out
from tests.policy.builders import a_node, plan_of_template
from workers.configuration.settings import load

README = pages()["README.md"]
PLAIN = [page for page in pages() if page != "docs/adding-a-strategy.md"]
"""Every sentence of them was read for this."""
RIDDLES = re.compile(r"\b(?:nobody|somebody|whoever|whose|whom|he|him|his|whatever)\b(?! else\b)", re.IGNORECASE)
"""Words that hide who acts."""
_QUOTED = re.compile(r"`[^`]*`")
PROVIDERS = {"ec2": "aws:///us-east-1a/i-0123456789abcdef0", "gce": "gce://a-project/us-central1-a/node-7"}


def objects(page: str) -> list[dict[str, Any]]:
    """Of the page's blocks of YAML, each whole object."""
    every = [each for block in shown(page, "yaml") for each in yaml.safe_load_all(textwrap.dedent(block))]
    return [each for each in every if isinstance(each, dict) and "kind" in each]


def test_all_commands_that_people_need_in_an_emergency_are_shown() -> None:
    every = [each for line in lines_of("nodewarden") if line.page == "docs/use.md" for each in spelled_out(line.text)]
    shown_there = {each.split()[1] for each in every}
    assert {"up", "status", "fence", "abort", "hold", "resume", "pause", "ack-off", "doctor", "explain"} <= shown_there


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    """Of the pages, of `--help` and of the code: one list."""
    told = re.search(r"Exit codes: (.*?)\.\n", pages()["docs/use.md"], flags=re.DOTALL)
    assert told is not None
    in_help = {int(number) for number in re.findall(r"\b(\d+) ", EXIT_CODES)}
    assert in_help == set(Exit)
    assert {int(number) for number in re.findall(r"\b(\d+) ", told[1])} == in_help - {Exit.INTERRUPTED}
    in_table = {int(number) for number in re.findall(r"^\| (\d+) \|", pages()["docs/troubleshooting.md"], flags=re.MULTILINE)}
    assert in_table == in_help - {Exit.OK}


def test_the_objects_shown_are_accepted_as_they_stand() -> None:
    """Copied into a cluster they would be used: no unknown field, a device for any node, and the check names that template."""
    by_kind = {each["kind"]: each for each in objects("docs/use.md")}
    assert set(by_kind) == {"FencingTemplate", "NodeHealthCheck"}
    check = parse(by_kind["NodeHealthCheck"])
    reference = check.rungs[0].template
    assert is_fencing_template(reference)
    metadata = by_kind["FencingTemplate"]["metadata"]
    assert (reference.namespace, reference.name) == (metadata["namespace"], metadata["name"])
    plan = plan_of_template(by_kind["FencingTemplate"], NodeView(name="node-7", uid="7"))
    assert [device.endpoint for device in plan.devices] == ["ipmi://node-7.bmc.example.org:623"]
    (secret,) = plan.devices[0].credentials
    created = next(line.text for line in lines_of("kubectl") if line.page == "docs/use.md" and "create secret" in line.text)
    assert f" {secret.name} -n {secret.namespace} " in created
    for key in secret.keys.values():
        assert re.search(rf"--from-(literal|file)={key}=", created), f"the Secret shown lacks {key}"


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/how-to/")])
def test_each_template_of_a_platform_leads_to_a_device_of_the_node(page: str) -> None:
    """S9, S12: nothing unknown in it, a device that is the node's own, credentials in a Secret that the page makes."""
    made = {
        word
        for line in lines_of("kubectl")
        if line.page == page and "create secret" in line.text
        for word in [line.text.split()[4]]
    }
    platform = Path(page).stem
    templates = objects(page)
    assert templates
    for template in templates:
        provider = PROVIDERS.get(platform, PROVIDERS["ec2"] if template["metadata"]["name"].startswith("ec2") else "")
        plan = plan_of_template(template, a_node("node-7", provider_id=provider))
        assert plan.devices
        named = {each.name for device in plan.devices for each in device.credentials}
        assert platform == "storage-path" or named == made


def test_the_settings_shown_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    (block,) = shown("docs/production.md", "yaml")
    file = tmp_path / "nodewarden.yaml"
    file.write_text(block, encoding="utf-8")
    settings = load(config=file)
    assert settings.temporal.address.endswith(":7233")
    assert list(settings.clusters) == ["prod", "edge"]
    assert settings.clusters["edge"].machines is not None
    assert settings.clusters["edge"].machines.context == "management"
    assert (settings.scan.cap, settings.metrics) == (1, "127.0.0.1:9464")
    variables = re.findall(r"`(NODEWARDEN_[A-Z_]+)=([^`]+)`", pages()["docs/production.md"])
    assert variables
    for name, value in variables:
        monkeypatch.setenv(name, value)
        assert load(config=file).scan.cap == int(value)


def test_the_python_shown_uses_what_there_is() -> None:
    (code,) = shown("docs/programs.md", "python")
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "asyncio":
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)
    calls = {
        node.func.attr: node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    fence = calls["fence"]
    inspect.signature(Nodewarden.fence).bind(None, *fence.args, **{str(keyword.arg): None for keyword in fence.keywords})
    compile(code, "docs/programs.md", "exec")


def test_a_page_says_who_acts() -> None:
    """A machine is "it", and each sentence has a subject that a reader knows."""
    lines = [(f"{page}:{number}", line) for page in PLAIN for number, line in enumerate(pages()[page].splitlines(), 1)]
    assert [f"{where} {line}" for where, line in lines if RIDDLES.search(_QUOTED.sub("", line))] == []


def test_the_glossary_has_each_word_once_in_the_order_of_the_alphabet() -> None:
    """And says of each where it lives."""
    _, _, table = pages()["docs/concepts.md"].partition("\n| word | meaning | lives in |\n|---|---|---|\n")
    rows = [re.split(r" ?\| ?", row)[1:-1] for row in table.strip().splitlines()]
    words = [row[0].lower() for row in rows]
    assert len(words) > 30
    assert words == sorted(set(words))
    assert [word for word, _, file in rows if not re.search(r"`\w+/[\w/]+(\.py|/)`", file)] == []


def test_files_that_pages_name_exist() -> None:
    """Of the repository, between backquotes."""
    named = {
        (page, file)
        for page, text in pages().items()
        if page != "docs/adding-a-strategy.md"  # which makes some
        for file in re.findall(r"`((?:deploy|simulator|docs|starter|policy|workflows|activities|workers|tests)/[\w./-]+)`", text)
    }
    assert len(named) > 50
    assert sorted((page, file) for page, file in named if not (ROOT / file).exists()) == []


NAMED = re.compile(r"`([\w./-]+\.py)(?:::\w+)?`")
MADE_UP = {"docs/adding-a-strategy.md", "tests/test_conformance.py"}
"""They name some that do not exist, on purpose."""


def _texts(file: Path) -> list[str]:
    """Of a module that names any its strings and comments, else the whole of it."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md" or not NAMED.search(text):
        return [text]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [each.string for each in tokens if each.type in {tokenize.STRING, tokenize.COMMENT}]


def test_python_files_that_code_and_pages_name_exist() -> None:
    """Between backquotes, by the path from the file that names it, or from a folder above that: a bare name is its neighbour's. A
    page gives the folder once, and then the last parts of the path."""
    found = [each for top in ROOT.glob("[!.]*") for each in (top, *top.rglob("*")) if each.suffix in {".py", ".md"}]
    ours = {each.relative_to(ROOT) for each in found if each.suffix == ".py"}
    ends = {Path(*each.parts[at:]) for each in ours for at in range(len(each.parts))}
    named = {
        (file, Path(name))
        for file in (each.relative_to(ROOT) for each in found)
        if str(file) not in MADE_UP
        for text in _texts(ROOT / file)
        for name in NAMED.findall(text)
    }
    assert len(named) > 500
    dead = [
        f"{file}: {name}"
        for file, name in sorted(named)
        if not (name in ends if file.suffix == ".md" else any(folder / name in ours for folder in file.parents))
    ]
    assert dead == []


def test_the_readme_is_one_screen_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 60
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if not link.startswith("http")]
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_its_search_attributes_are_those_that_are_set() -> None:
    told = re.search(r"search attributes \(([^)]+)\)", pages()["docs/temporal.md"])
    assert told is not None
    assert re.findall(r"`(\w+)`", told[1]) == [key.name for key in search_attributes.ALL]


def test_the_lists_of_temporals_ui_are_those_that_the_page_links_to() -> None:
    told = dict(re.findall(r"^\| ([^|`]+) \| `(Cluster = [^`]+)` \|$", pages()["docs/temporal.md"], flags=re.MULTILINE))
    assert told == {name.lower(): query for name, query in queries("<cluster>").items()}


# Each problem of an episode, each reason and each type of failure is on the page that a person reads in the night.

NEEDS_A_PERSON = pages()["docs/runbooks/needs-a-person.md"]
TROUBLESHOOTING = pages()["docs/troubleshooting.md"]
RAISES = {"NonRetryable", "StepFailed", "ProofLost", "Unlicensed", "PassingRefusal", "TooSlow", "lose", "ask_for_a_person"}
"""By what an episode says that it can't go on: a person is asked, at once or when tries and patience are used up."""
SHORTEST = 8
"""Characters of a piece that can be looked for; what is shorter joins a problem that others have said."""


def anchor_of(heading: str) -> str:
    """As Markdown makes it for the site."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _pieces(call: ast.Call) -> list[str]:
    """The words of the sentence that it is given, without what is filled in."""
    found = [each.value for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [piece.strip(" :;,") for piece in found]


def problems() -> Iterator[tuple[str, str]]:
    """Where each problem of an episode is said, and its longest piece."""
    for file in sorted((ROOT / "workflows").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            longest = max(_pieces(node), key=len, default="") if name in RAISES else ""
            if len(longest) >= SHORTEST:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", longest


def test_each_problem_of_an_episode_is_in_the_runbook() -> None:
    """Add it to the section of docs/runbooks/needs-a-person.md that says what to do about it, as it is printed. Its first step is
    that of the section."""
    found = dict(problems())
    assert len(found) > 40
    assert "the node still says Ready although its devices say off: is it the right machine?" in found.values()
    assert {where: problem for where, problem in found.items() if problem not in NEEDS_A_PERSON} == {}
    headings = {problem: advice.section_of(f"{problem}: ipmi://node-1:623: no answer").heading for problem in found.values()}
    assert {problem: heading for problem, heading in headings.items() if problem not in sections()[heading]} == {}


def sections() -> dict[str, str]:
    """Of the runbook, by heading."""
    return {each.split("\n")[0]: each for each in re.split("^## ", NEEDS_A_PERSON, flags=re.MULTILINE)[1:]}


def test_each_section_of_the_runbook_begins_with_the_first_step_that_is_shown_beside_the_buttons() -> None:
    """S44: and its address is where the site has the heading."""
    assert [each.heading for each in advice.SECTIONS] == [each for each in sections() if each != "Afterwards"]
    for each in advice.SECTIONS:
        assert sections()[each.heading].split("\n")[2] == f"**First step:** {each.step}."
        assert each.address == f"runbooks/needs-a-person.html#{anchor_of(each.heading)}"


@pytest.mark.parametrize(
    ("problem", "heading"),
    [
        ("ipmi://10.0.0.7:623: the BMC refuses our password", "The device can't be used"),
        ("ipmi://10.0.0.7:623: no answer", "The device can't be used"),
        ("ipmi://10.0.0.7:623 says on, which it did not when a person said off", "Off is not proven"),
        ("every step has failed: off is not proven within 60 s: not off", "Every step has failed"),
        ("something new", "First"),
    ],
)
def test_what_a_device_or_a_step_adds_does_not_hide_what_a_problem_is(problem: str, heading: str) -> None:
    assert advice.section_of(problem).heading == heading


def test_each_reason_and_each_type_of_failure_is_explained() -> None:
    names = [each.value for kind in (AdmissionRefusal, OpenReason, Unusable, ErrorType) for each in kind if each.value]
    assert [name for name in names if f"`{name}`" not in TROUBLESHOOTING] == []


@pytest.mark.parametrize("word", [Verb.RESUME, Verb.ACK_OFF, Verb.ABORT, Verb.HOLD])
def test_each_word_has_its_consequence_in_the_runbook(word: Verb) -> None:
    assert f"| `nodewarden {word.value} NODE" in NEEDS_A_PERSON
