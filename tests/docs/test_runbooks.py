"""Each problem of an episode, each reason and each type of failure is on the page that a person reads in the night."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from activities.errors import ErrorType
from policy.checks.circuit_breakers import OpenReason
from policy.episode import advice
from policy.episode.operator_commands import Verb
from policy.remediation.ladder import Unusable
from policy.scan.permit_rules import AdmissionRefusal
from tests.docs.reading import ROOT, pages

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


@pytest.mark.parametrize(
    "name", [each.value for kind in (AdmissionRefusal, OpenReason, Unusable, ErrorType) for each in kind if each.value], ids=str
)
def test_each_reason_and_each_type_of_failure_is_explained(name: str) -> None:
    assert f"`{name}`" in TROUBLESHOOTING


@pytest.mark.parametrize("word", [Verb.RESUME, Verb.ACK_OFF, Verb.ABORT, Verb.HOLD])
def test_each_word_has_its_consequence_in_the_runbook(word: Verb) -> None:
    assert f"| `nodewarden {word.value} NODE" in NEEDS_A_PERSON
