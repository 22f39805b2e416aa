"""What asks for a preservation: annotations of people, of which the Node's beats the Machine's, and the configuration of a pool.

Names and values are those of Gardener's machine-controller-manager and of its proposal; how a value that was removed while no
worker looked is noticed is the rule of `getEffectivePreservationAnnotations` there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from policy.dialects.common import read_head
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.values.fields import Fields
from policy.values.selectors import Operator, Requirement, Selector, parse_selector
from policy.values.times import parse_span

LAST_APPLIED_ANNOTATION = "node.machine.sapcloud.io/last-applied-node-preserve-value"
"""On the Machine: the Node's value that was acted on last. Without it "never annotated" and "removed while we were down" look
the same."""

PRESERVE_FOR_ANNOTATION = "nodewarden.io/preserve-for"
"""How long until the first expiry, instead of the pool's time-out; on the Node or the Machine, the Node's value beats."""

ISOLATE_ANNOTATION = "nodewarden.io/preserve-isolate"
"""Whether a machine that has failed and is kept is to be isolated from its volumes and its network, `true` or `false`; on the
Node or the Machine, the Node's value beats, and either beats the pool."""

LONGEST_PRESERVATION = timedelta(days=365)


class Intent(StrEnum):
    """What a value of the annotation means."""

    NONE = ""
    NOW = "now"
    WHEN_FAILED = "when-failed"
    AUTOMATIC = "auto-preserved"
    FALSE = "false"


_SPELLINGS = {**{intent.value: intent for intent in Intent}, "true": Intent.NOW}
"""The proposal's spelling is `true`; the shipped system knows only `now`."""

ALLOWED = ("now", "true", "when-failed", "auto-preserved", "false")

KEEPING = frozenset({Intent.NOW, Intent.WHEN_FAILED, Intent.AUTOMATIC})
"""The intents that keep a machine that has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """The values on the objects; None where an object does not exist, or does not have the annotation.

    An empty string is a value that a person wrote, but not one with a meaning.
    """

    node: str | None = None
    machine: str | None = None
    last_applied: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The value in force. by_node: the Node decides, so the Machine's own value is removed and the Node's is recorded. recorded:
    what was recorded of a Node that is gone decides, "" where it does not; it is written on the Machine, for the next Node.

    unreadable: what is wrong with a meaningless value of the Node: nothing changes. ignored: the same for a value of the
    Machine, which then counts as not annotated.
    """

    intent: Intent
    by_node: bool = False
    recorded: str = ""
    unreadable: str = ""
    ignored: str = ""


def requested(values: Annotated, *, node_stayed: bool = True) -> Request:
    """Which value holds, and what it means. node_stayed: whether the Node of which a value was recorded is still there: its
    deletion releases no machine (machine-controller-manager #1135)."""
    node, machine = values.node or "", values.machine or ""
    recorded = "" if node_stayed or values.machine is not None else values.last_applied or ""
    if recorded and (intent := _SPELLINGS.get(recorded)) is not None:
        return Request(intent=intent, recorded=recorded)
    if not node_stayed or (not node and not values.last_applied):
        intent = _SPELLINGS.get(machine)
        wrong = "" if intent is not None else _problem("Machine", machine)
        return Request(intent=intent or Intent.NONE, ignored=wrong)
    intent = _SPELLINGS.get(node)
    ignored = "" if machine in _SPELLINGS else _problem("Machine", machine)
    if intent is None:
        return Request(intent=Intent.NONE, unreadable=_problem("Node", node), ignored=ignored)
    return Request(intent=intent, by_node=True, ignored=ignored)


def parse_hold(text: str) -> timedelta | None:
    """How long a person wants something held: above 0, and at most `LONGEST_PRESERVATION`. None for any other text."""
    try:
        return parse_span(text, LONGEST_PRESERVATION)
    except ValueError:
        return None


def asked_for(node: Mapping[str, str], machine: Mapping[str, str]) -> tuple[timedelta | None, str]:
    """How long a person wants it kept at first, from the annotations of both objects; with what is wrong with them, if
    anything."""
    for kind, written in (("Node", node), ("Machine", machine)):
        text = written.get(PRESERVE_FOR_ANNOTATION)
        if text is None:
            continue
        expected = f"{kind}: annotation {PRESERVE_FOR_ANNOTATION}: expected a duration above 0 such as 24h, got {text[:40]!r}"
        wanted = parse_hold(text)
        return wanted, "" if wanted is not None else f"{expected}; at most {LONGEST_PRESERVATION.days * 24}h"
    return None, ""


def isolation_asked(node: Mapping[str, str], machine: Mapping[str, str], *, pool: bool) -> tuple[bool, str]:
    """Whether it is to be isolated once it has failed, from the annotations of both objects; with what is wrong with them, if
    anything. pool: holds where neither object is annotated. An annotation that can't be read isolates no machine."""
    for kind, written in (("Node", node), ("Machine", machine)):
        text = written.get(ISOLATE_ANNOTATION)
        if text is None:
            continue
        if text in {"true", "false"}:
            return text == "true", ""
        return False, f"{kind}: annotation {ISOLATE_ANNOTATION}: expected true or false, got {text[:40]!r}; nothing is isolated"
    return pool, ""


def _problem(kind: str, value: str) -> str:
    expected = ", ".join(ALLOWED)
    return f"{kind}: annotation {PRESERVE_ANNOTATION}: expected one of {expected}, got {value[:40]!r}; it changes nothing"


# How many machines of a pool are kept automatically, and for how long: every spelling, in one typed `Pool`.
#
# The spellings: our `PreservationPolicy` object, and the proposal's block `machineControllerManager` of a worker pool (alone, in
# a PreservationPolicy, or in a Gardener Shoot). `pool_cap.py` reads the fields of the shipped system on a MachineDeployment.

API_VERSION = "nodewarden.io/v1alpha1"
KIND = "PreservationPolicy"

DEFAULT_TIMEOUT = timedelta(hours=72)
"""The proposal's; the shipped system has 96 h, which a Machine's own `machinePreserveTimeout` may set."""

DEFAULT_SETTLE_TIME = timedelta(seconds=5)
LONGEST_SETTLE_TIME = timedelta(minutes=10)
LARGEST_CAP = 10_000

WORKER_POOL_LABEL = "worker.gardener.cloud/pool"
BLOCK = "machineControllerManager"
CAP, CAP_ALIAS, TIMEOUT = "autoPreserveFailedMax", "machinePreserveMax", "machinePreserveTimeout"
BLOCK_FIELDS = (CAP, CAP_ALIAS, TIMEOUT)
SPEC_FIELDS = ("selector", "zones", "settleTime", "isolate", *BLOCK_FIELDS, BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool: which machines belong to it, and its limits.

    cap: of automatic preservations in the whole pool. zones: the cap is spread over these where the pool names them, else over
    the MachineDeployments or zones that its machines are seen in. settle: how long after a failure it is decided.
    """

    name: str
    selector: Selector
    cap: int = 0
    timeout: timedelta = DEFAULT_TIMEOUT
    settle: timedelta = DEFAULT_SETTLE_TIME
    zones: tuple[str, ...] = ()
    isolate: bool = False
    warnings: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a machine with these labels belongs to this pool. The labels are the Machine's and the Node's."""
        return self.selector.matches(labels)


def read_policy(obj: Mapping[str, object]) -> Pool:
    """A PreservationPolicy. Raises PolicyError naming object, field and what was expected."""
    head = read_head(obj, kind=KIND, versions=(API_VERSION,), namespaced=False)
    spec, warnings = head.spec, list[str]()
    spec.only(*SPEC_FIELDS)
    if not spec.has("selector"):
        raise spec.refuse("selector", "expected a selector of Machines' or Nodes' labels; an empty one, {}, selects all")
    selector = parse_selector(spec.within("selector"), warnings)
    values = spec
    if spec.has(BLOCK):
        doubled = next((name for name in BLOCK_FIELDS if spec.has(name)), "")
        if doubled:
            raise spec.refuse(doubled, f"expected it only once, but {BLOCK} is there as well")
        values = spec.within(BLOCK)
        values.only(*BLOCK_FIELDS)
    zones = spec.texts("zones")
    if len(set(zones)) != len(zones):
        raise spec.refuse("zones", "expected each zone once")
    return _pool(
        head.ref.name,
        selector,
        values,
        zones=zones,
        settle=spec.duration("settleTime", DEFAULT_SETTLE_TIME, maximum=LONGEST_SETTLE_TIME),
        isolate=spec.flag("isolate", default=False),
        warnings=warnings,
    )


def pool_of(name: str, spec: Mapping[str, object]) -> Pool:
    """A pool from a name and a spec alone, as settings have it. Raises PolicyError."""
    return read_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec})


def read_block(block: Mapping[str, object], *, subject: str) -> Pool:
    """A pool from the proposal's block alone: it holds for all machines that no other pool selects. Raises PolicyError."""
    fields = Fields(block, subject=subject)
    fields.only(*BLOCK_FIELDS)
    return _pool(BLOCK, Selector(), fields)


def read_shoot(obj: Mapping[str, object]) -> list[Pool]:
    """The worker pools of a Gardener Shoot that carry the block. Raises PolicyError."""
    name = Fields(obj, subject="Shoot").within("metadata").text("name")
    spec = Fields(obj, subject=f"Shoot/{name}").within("spec")
    pools = []
    for worker in spec.within_or_empty("provider").each("workers"):
        if not worker.has(BLOCK):
            continue
        called = worker.text("name")
        selector = Selector(requirements=(Requirement(key=WORKER_POOL_LABEL, operator=Operator.IN, values=(called,)),))
        values = worker.within(BLOCK)
        pools.append(_pool(called, selector, values, zones=worker.texts("zones")))
    return pools


def _pool(
    name: str,
    selector: Selector,
    values: Fields,
    *,
    zones: Sequence[str] = (),
    settle: timedelta = DEFAULT_SETTLE_TIME,
    isolate: bool = False,
    warnings: Sequence[str] = (),
) -> Pool:
    doubts = list(warnings)
    if values.has(CAP) and values.has(CAP_ALIAS):
        raise values.refuse(CAP_ALIAS, f"is another name of {CAP}: expected only one of them")
    cap_name = CAP_ALIAS if values.has(CAP_ALIAS) else CAP
    cap = values.whole(cap_name, 0, minimum=0, maximum=LARGEST_CAP)
    if 0 < cap < len(zones):
        doubts.append(f"{name}: {values.at(cap_name)} {cap} is less than its {len(zones)} zones: some zones keep no machine")
    return Pool(
        name=name,
        selector=selector,
        cap=cap,
        timeout=values.duration(TIMEOUT, DEFAULT_TIMEOUT, minimum=timedelta(seconds=1), maximum=LONGEST_PRESERVATION),
        settle=settle,
        zones=tuple(zones),
        isolate=isolate,
        warnings=tuple(doubts),
    )
