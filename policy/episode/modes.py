"""Which mode holds for a node under a health check, and who set it: the most cautious of three.

The annotation on the check and the label on the node can only lower: a tenant may write the one, a kubelet the other (S52).
What is set for the cluster is the setting `scan.mode`, which people replace for all or some nodes (`nodewarden mode set`). What
a mode allows is the row `mode` of `policy/episode/gate.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from policy.values.display_text import counted, in_a_line, some_of
from policy.values.errors import PolicyError
from policy.values.mode import MODE_KEY, MODE_LABELS, Mode, most_cautious, read_mode
from policy.values.object_refs import LONGEST_NAME
from policy.values.selectors import Selector, read_selector
from policy.values.times import written

MODES_MEMO = "modes"
"""A memo of a scanner's workflow: its `ClusterModes`, for people, and for the next scanner of the cluster."""
MODE_CHANGES_MEMO = "mode-changes"
"""Another one: its `ModeChange`s."""
CHANGES_REMEMBERED = 20
MOST_RULES = 50
MOST_NODES, MOST_NAMES = 200, 500
"""So many names one rule has, and all together: each scan and each last look carries them."""
LONGEST_SELECTOR = 500
LONGEST_KEPT = 300
"""Characters of a reason; the command itself has all of it."""
ARM = "nodewarden mode set repair NODE --reason …"
"""The command that arms one node."""
UNSET = "unset"
"""In the place of a mode: the rule of these nodes goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRule:
    """A person's command for some nodes: those named, those that a label selector selects (as kubectl writes it), or all where it
    has neither. by: with how the identity was verified."""

    mode: Mode
    by: str
    reason: str
    at: datetime
    nodes: tuple[str, ...] = ()
    selector: str = ""

    def covers(self, node: str, labels: Mapping[str, str]) -> bool:
        """Whether it is for that node."""
        if self.selector:
            return _selector(self.selector).matches(labels)
        return node in self.nodes if self.nodes else True

    @property
    def scope(self) -> str:
        """The nodes that it is for, in words."""
        return scope_of(self.nodes, self.selector)

    def __str__(self) -> str:
        return f"set for {self.scope} by {self.by} at {written(self.at)}: {in_a_line(self.reason, 200)}"


def scope_of(nodes: tuple[str, ...], selector: str) -> str:
    """The nodes of a rule in words."""
    return f"nodes with {selector}" if selector else some_of(nodes, 5) or "all nodes"


def scope_key(nodes: Iterable[str], selector: str) -> str:
    """Which nodes a rule is for, exactly: in words, two rules of many names may be one."""
    return hashlib.sha256(repr((sorted(set(nodes)), selector)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChange:
    """A person's command about modes that was obeyed, also where no rule is left of it. mode: or UNSET. scope: in words.
    scope_key: see there; "" for one of an earlier build."""

    at: datetime
    by: str
    mode: str
    scope: str
    reason: str
    scope_key: str = ""

    @property
    def what(self) -> str:
        """What came of it, in a few words."""
        return f"the rule for {self.scope} was taken back" if self.mode == UNSET else f"{self.mode} was set for {self.scope}"

    def __str__(self) -> str:
        return f"{written(self.at)}: {self.what} by {self.by}: {self.reason}"


ModeChanges = tuple[ModeChange, ...]
"""The last ones of one cluster, the oldest first."""


@lru_cache(maxsize=256)
def _selector(text: str) -> Selector:
    return read_selector(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterModes:
    """What is set for a cluster. setting: `scan.mode`, None where it is not set. found: the mode that such a cluster begins
    with, None while that is not known. rules: the oldest first. before: what held when the scanner's workflow was reset, or
    started anew without a word of it, the oldest first, as a rule of that moment for all nodes and those that there were: it
    only lowers."""

    setting: Mode | None = None
    found: Mode | None = None
    rules: tuple[ModeRule, ...] = ()
    before: tuple[ModeRule, ...] = ()

    @property
    def default(self) -> Mode:
        """For nodes that no rule covers. A scanner of a version without modes has repaired all along."""
        return self.setting or self.found or Mode.REPAIR

    @property
    def why(self) -> str:
        if self.setting is not None:
            return f"the setting scan.mode is {self.setting}"
        before = "no earlier scanner" if self.found is Mode.OBSERVE else "an earlier scanner"
        return f"scan.mode is not set, and {before} repaired in this cluster"

    @property
    def is_known(self) -> bool:
        """Whether it was set, or found, what nodes without a rule have."""
        return self.setting is not None or self.found is not None

    @property
    def limited(self) -> str:
        """What people read first of a cluster in which programs may not repair every node, "" where they may: what is set, and
        how to arm it (S44)."""
        if self.before:
            ends = "until a mode is set for them, or `nodewarden mode unset --all`"
            limit = f"programs repair nodes no further than was set before, {ends}"
            return f"the scanner was reset or started anew: {limit}; `nodewarden mode` shows it"
        everywhere = next((rule for rule in reversed(self.rules) if not (rule.nodes or rule.selector)), None)
        mode, why = (everywhere.mode, str(everywhere)) if everywhere is not None else (self.default, self.why)
        if mode is Mode.REPAIR:
            return ""
        what = "programs only observe nodes, and repair none" if mode is Mode.OBSERVE else f"programs go no further than {mode}"
        others = [rule.scope for rule in self.rules if rule is not everywhere]
        some = f"; {some_of(others, 3)}: by a rule of their own" if others else ""
        return f"{what}: {why}{some}; `nodewarden mode` shows it, `{ARM}` arms a node"

    def begun(self, *, repaired: bool) -> ClusterModes:
        """With the mode that a cluster without a setting begins with. repaired: by an earlier scanner."""
        return replace(self, found=Mode.REPAIR if repaired else Mode.OBSERVE)

    def after_reset(self, former: ClusterModes, at: datetime, taken_back: Collection[str] = ()) -> ClusterModes:
        """With what the life of the scanner had set that a reset took back, as far as it lowers (S52). Of more than one such life
        without a word of a person in between, or of more rules than there may be, all that is kept is `observe`. at: when that
        life ended; rules that people have set since then count more. taken_back: the keys of rules that they have taken
        back since."""
        said = any(each.at >= at and not (each.nodes or each.selector) for each in self.rules) or scope_key((), "") in taken_back
        if said or (former.rules, former.default, former.before) == (self.rules, self.default, self.before):
            return self
        former = replace(
            former, rules=tuple(each for each in former.rules if scope_key(each.nodes, each.selector) not in taken_back)
        )
        names = sum(len(each.nodes) for each in former.rules)
        unclear = bool(former.before) or len(former.rules) > MOST_RULES or names > MOST_NAMES
        mode, rules = (Mode.OBSERVE, ()) if unclear else (former.default, former.rules)
        reason = in_a_line(f"before its workflow was reset or started anew, {former.why}", LONGEST_KEPT)
        before = (ModeRule(mode=mode, by="the scanner", reason=reason, at=at), *rules)
        return replace(self, before=before if any(each.mode is not Mode.REPAIR for each in before) else ())

    def with_said(self, said: ClusterModes, since: datetime) -> ClusterModes:
        """With the rules that people have set since then, for a scanner that did not know of the others yet (S52). Where there is
        no room for all, all is only observed."""
        modes = self
        for rule in (each for each in said.rules if each.at >= since):
            try:
                modes = modes.ruled(rule)
            except ValueError as error:
                return modes.ruled(replace(rule, mode=Mode.OBSERVE, reason=str(error), nodes=(), selector=""))
        return modes

    def set_for(self, node: str, labels: Mapping[str, str] | None) -> list[ModeAnswer]:
        """By the newest rule that covers the node, else by the default; and by what held before a reset, where no rule since then
        covers it. labels: None where its Node is gone, and they with it: each newer rule by labels may cover it, and counts as
        well (S52)."""
        found, rule = _covering(self.rules, node, labels)
        found = found if rule is not None else [*found, ModeAnswer(mode=self.default, why=self.why)]
        if not self.before or (rule is not None and rule.at >= self.before[0].at):
            return found
        return [*found, *_covering(self.before, node, labels)[0]]

    def ruled(self, rule: ModeRule) -> ClusterModes:
        """With that rule as the newest. It replaces the one for the same nodes, and one for all nodes replaces all. Raises
        ValueError where there are too many, or it can't be read."""
        if problem := rule_problem(rule.nodes, rule.selector):
            raise ValueError(problem)
        rule = replace(rule, reason=in_a_line(rule.reason, LONGEST_KEPT))
        of_all = not (rule.nodes or rule.selector)
        kept = () if of_all else self._without(rule.nodes, rule.selector)
        if len(kept) >= MOST_RULES:
            raise ValueError(f"expected at most {MOST_RULES} rules: `nodewarden mode unset` one of them first")
        if sum(len(each.nodes) for each in (*kept, rule)) > MOST_NAMES:
            raise ValueError(f"expected at most {MOST_NAMES} names in all rules; a selector covers more")
        return replace(self, rules=(*kept, rule), before=() if of_all else self.before)

    def unruled(self, nodes: tuple[str, ...], selector: str) -> ClusterModes:
        """Without the rule of exactly these nodes; without any where none are named. Raises ValueError where there is none."""
        if self.before and not (nodes or selector):
            return replace(self, rules=(), before=())
        kept = self._without(nodes, selector) if nodes or selector else ()
        if len(kept) == len(self.rules):
            scopes = "; ".join(rule.scope for rule in self.rules)
            known = f"there are rules for {scopes}" if scopes else "there is no rule"
            raise ValueError(f"no rule is for exactly these nodes: {known}" if nodes or selector else known)
        return replace(self, rules=kept)

    def described(self, nodes: tuple[str, ...], selector: str) -> str:
        """What holds now for the nodes of a command, and what else is set, in a sentence."""
        mine = next((each for each in self.rules if (set(each.nodes), each.selector) == (set(nodes), selector)), None)
        counts = mine or next((each for each in self.rules if not (each.nodes or each.selector)), None)
        plain = f"without a rule the mode is {self.default} ({self.why})"
        others = sum(each is not counts for each in self.rules)
        beside = counted(others, "other rule") if counts is not None else f"{counted(others, 'rule')} left"
        rest = f"; {beside}: see `nodewarden mode`" if others else ""
        return (f"the mode of {counts.scope} is {counts.mode}" if counts is not None else plain) + rest

    def _without(self, nodes: tuple[str, ...], selector: str) -> tuple[ModeRule, ...]:
        return tuple(each for each in self.rules if (set(each.nodes), each.selector) != (set(nodes), selector))


def _covering(
    rules: tuple[ModeRule, ...], node: str, labels: Mapping[str, str] | None
) -> tuple[list[ModeAnswer], ModeRule | None]:
    """What the newest rule that covers the node says, with that rule, and what those say before it that may cover it."""
    found: list[ModeAnswer] = []
    for rule in reversed(rules):
        if labels is None and rule.selector:
            found.append(ModeAnswer(mode=rule.mode, why=f"it has no Node, so its labels are not known, and one is {rule}"))
        elif rule.covers(node, labels or {}):
            return [*found, ModeAnswer(mode=rule.mode, why=str(rule))], rule
    return found, None


REPAIRS = ClusterModes()
"""Nothing is set."""


def rule_problem(nodes: tuple[str, ...], selector: str) -> str:
    """What is wrong with the nodes of a rule, "" for nothing."""
    if nodes and selector:
        return "expected nodes by name or a selector, got both"
    if len(nodes) > MOST_NODES or any(not name or len(name) > LONGEST_NAME for name in nodes):
        return f"nodes: expected at most {MOST_NODES} names; a selector covers more"
    if not all(name.isprintable() for name in nodes):
        return "nodes: expected names of nodes, got characters that no name has"
    if len(selector) > LONGEST_SELECTOR:
        return f"selector: expected at most {LONGEST_SELECTOR} characters"
    try:
        if selector:
            read_selector(selector)
    except PolicyError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeAnswer:
    """The mode of one node under one check. why: what sets it. problem: a value that can't be read, and so means observe; ""
    for none."""

    mode: Mode
    why: str
    problem: str = ""

    def __str__(self) -> str:
        return f"its mode is {self.mode}: {self.why}"


def only_some(modes: tuple[tuple[Mode, int], ...]) -> str:
    """How a sentence begins about a check that may act on some of its targets only, else "". modes: how many are in which."""
    observed, total = dict(modes).get(Mode.OBSERVE, 0), sum(number for _, number in modes)
    return f"only on {total - observed} of {total}, the mode of the others is observe; " if observed else ""


def mode_of(
    modes: ClusterModes, node: str, labels: Mapping[str, str] | None, annotation: str | None = None, check: str = ""
) -> ModeAnswer:
    """labels: of the Node, None where there is none. annotation: of the check with that key, None where it has none, or where no
    check asks."""
    found = modes.set_for(node, labels)
    if annotation is not None:
        found.append(_read(annotation, f"the annotation {MODE_KEY} of {check or 'its health check'}"))
    found += [_read(labels[key], f"the label {key} of the node") for key in MODE_LABELS if labels and key in labels]
    return _least(found)


def mode_under(modes: ClusterModes, node: str, labels: Mapping[str, str] | None, checks: Mapping[str, str | None]) -> ModeAnswer:
    """The same under several checks: their annotations by their keys, none where no check asks. One that only observes leaves the
    node to the others, as in a scan; of those the most cautious holds."""
    found = [mode_of(modes, node, labels, annotation, key) for key, annotation in checks.items()]
    acting = [each for each in found if each.mode is not Mode.OBSERVE]
    return _least(acting or found or [mode_of(modes, node, labels)])


def _least(found: list[ModeAnswer]) -> ModeAnswer:
    least = most_cautious(each.mode for each in found)
    return next(each for each in found if each.mode is least)


def _read(value: str, where: str) -> ModeAnswer:
    mode, problem = read_mode(value)
    return ModeAnswer(mode=mode, why=f"{where} can't be read: {problem}" if problem else f"{where} says so", problem=problem)
