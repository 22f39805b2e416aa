"""What the parts of an adversary share: the machine, the referee who knows the truth of it, and what is wrong just now."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from policy.checks.fence_policies import NO_POLICIES
from policy.episode.gate import By, Objection, Operation, Seen, objection
from policy.episode.messages import Need, RecordEntry
from policy.fence.plan import FencingPlan
from policy.fence.power import PowerState
from tests.workflows.attempts import START, Attempt
from tests.workflows.machine import Machine
from tests.workflows.mishaps import Ambush, Mishap
from tests.workflows.owned import Owned
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
    owned: Owned = field(default_factory=Owned)
    skews: tuple[float, ...] = (0.0,)
    """By how many seconds the clock of each worker is ahead."""
    vetoed: datetime | None = None
    leased: datetime | None = None
    """Since when somebody says hands off the Node, or holds its lease."""
    unlicensed: datetime | None = None
    """Since when the cluster Lease or the permit can't be shown."""
    refusing: bool = False
    """A circuit breaker is open: nobody is granted a permit."""
    busy_until: datetime = START
    """Until then the API server takes no writes that only keep books."""
    forbidding: tuple[datetime, datetime] = (START, START)
    """From when until when the API server refuses everything with 403."""
    waited_before: bool = False
    """What it refused last had waited for a worker before, which uses up the same minute."""
    begun: set[str] = field(default_factory=set)
    """The incidents that have looked at the machine."""
    paused: datetime | None = None
    """Since when its Cluster API Cluster is paused."""
    unwanted: datetime | None = None
    """Since when nobody asks for it any more."""
    dead: set[str] = field(default_factory=set)
    """Devices that never answer again."""
    heard_since: datetime = START
    """When devices that were silent began to speak again."""
    reconfigured: bool = False
    configured: FencingPlan | None = None
    """By which the node is to be fenced by now, since `changed`, where that is not the plan."""
    changed: datetime = START
    stuck: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    asked_for_a_person: int = 0
    streamed: dict[tuple[str, int], RecordEntry] = field(default_factory=dict)
    """The lines of records that were written to the decision stream, by incident and number."""
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
    counted: Counter[str] = field(default_factory=Counter)
    """How often each act was attempted."""
    answers: list[str] = field(default_factory=list)
    say: Callable[[Mishap, float], None] = lambda _mishap, _delay: None
    grant: Callable[[], None] = lambda: None
    now: datetime = START
    _served: int = 0
    _mishap: Mishap = Mishap.NOTHING
    _delay: float = 0.0
    _attempt: Attempt | None = None

    def __post_init__(self) -> None:
        self.machine = Machine(plan=self.plan, lingers=self.lingers)
        self.machine.hidden = self.runs_unseen
        self.referee = Referee(machine=self.machine, plan=self.plan)

    @property
    def skew(self) -> timedelta:
        """How much the clock of the worker that has taken the attempt is ahead."""
        return timedelta(seconds=Random(self._served).choice(self.skews))

    @property
    def clock(self) -> datetime:
        """What time it is for that worker."""
        return self.now + self.skew

    @property
    def wanted(self) -> bool:
        """Whether it is still asked for."""
        return self.unwanted is None

    @property
    def several(self) -> bool:
        """Whether the machine has several supplies in its first level."""
        return bool(self.plan.levels) and len(self.plan.levels[0]) > 1

    def vetoes(self) -> dict[str, datetime]:
        """Who says hands off, wherever he says it, and since when."""
        vetoes = {"somebody says hands off": self.vetoed, "somebody services it": self.leased, "it is kept": self.owned.preserved}
        return {what: since for what, since in vetoes.items() if since is not None}

    def kept_out(self, operation: Operation) -> Objection | None:
        """What the gate itself makes of a Cluster that is paused; all else is played by other means."""
        why = "spec.paused is true" if self.paused is not None else ""
        seen = Seen(machines=(), pause=why, lease="", cluster_lease="", permit="", policies=NO_POLICIES)
        return objection(seen, operation, By.PERSON, self.now)

    def begins(self, incident: str) -> None:
        """An episode's first look: what nobody can tell it, it can't know."""
        if incident in self.begun:
            return
        self.begun.add(incident)
        mark = self.machine.mark
        self.referee.unaware = set() if mark is not None else {each.incident for each in self.referee.commands}
        self.noted = set(mark.paths) if mark is not None else set()

    def runs_unseen(self) -> bool:
        """Whether the only devices that could tell that the machine runs are silent."""
        mute = self.silent | self.locked
        return self.machine.miswired and all(each.endpoint in mute for each in self.plan.levels[0])

    def ran_unseen(self, moment: datetime | None) -> bool:
        """Whether nobody could tell that it runs: not at the end, or not at that moment, when its devices were last asked."""
        return self.runs_unseen() or (self.machine.miswired and moment is not None and self.heard_since >= moment)

    def is_off_by_others(self) -> bool:
        """Whether a level is dark that no episode has switched off of which the present one can know: where its Node is deleted,
        with the mark on it, a terminated one leaves its successor nothing to find or to pin."""
        unknown = set() if self.machine.present else self.referee.unaware
        offs = {each.endpoint for each in self.referee.commands if each.state is PowerState.OFF and each.incident not in unknown}
        return any(not offs & set(level) for level in self.machine.dark)

    def only_restores(self, incident: str) -> bool:
        """Whether all that an episode has left to do is to switch the machine on."""
        plan, referee = self.plan, self.referee
        if not plan.power_on or plan.terminate_instance or plan.delete_node or referee.all_freed_by != incident:
            return False
        return not (self.machine.pods or self.machine.runs or self.machine.cut_pods) and referee.off_by == incident

    @property
    def broken(self) -> list[str]:
        """What the referee has found."""
        return self.referee.broken
