"""How many machines of a pool are kept automatically, and for how long: every spelling, in one typed `Pool`.

The spellings: our `PreservationPolicy` object, and the proposal's block `machineControllerManager` of a worker pool (alone, in
a PreservationPolicy, or in a Gardener Shoot). `survey.py` reads the fields of the shipped system on a MachineDeployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from policy.dialects.common import read_head
from policy.preservation.requests import LONGEST_PRESERVATION
from policy.values.fields import Fields
from policy.values.selectors import Operator, Requirement, Selector, parse_selector

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
    the MachineDeployments or zones that its machines are seen in. settle: how long after a failure it is decided. namespace:
    only Machines of this namespace belong to it, "" for all.
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
