"""What the parts of an adversary share: the machine, the referee who knows the truth of it, and what is wrong just now."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from policy.episodes import Need
from policy.plan import FencingPlan
from tests.workflows.attempts import START, Attempt
from tests.workflows.machine import Machine
from tests.workflows.mishaps import Ambush, Mishap
from tests.workflows.referee import Referee


@dataclass
class Acting:
    """What the parts of an adversary share. say: hands what is said to whoever drives the episode, so many seconds later. grant:
    asks him for a permit that was queued for."""

    plan: FencingPlan
    need: Need
    script: deque[tuple[Mishap, float]]
    machine: Machine = field(init=False)
    referee: Referee = field(init=False)
    ambushes: list[Ambush] = field(default_factory=list)
    lingers: float = 0.0
    vetoed: bool = False
    leased: bool = False
    wanted: bool = True
    stuck: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    asked_for_a_person: int = 0
    noted: set[str] = field(default_factory=set)
    """What the latest episode has noted as cut, or found noted when it began."""
    meddled: bool = False
    """Somebody else has switched the machine off last."""
    per_minute: int | None = None
    """How many pods may be freed in a minute."""
    zombies: int = 0
    """How often a worker that was given up has written all the same."""
    switched_on: bool = False
    """Somebody else has switched the machine on."""
    acts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    say: Callable[[Mishap, float], None] = lambda _mishap, _delay: None
    grant: Callable[[], None] = lambda: None
    now: datetime = START
    _mishap: Mishap = Mishap.NOTHING
    _delay: float = 0.0
    _attempt: Attempt | None = None

    def __post_init__(self) -> None:
        self.machine = Machine(plan=self.plan, lingers=self.lingers)
        self.referee = Referee(machine=self.machine, plan=self.plan)

    @property
    def broken(self) -> list[str]:
        """What the referee has found."""
        return self.referee.broken
