"""What workers ask for before they believe a request: that a cluster worker of this deployment has signed it (S42).

A caller that can schedule activities can ask a power worker for anything, with a device of its own. So a device carries a seal
from the moment at which it was resolved from the fence configuration; without it no credential is read and nothing is connected
to. A command carries a licence besides: of a last look that said go, for one act on the target that was looked at, in that run
of a workflow, by the moment at which its look is old (S20, S45), and once for each device. Which security groups a machine gets
back is sealed by the worker that took them away. A person's command bears a seal of the cluster worker that has verified it, for
looks and consequences on any of them. What is signed are facts that both sides know; the look is
`activities/cluster/live/last_look.py`, the commands are `activities/power/service.py`. The other way round a cluster worker frees
nothing on a reading that no power worker of this deployment has taken lately: what an activity is given is what its caller says.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn, TypeVar

from temporalio import activity

from activities.contracts import metrics
from activities.contracts.power import DeviceCommand
from activities.contracts.preservation import GiveUpRequest, HoldRequest
from activities.contracts.target import ActResult, LicenceWanted, Target
from activities.errors import ErrorType, failure
from activities.keyring import Keyring
from activities.worker_clock import left_to_others, worker
from policy.checks.verdict import MACHINE
from policy.episode.messages import Kind, Pinned, Reading, VolumeReading
from policy.episode.node_action import CIRCUIT_BREAKER, OVERRIDES, SealedCommand, Verb
from policy.fence.config import LONGEST_ACT
from policy.fence.credential_hosts import compared
from policy.fence.kdump import KdumpReading, KernelDead
from policy.fence.plan import SEALED_FOR, FencingPlan, PowerDevice
from policy.fence.power import OF_PATHS, OF_POWER, PowerAct, Quarantine
from policy.objects.marks import Added
from policy.objects.nodes import NodeView
from policy.preservation.machine_snapshot import Held
from policy.values.times import format_duration, written

READ_LATELY = LONGEST_ACT + timedelta(seconds=15)
"""So long ago, a device has said what something is freed by: it is read right before, others may take LONGEST_ACT to answer, and
clocks differ. The story's own window is shorter (`PowerSequence.licensed_until`)."""

SHORT = 24
"""Digits of a code that is made again for each reading and good for READ_LATELY: it is in every history."""

LONGEST = timedelta(seconds=30)
"""From the look to the end of its licence: an act's window, and what clocks may differ by."""

OFF_FOR = timedelta(days=1)
"""So long a person's word that a machine is off is believed; after that it is asked for anew."""

HOW_TO = "give all workers of a deployment the same worker.signing_keys_secret or signing_keys_file"


FIRST_RUN = ContextVar("first_run", default="")
"""Of the workflow that asks for the activity under way, where a person's word is sealed or read: the run that its chain of
continue-as-new began with, as Temporal names it (`workers/interceptors/activity_guards.py`)."""

Read = TypeVar("Read", Reading, VolumeReading)


Levels = tuple[tuple[str, ...], ...]
"""Of a device: see `PowerDevice.levels`."""


@dataclass(frozen=True, slots=True)
class _Use:
    nonce: str
    endpoint: str


_User = tuple[str, datetime]


class Licences:
    """Signs on cluster workers, checks on power workers."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self.is_key = keyring.is_in
        """Whether a text holds what this deployment signs with."""
        self._used: dict[_Use, tuple[_User, datetime]] = {}

    def identity_of(self, cluster: str, *facts: object) -> str:
        """What only workers of this deployment can call these facts: an Event of that name is one of theirs (S36)."""
        return self._keyring.sign("identity", cluster, *facts)

    def sealed(self, cluster: str, node: str, plan: FencingPlan, hosts: Mapping[str, Collection[str]] = {}) -> FencingPlan:
        """The plan with a seal on each of its devices. node: a look at another one licenses nothing of them.
        hosts: where each credential has gone so far."""
        return plan.with_levels.with_devices(lambda device: self.sealed_device(cluster, node, compared(device, hosts)))

    def sealed_device(self, cluster: str, node: str, device: PowerDevice) -> PowerDevice:
        unsealed = replace(device, seal="") if device.seal else device
        return replace(device, seal=self._stamp(datetime.now(UTC), "device", cluster, node, unsealed))

    def require_seal(self, cluster: str, node: str, device: PowerDevice) -> None:
        """Raises InvalidConfig for a device that no cluster worker of ours has resolved for that node, or long ago."""
        facts = cluster, node, replace(device, seal="")
        if not self._accepts_stamp(device.seal, datetime.now(UTC), "device", *facts, within=SEALED_FOR):
            why = f"no worker of this deployment has signed it in the last {SEALED_FOR.days} days ({HOW_TO})"
            self._refuse("device", ErrorType.INVALID_CONFIG, device.endpoint, why)

    def sealed_quarantine(self, target: Target, endpoint: str, found: Quarantine) -> Quarantine:
        return replace(found, seal=self._keyring.sign("quarantine", *_found(target, endpoint, found)))

    def require_quarantine(self, target: Target, endpoint: str, quarantine: Quarantine) -> None:
        """Raises InvalidConfig for groups that no quarantine of that incident has found."""
        if not self._keyring.accepts(quarantine.seal, "quarantine", *_found(target, endpoint, quarantine)):
            why = f"no quarantine of incident {target.incident} has found these security groups ({HOW_TO})"
            self._refuse("quarantine", ErrorType.INVALID_CONFIG, endpoint, why)

    def sealed_reading(self, target: Target, reading: Read, now: datetime, levels: Levels = ()) -> Read:
        """What was just read for that incident, with its seal. levels: of the device, since a reading answers for these (S4,
        S49)."""
        return replace(reading, seal=self._stamp(now, "reading", *_read(target, reading, levels)))

    def has_read(self, target: Target, reading: Reading | VolumeReading, now: datetime, levels: Levels = ()) -> bool:
        """Whether a power worker of ours has read that lately, for that incident, of a device of just these levels."""
        return self._accepts_stamp(reading.seal, now, "reading", *_read(target, reading, levels))

    def sealed_added(self, target: Target, added: Added) -> Added:
        """What our mark on the node tells of, as that episode's own."""
        now = datetime.now(UTC)
        flags = {"cordoned": added.cordoned, "out_of_service": added.out_of_service}
        items = (*(flag for flag, is_set in flags.items() if is_set), *added.taints)
        return replace(added, seals={item: self._stamp(now, "added", *_episode(target), item) for item in items})

    def sealed_result(self, target: Target, result: ActResult) -> ActResult:
        """What an act answers, with what our mark tells of by now known again as ours."""
        return result if result.added is None else replace(result, added=self.sealed_added(target, result.added))

    def believed(self, target: Target, added: Added) -> Added:
        """Of what a request says that its episode has added, what was sealed for it: nothing else is ours to take away (S49)."""
        now, episode = datetime.now(UTC), _episode(target)

        def ours(item: str) -> bool:
            return self._accepts_stamp(added.seals.get(item, ""), now, "added", *episode, item, within=SEALED_FOR)

        return replace(
            added,
            cordoned=added.cordoned and ours("cordoned"),
            taints=tuple(filter(ours, added.taints)),
            out_of_service=added.out_of_service and ours("out_of_service"),
        )

    def sealed_dump(self, reading: KdumpReading) -> KdumpReading:
        """What a listener has heard, with the seal of its last message."""
        return replace(reading, seal=self._stamp(reading.last, "kdump", reading.address)) if reading.last is not None else reading

    def vouches_for(self, proof: KernelDead, now: datetime) -> bool:
        """Whether a listener of ours has heard that lately."""
        return self._accepts_stamp(proof.seal, now, "kdump", proof.address)

    def _stamp(self, at: datetime, purpose: str, *facts: object) -> str:
        moment = f"{int(at.timestamp()):x}"
        return f"{moment}.{self._keyring.sign(purpose, moment, *facts)[:SHORT]}"

    def _accepts_stamp(self, stamp: str, now: datetime, purpose: str, *facts: object, within: timedelta = READ_LATELY) -> bool:
        moment, _, code = stamp.partition(".")
        if not self._keyring.accepts(code, purpose, moment, *facts, digits=SHORT):
            return False
        return now - datetime.fromtimestamp(int(moment, 16), UTC) <= within

    def seal_command(self, cluster: str, incident: str, command: SealedCommand) -> SealedCommand:
        """A person's word, with its seal: it was said to that incident, of the workflow that asks, and counts in no later
        workflow of its id."""
        return replace(command, seal=self._stamp(datetime.now(UTC), "command", *_command(cluster, incident, command)))

    def said_at(self, command: SealedCommand) -> datetime:
        """When a worker has verified it, by a seal that `seal_problem` accepts."""
        return datetime.fromtimestamp(int(command.seal.partition(".")[0], 16), UTC)

    def overridden(self, target: Target, node: NodeView | None) -> str:
        """`CIRCUIT_BREAKER` where a person overrides it for that episode, as a worker of ours has verified; else "" (S17). node:
        as in `command_problem`."""
        doubt = self.command_problem(target, node, target.override, *OVERRIDES[CIRCUIT_BREAKER])
        said = target.override.spec.override if target.override is not None and not doubt else ""
        return CIRCUIT_BREAKER if CIRCUIT_BREAKER in said else ""

    def command_problem(self, target: Target, node: NodeView | None, command: SealedCommand | None, *verbs: Verb) -> str:
        """Why that is no word of a person to that incident about the machine that is there now, "" where it is. verbs: what it
        has to say. node: the target's, as it was just read; None where it is gone."""
        outlived = command.outlived_by(node, target.incident) if command is not None else ""
        return self.seal_problem(target, command, *verbs) or outlived

    def seal_problem(self, target: Target, command: SealedCommand | None, *verbs: Verb) -> str:
        """The same without the machine, for a caller that asks that by itself. A caller that answers in a cluster worker's place
        may say anything, and signs nothing."""
        said = " or ".join(verb.value for verb in verbs)
        if command is None:
            return f"no NodeAction attests that a person has said {said} (worker.commands)"
        within = OFF_FOR if verbs == (Verb.ACK_OFF,) else SEALED_FOR
        facts = _command(target.cluster, target.incident, command)
        if not self._accepts_stamp(command.seal, datetime.now(UTC), "command", *facts, within=within):
            what = f"{command.speaker} has said {said} to incident {target.incident} in the last {format_duration(within)}"
            again = "said to an older build, or changed since? Then say it again"
            return f"no worker of this deployment has verified that {what}: {again}; otherwise {HOW_TO}"
        if command.spec.action not in verbs or command.spec.node != target.pinned.node:
            return f"{command.speaker} has said {command.spec.action.value} of {command.spec.node}, and not {said}"
        return ""

    def preservation_problem(
        self,
        request: HoldRequest | GiveUpRequest,
        node: NodeView | None,
        held: Held | None,
        word: SealedCommand | None,
        *verbs: Verb,
    ) -> str:
        """As `command_problem`, of a machine that is kept: a word to an earlier preservation, or to a fencing, says nothing of
        this one (S21, S49)."""
        pinned = Pinned(node=request.looked_at, uid="")
        target = Target(cluster=request.cluster, pinned=pinned, incident=request.incident, kind="", workflow_id="", run_id="")
        problem = self.command_problem(target, None if request.looked_at.startswith(MACHINE) else node, word, *verbs)
        if problem or word is None or held is None:
            return problem
        said = f"{word.speaker} has said {word.spec.action.value}"
        if word.spec.action is Verb.ABORT and word.kind != Kind.PRESERVATION.value:
            return f"{said} to another episode ({word.kind or 'not known'})"
        if isinstance(request, HoldRequest) and held.expiry is None:  # `since` would be that of a former one
            return f"{said} before its preservation began: say it again" if held.kept_by_person else ""
        if held.since is None or self.said_at(word) < held.since:
            began = f"began at {written(held.since)}" if held.since is not None else "says not when it began"
            return f"{said} before this preservation, which {began}: say it again"
        return ""

    def licence(self, target: Target, wanted: LicenceWanted, now: datetime) -> str:
        """For that act, by that moment, in the run that asks. Raises WrongClock where the moment is too far away by our clock, so
        that another worker looks."""
        if (ahead := wanted.not_after - now) > LONGEST:
            begins = format_duration(round(ahead / timedelta(seconds=1)) * timedelta(seconds=1))
            raise left_to_others(f"the clock of worker {worker()} is behind, {begins} before an act that is looked for")
        nonce = secrets.token_hex(8)
        return f"{nonce}.{self._keyring.sign('act', nonce, *_facts(target, wanted.act, wanted.not_after))}"

    def require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        """Raises NotLicensed for a command that no last look of ours has licensed, or for a device of another kind, or that was
        carried out before. The same activity may use it again: Temporal has lost the answer of the attempt before."""
        nonce, _, code = request.licence.partition(".")
        endpoint, until = request.device.endpoint, request.not_after
        what = f"{endpoint}: {act.value} for Node/{request.target.pinned.node}"
        if until is None or not self._keyring.accepts(code, "act", nonce, *_facts(request.target, act, until)):
            self._refuse("licence", ErrorType.NOT_LICENSED, what, "no last look of this deployment has licensed it")
        if kind := _another_kind(request.device, act):
            self._refuse("licence", ErrorType.NOT_LICENSED, what, kind)
        use, user = _Use(nonce, endpoint), _activity()
        if use in self._used and self._used[use][0] != user:
            self._refuse("used", ErrorType.NOT_LICENSED, what, "its licence was used before")
        now = datetime.now(UTC)
        for old in [each for each, (_, ended) in self._used.items() if ended + LONGEST < now]:
            del self._used[old]
        self._used[use] = (user, until)

    @staticmethod
    def _refuse(reason: str, kind: ErrorType, what: str, why: str) -> NoReturn:
        metrics.REFUSED_POWER_REQUESTS.add(activity.metric_meter(), reason=reason)
        activity.logger.warning("refused: %s: %s", what, why)
        raise failure(kind, f"{what}: {why}; nothing was sent")


def _facts(target: Target, act: PowerAct, not_after: datetime) -> tuple[object, ...]:
    """Of the target what does not change while it is in hand. The run is the one that Temporal names: no caller chooses it."""
    pinned, run = target.pinned, activity.info()
    machine = (pinned.uid, pinned.provider_id, pinned.system_uuid, pinned.instance_id)
    victim = (target.cluster, target.incident, pinned.node, *machine, pinned.endpoints)
    return *victim, act, not_after.astimezone(UTC), run.workflow_id, run.workflow_run_id


def _another_kind(device: PowerDevice, act: PowerAct) -> str:
    """Why that act is not for this device, "" where it is: which levels of power it is in is sealed with it (`require_seal`). To
    cut a path switches a port off; at the device that feeds the machine it would switch off that, also one that is kept (S21)."""
    if act in OF_POWER and not device.levels:
        return "it feeds no machine: it is the device of a path"
    return "it feeds a machine, and is no path" if act in OF_PATHS and device.levels else ""


def _episode(target: Target) -> tuple[object, ...]:
    return target.cluster, target.pinned.node, target.pinned.uid, target.incident, target.workflow_id


def _command(cluster: str, incident: str, command: SealedCommand) -> tuple[object, ...]:
    return cluster, incident, activity.info().workflow_id, FIRST_RUN.get(), replace(command, seal="")


def _found(target: Target, endpoint: str, quarantine: Quarantine) -> tuple[object, ...]:
    return target.cluster, target.incident, target.pinned.node, endpoint, quarantine.group, quarantine.former


def _read(target: Target, reading: Reading | VolumeReading, levels: Levels) -> tuple[object, ...]:
    what = reading.endpoint if isinstance(reading, Reading) else f"volume {reading.volume}"
    return target.cluster, target.pinned.node, target.incident, what, levels, reading.state


def _activity() -> _User:
    """All attempts at one activity have these in common, and no two activities have: the second one is Temporal's to say."""
    info = activity.info()
    return info.activity_id, info.scheduled_time
