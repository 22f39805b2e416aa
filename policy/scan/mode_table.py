"""Which nodes are in which mode under which check, and why: what `nodewarden mode` shows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from policy.episode.modes import ClusterModes, ModeAnswer, ModeRule
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.values.display_text import counted
from policy.values.mode import Mode
from policy.values.object_refs import in_natural_order

ARM = "nodewarden mode set repair NODE --reason …"
"""The command that arms one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeLine:
    """Nodes of one mode for one reason. check: its key, "" for nodes that none covers. problem: a value that can't be read."""

    mode: Mode
    check: str
    nodes: tuple[str, ...]
    why: str
    problem: str = ""


def mode_lines(known: LedgerSnapshot) -> tuple[ModeLine, ...]:
    """All Nodes under the checks that cover them or their Machines, the most cautious first."""
    found: defaultdict[tuple[str, ModeAnswer], set[str]] = defaultdict(set)
    for name in known.nodes:
        for key in known.verdicts_on(name) or ("",):
            found[key, known.mode_of(name, key)].add(name)
    lines = (
        ModeLine(
            mode=answer.mode, check=key, nodes=tuple(sorted(names, key=in_natural_order)), why=answer.why, problem=answer.problem
        )
        for (key, answer), names in found.items()
    )
    return tuple(sorted(lines, key=lambda line: ([*Mode].index(line.mode), line.check, line.nodes)))


def idle_rules(known: LedgerSnapshot) -> tuple[ModeRule, ...]:
    """Those that cover no Node and name no Machine that there is now, as one with a misspelt label."""
    nodes = [(name, each.node.labels) for name, each in known.nodes.items() if each.node is not None]
    machines = {each.victim_name for each in known.machines.values() if each.node is None}
    return tuple(
        rule for rule in known.modes.rules if machines.isdisjoint(rule.nodes) and not any(rule.covers(*each) for each in nodes)
    )


def limited(modes: ClusterModes) -> str:
    """What people are told first of a cluster in which programs may not repair every node, "" where they may: what is set, and
    how to arm it (S44)."""
    everywhere = next((rule for rule in reversed(modes.rules) if not (rule.nodes or rule.selector)), None)
    mode, why = (everywhere.mode, str(everywhere)) if everywhere is not None else (modes.default, modes.why)
    if mode is Mode.REPAIR:
        return ""
    what = "nodes are only observed, and not repaired" if mode is Mode.OBSERVE else f"programs go no further than {mode}"
    others = len(modes.rules) - (everywhere is not None)
    some = f", but for nodes of {counted(others, 'rule')}" if others else ""
    return f"{what}{some}: {why}; `nodewarden mode` shows it, `{ARM}` arms a node"
