"""The table of strategies is whole: each has a row, a class that carries it out, and its words in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policy.fence.templates import OWN_KINDS
from policy.remediation.strategies import BY_TEMPLATE, RULES, Action, Needs, Strategy, StrategyRule
from policy.values.times import format_duration
from workflows.remediation.story import STEPS

DOCS = Path(__file__).parents[3] / "docs"


def cells(page: str, first: str) -> list[str]:
    """The row of a table that begins with that cell."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(first)} \|.*$", text, flags=re.MULTILINE)
    assert found is not None, f"docs/{page} has no row {first}"
    return [each.strip() for each in found[0].strip("|").split(" | ")]


def test_each_strategy_has_a_row_and_a_class() -> None:
    assert set(RULES) == set(STEPS) == set(Strategy)


def test_each_template_of_ours_means_one_strategy() -> None:
    assert set(BY_TEMPLATE) == set(OWN_KINDS)


@pytest.mark.parametrize(("strategy", "rule"), RULES.items())
def test_the_docs_name_its_time_out(strategy: Strategy, rule: StrategyRule) -> None:
    default = "that of its plan" if rule.needs is Needs.NODE else "none"
    assert cells("remediation.md", f"`{strategy}`")[-1] == (format_duration(rule.timeout) if rule.timeout else default)


def test_the_docs_name_what_evaluate_calls_it() -> None:
    text = (DOCS / "semantics.md").read_text(encoding="utf-8")
    table = text.partition("| action | what it is | by |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\|[^|]+\|", table, flags=re.MULTILINE)))) == set(Action)
