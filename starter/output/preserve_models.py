"""The answer of `nodewarden preserve plan` for programs; as of `models.py`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """What would be done with one machine. effective: the value of the annotation that counts. was, phase: before and after."""

    name: str
    namespace: str | None
    node: str | None
    effective: str
    was: str
    phase: str
    action: str
    expiry: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoPlan:
    """How many failed machines are kept without anybody asking, and which."""

    max: int
    count: int
    selected: tuple[str, ...]
    released: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan(AutoPlan):
    """The same of one pool."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllPools(AutoPlan):
    """The same of all pools together."""

    pools: tuple[PoolPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservePlanAnswer:
    """Who would be preserved, of the machines in files."""

    machines: tuple[MachinePlan, ...]
    auto: AllPools
    scale_down_order: tuple[str, ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]
