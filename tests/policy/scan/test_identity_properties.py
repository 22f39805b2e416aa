"""Whatever happens to names, provider IDs and Node objects, no healthy machine is taken, none whose identity two claim, and no
quorum is lost: moves of clouds, kubelets and people on a fleet whose machines are known.

What is admitted of a scan is compared with the machines themselves, which no scan sees. `NODEWARDEN_TEST_WORLDS` sets how many
fleets, `NODEWARDEN_TEST_SEED` from which number on.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from policy.objects.machines import FAILED
from policy.scan.admission import admit
from policy.scan.ledger import Ledger
from policy.scan.scan_report import Candidate
from policy.values.object_refs import Dialect
from tests.cases.decisions import report_of
from tests.cases.drawn_worlds import MEMBER
from tests.policy.builders import NAMESPACE, NOW, PROD, TEMPLATE, WORKER, a_check, a_machine, a_node, cluster_api, openshift, put

pytestmark = pytest.mark.timeout(600)

WORLDS = int(os.environ.get("NODEWARDEN_TEST_WORLDS", "600"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
ANY = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
HERE = {"namespace": NAMESPACE}
MEMBERS, WORKERS, MOST_MOVES = 3, 4, 4
CHECKS = {
    Dialect.OPENSHIFT: (
        openshift("fences", selector={}, maxUnhealthy="100%", remediationTemplate=TEMPLATE | HERE),
        openshift("deletes", selector={}, maxUnhealthy="100%"),
    ),
    Dialect.CLUSTER_API: (
        cluster_api("fences", limit="100%", template=TEMPLATE | HERE),
        cluster_api("asks", limit="100%"),
    ),
}


@dataclass
class RealMachine:
    """One as it is. named: the Node that its Machine names, "" for none. node: the name under which its kubelet has registered,
    "" where that object was deleted. says: the provider ID that its Machine bears."""

    number: int
    sick: bool = False
    failed: bool = False
    named: str = ""
    node: str = ""
    says: str = ""

    @property
    def identity(self) -> str:
        return f"sim:///vm-{self.number}"

    @property
    def member(self) -> bool:
        return self.number < MEMBERS


@dataclass
class Fleet:
    """Machines, what is registered of them, and the moves that were made."""

    chance: Random
    machines: list[RealMachine] = field(default_factory=list)
    clones: list[tuple[str, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(MEMBERS + WORKERS):
            name = f"n{number}"
            self.machines.append(RealMachine(number, named=name, node=name, says=f"sim:///vm-{number}"))

    def any(self) -> RealMachine:
        return self.chance.choice(self.machines)

    # Moves ----------------------------------------------------------------------------------------------------------

    def sicken(self) -> None:
        """Its kubelet falls silent; perhaps its controller calls its Machine failed."""
        machine = self.any()
        machine.sick, machine.failed = True, self.chance.random() < 0.3

    def lose_node(self) -> None:
        """Its Node is deleted, and it runs on."""
        self.any().node = ""

    def take_name(self) -> None:
        """A machine registers under the name of another one, which is called failed, and whose Machine goes on naming it."""
        old, new = self.chance.sample(self.machines, 2)
        if old.node and new.node and old.member == new.member:
            old.failed, new.node, new.named, old.node = True, old.node, old.node, ""

    def clone(self) -> None:
        """A second Node shows its identity, by an image that was copied."""
        machine = self.any()
        self.clones.append((f"clone-{len(self.clones)}", machine.identity))

    def claim(self) -> None:
        """Another Machine bears its provider ID."""
        of, by = self.chance.sample(self.machines, 2)
        by.says = of.identity

    def forget(self) -> None:
        """A Machine says no provider ID, or names no Node."""
        machine = self.any()
        machine.says, machine.named = self.chance.choice([("", machine.named), (machine.says, "")])

    # What is seen of it ---------------------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        ledger, dialect = Ledger(), self.chance.choice([None, *CHECKS])
        put(ledger, PROD)
        put(ledger, a_check("anybody", selector=ANY, minHealthy=None, maxUnhealthy="100%"))
        for each in self.machines:
            labels = {"pool": "a", MEMBER if each.member else WORKER: ""}
            if each.node:
                put(ledger, a_node(each.node, "Unknown" if each.sick else "True", labels=labels, provider_id=each.identity))
            told = {"phase": FAILED if each.failed else "Running", "control_plane": each.member, "last_updated": NOW}
            owner = {"controller": "MachineSet/set"}
            body = a_machine(
                f"m{each.number}", dialect or Dialect.OPENSHIFT, node_name=each.named, provider_id=each.says, **told, **owner
            )
            put(ledger, body)
        for name, identity in self.clones:
            put(ledger, a_node(name, labels={"pool": "a", WORKER: ""}, provider_id=identity))
        if dialect is not None:
            put(ledger, self.chance.choice(CHECKS[dialect]))
        return ledger

    # The judge ------------------------------------------------------------------------------------------------------

    def judge(self, taken: Candidate) -> str:
        """What is wrong with taking that one, "" for nothing."""
        registered = next((each for each in self.machines if each.node == taken.node), None)
        if registered is None and taken.node in dict(self.clones):
            return f"S39: {taken.node} shows the identity of another Node"
        real = registered or next(each for each in self.machines if taken.machine == f"{NAMESPACE}/m{each.number}")
        called_failed = real.failed and not real.node
        # A Machine that names this Node and bears its provider ID is its Machine, whatever another one says.
        called_failed |= any(each.failed and each.named == taken.node and each.says == real.identity for each in self.machines)
        if registered is not None and not (real.sick or called_failed):
            return f"S9: {taken.node} is vm-{real.number}, which is well"
        claims = Counter([*(each.identity for each in self.machines if each.node), *(identity for _, identity in self.clones)])
        if registered is not None and claims[real.identity] > 1:
            return f"S39: two Nodes show {real.identity}"
        if others := [f"m{each.number}" for each in self.machines if each is not real and self._claims(each, real)]:
            return f"S39: {taken.node} is claimed by {', '.join(others)} with another Node"
        voters = [each for each in self.machines if each.member and each is not real and not each.sick]
        if real.member and len(voters) < MEMBERS // 2 + 1:
            return f"S15: without {taken.node} {len(voters)} of {MEMBERS} members are left"
        return ""

    @staticmethod
    def _claims(machine: RealMachine, real: RealMachine) -> bool:
        return bool(real.node and machine.named) and machine.says == real.identity and machine.named != real.node


def played(seed: int) -> tuple[str, int]:
    """What went wrong with a fleet, and how many were admitted."""
    fleet = Fleet(Random(seed))
    moves = [fleet.sicken, fleet.sicken, fleet.sicken, fleet.lose_node, fleet.take_name, fleet.clone, fleet.claim, fleet.forget]
    for _ in range(fleet.chance.randint(1, MOST_MOVES)):
        move = fleet.chance.choice(moves)
        move()
        fleet.done.append(move.__name__)
    report = report_of(fleet.ledger(), NOW)
    admitted = admit(report, (), cap=99, now=NOW).admitted
    return next((f"fleet {seed}: {wrong} after {fleet.done}" for each in admitted if (wrong := fleet.judge(each))), ""), len(
        admitted
    )


def test_no_move_of_names_and_identities_has_a_wrong_machine_taken_or_a_quorum_lost() -> None:
    """S9, S15, S39."""
    wrong, taken = zip(*(played(seed) for seed in range(FIRST_SEED, FIRST_SEED + WORLDS)), strict=True)
    assert [each for each in wrong if each] == []
    assert sum(taken) >= WORLDS // 4, "else nothing is tried"
