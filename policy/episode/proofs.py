"""The proofs of a fencing, and the predicates at its branches: is it off, cut or restarted, does the proof still stand, is it the
same machine, and how long to wait.

Each is a pure predicate or choice, so that the story in `workflows/fencing/story.py` has no second automaton behind it.
`activities/errors.py` says which errors are final.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from policy.episode.gate import Operation
from policy.episode.messages import OffProof, PathProof, Pinned, Reading, RecordEntry, RestartProof, SeenNode
from policy.fence.plan import Act, FencingPlan, Freeing, PowerDevice
from policy.fence.power import OF_POWER, RESTORING, PowerAct, PowerState, VolumeState
from policy.objects.nodes import READY, NodeView
from policy.values.times import written

OFF_PROVEN = "off-proven"
"""The act of an entry of the record that proves off, or has it on a person's word."""
CLOCK_TOLERANCE = timedelta(seconds=5)
"""Allowed between the cluster's clock and ours; the API also cuts moments to whole seconds."""


def power_due(
    not_ready_since: datetime | None, plan: FencingPlan, now: datetime, *, started: datetime | None = None
) -> timedelta:
    """How long power-management still has to wait, 0 when it is due; it counts from the moment the node stopped being Ready.

    started: when the episode began. A node cannot have stopped being Ready later (a clock ahead of ours may say so), so the wait
    counts from `started` at the latest, also if the moment of NotReady is not known. Without either nothing is waited for.
    """
    known = [moment for moment in (not_ready_since, started) if moment is not None]
    if not known:
        return timedelta(0)
    return max(min(known) + plan.wait_before_power - now, timedelta(0))


def off_proven(
    devices: Collection[PowerDevice],
    command_ended: Mapping[str, datetime],
    readings: Iterable[Reading],
    power_on_since: datetime | None,
) -> OffProof | None:
    """The proof of off by the devices of one level, None while there is none (S2-S5).

    OFF must be the *latest* reading of every device, read strictly after the last off command to any of them had ended
    (`command_ended`, by endpoint), with no power-on since. If a device has no command or no reading, or reads anything but off,
    nothing is proven.
    """
    endpoints = [device.endpoint for device in devices]
    if not endpoints or any(endpoint not in command_ended for endpoint in endpoints):
        return None
    commanded_at = max(command_ended[endpoint] for endpoint in endpoints)
    if power_on_since is not None and power_on_since >= min(command_ended[endpoint] for endpoint in endpoints):
        return None
    latest: dict[str, Reading] = {}
    for reading in readings:
        known = latest.get(reading.endpoint)
        if known is None or (reading.at, reading.state is not PowerState.OFF) >= (known.at, known.state is not PowerState.OFF):
            latest[reading.endpoint] = reading
    chosen = tuple(latest[endpoint] for endpoint in endpoints if endpoint in latest)
    if len(chosen) < len(endpoints) or not all(_reads_off_after(reading, commanded_at) for reading in chosen):
        return None
    return OffProof(commanded_at=commanded_at, readings=chosen)


def level_proven(
    levels: Iterable[tuple[PowerDevice, ...]],
    command_ended: Mapping[str, datetime],
    readings: Collection[Reading],
    power_on_since: datetime | None,
) -> OffProof | None:
    """The proof by the first level that gives one (Pacemaker's topology). A device of another level that says on contradicts it:
    the machine has power from somewhere."""
    proofs = (off_proven(level, command_ended, readings, power_on_since) for level in levels)
    proof = next((each for each in proofs if each is not None), None)
    return None if proof is None or any(reading.state is PowerState.ON for reading in readings) else proof


def proof_stands(proof: OffProof | None, levels: Collection[Collection[str]]) -> bool:
    """Whether a proof is whole: for every endpoint of a pinned level (S1, S4).

    A person's acknowledgement replaces the readings (S8). A caller that acts on the proof also checks that the readings are
    fresh (S2), that there was no power-on since, and that the node shows no new boot id (S6).
    """
    if proof is None:
        return False
    acknowledged = proof.acknowledgement
    if acknowledged is not None:
        return bool(acknowledged.who.strip() and acknowledged.why.strip())
    read = {reading.endpoint for reading in proof.readings}
    if proof.commanded_at is None or not read or not any(read == set(level) for level in levels):
        return False
    return all(_reads_off_after(reading, proof.commanded_at) for reading in proof.readings)


def proof_in_words(proof: OffProof | None, record: Sequence[RecordEntry]) -> str:
    """On what it rests that the machine was off. The proof has the last readings, the record of its episode the first ones."""
    if proof is None:
        return "Off was not proven."
    if (by_person := proof.acknowledgement) is not None:
        return f"Off on a person's word: {by_person.by} at {written(by_person.at)}: {by_person.why}"
    after = f", after the off command of {written(proof.commanded_at)} had ended" if proof.commanded_at is not None else ""
    readings = ", ".join(f"{each.endpoint}, read {each.state.value} at {written(each.at)}" for each in proof.readings)
    first = next((each.detail for each in reversed(record) if each.act == OFF_PROVEN), "")
    again = bool(first) and not all(written(each.at) in first for each in proof.readings)
    why = ". That is the last reading: each consequence had one of its own right before it, later than the first proof above"
    return f"Off was proven by {readings}{after}{why if again else ''}."


def freeing_choice(plan: FencingPlan) -> Freeing:
    """How to free: as the plan says; `automatic` is the taint if the cluster acts on it, else deletion."""
    if plan.freeing is not Freeing.AUTOMATIC:
        return plan.freeing
    return Freeing.OUT_OF_SERVICE_TAINT if plan.taint_honoured else Freeing.DELETION


def paths_cut(proofs: Collection[PathProof], endpoints: Collection[str]) -> bool:
    """Whether there is a proof, and each is whole (S1, S3): after its command had ended, every pinned path read as cut, or every
    volume as available."""
    return bool(proofs) and all(
        (proof.readings or proof.volumes)
        and all(reading.endpoint in endpoints and _reads_off_after(reading, proof.commanded_at) for reading in proof.readings)
        and all(each.state is VolumeState.AVAILABLE and each.at > proof.commanded_at for each in proof.volumes)
        for proof in proofs
    )


TRACED_SOURCES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}
)
"""Volume sources of the pod's own, or that are traced through their claim. Any other is a path not cut; a hostPath may be
a shared mount."""


def writes_only_behind_cut(volumes: Collection[str | None], sources: Iterable[str], cut: Collection[str]) -> bool:
    """Whether a pod uses volumes behind a cut path, and nothing else to which it could write from its machine, which runs (S1).
    A pod with one volume elsewhere, with a claim that can't be traced, or with storage named in its own spec could.

    volumes: the PersistentVolumes of its claims, "" for a claim that is bound to none, None for one that is gone. sources: the
    kinds of volume in its spec. cut: the PersistentVolumes behind the cut.
    """
    return bool(volumes) and all(each in cut for each in volumes) and set(sources) <= TRACED_SOURCES


def may_switch_on(endpoint: str, *, switched_off: bool, configured: Collection[str] | None, insisted: bool) -> bool | None:
    """Whether a device may be commanded on (S9): one that is not configured for the node any more may feed another machine by
    now. None: not known.

    switched_off: this episode has switched it off. Then it is switched on again unless other devices are configured instead, and
    even then if a person insists: a configuration that is gone, or can't be read, leaves no machine off that we switched off. If
    instead a person said that the machine is off, the device must be known to be the node's. configured: the devices that are
    configured for the node now, None if that is not known.
    """
    if configured is not None and endpoint in configured:
        return True
    if switched_off:
        return insisted or not configured
    return None if configured is None else False


def was_open(before: PowerState | None) -> bool:
    """Whether a path is known to have been open when we cut it: its device read so right before (S3). before: None without a
    reading. A path that was cut before us may keep a machine from volumes that others write to by now (S35)."""
    return before is PowerState.ON


def may_restore_path(*, consequences: bool, found_cut: bool, restart: RestartProof | None) -> bool:
    """Whether a cut path may be given back without a person: if it was open before us and nothing was freed, or after a restart.
    Otherwise a person must say so, for this path and after its consequences. found_cut: it may have been cut before us, and it
    is not known what cut it, or what was freed behind it."""
    return not (consequences or found_cut) or restart is not None


def restart_proven(
    pinned: Pinned,
    seen: SeenNode,
    powered_on_at: datetime | None,
    *,
    boot_ids_before: Collection[str] = (),
) -> RestartProof | None:
    """The proof of a restart: a boot id first seen after our power-on, other than the pinned one.

    boot_ids_before: those the node showed before the power-on (it may have booted once more before we switched it off); none of
    them counts. A node that has been Ready since before the power-on shows an older boot that we had not seen yet. If the pinned
    boot id is not known, any could be the old one: nothing is proven.
    """
    if powered_on_at is None or not seen.present or not seen.boot_id or not pinned.boot_id:
        return None
    if seen.boot_id == pinned.boot_id or seen.boot_id in boot_ids_before:
        return None
    ready_since = seen.ready_since if seen.ready else None
    if ready_since is not None and ready_since <= powered_on_at - CLOCK_TOLERANCE:
        return None
    seen_at = max(powered_on_at, seen.ready_since or powered_on_at)
    return RestartProof(boot_id=seen.boot_id, previous_boot_id=pinned.boot_id, seen_at=seen_at)


def ran_since(node: NodeView | None, moment: datetime) -> str:
    """Why a word for off of that moment is not believed, "" where it is: the node's kubelet reports, be it that it is Ready or
    that it is not (S8). The Unknown of a silent node is written by its controller, and says nothing of that."""
    ready = node.condition(READY) if node is not None else None
    if node is None or ready is None or not node.reports:
        return ""
    later = ready.since is not None and ready.since > moment + CLOCK_TOLERANCE
    reported = f"Node/{node.name} has reported Ready={ready.status} at {written(ready.since) if ready.since else 'no known time'}"
    why = "after it was said to be off" if later else "and it is not off while it says so"
    return f"{reported}, {why}: look at it, and say it again once it is off and silent (Ready=Unknown, a minute later)"


def _reads_off_after(reading: Reading, moment: datetime) -> bool:
    return reading.state is PowerState.OFF and reading.at > moment


# Which power act a last look that says go may license (S42): the look must have checked what the act needs.
#
# The look is `activities/cluster/live/last_look.py`, the signature `activities/licences.py`; why a look says no is `gate.py`.


def licenses(
    looked: Operation, act: PowerAct, pinned: Pinned, seen: SeenNode, *, devices_compared: bool, preserving: bool = False
) -> bool:
    """looked: the operation of the look. devices_compared: the devices configured now were compared with the pinned ones.
    preserving: a preservation asks, to which the machine's power is no business (S21).

    A look before a removal licenses no power act: it counts a control plane that loses a member, and after a power-off the
    control plane has as many members as before, one of them down (S15).
    """
    if preserving and act in OF_POWER:
        return False
    if act in RESTORING:
        return looked is Operation.GIVE_BACK
    return looked is Operation.DISRUPT and devices_compared and not _is_blank(pinned, seen, act)


_CUTS = {PowerAct.CUT_PATH: Act.CUT_PATH, PowerAct.QUARANTINE: Act.QUARANTINE, PowerAct.DETACH_VOLUME: Act.DETACH_VOLUMES}


def lists(plan: FencingPlan, act: PowerAct) -> bool:
    """Whether a destructive act is one of that plan: it says what may be done to the node, and not which devices alone."""
    if act is PowerAct.TERMINATE:
        return plan.terminate_instance
    return bool(plan.levels) if act is PowerAct.OFF else any(each.act is _CUTS.get(act) for each in plan.isolation)


def _is_blank(pinned: Pinned, seen: SeenNode, act: PowerAct) -> bool:
    """Whether the pin has no identity to compare with a device's identity and other Nodes' claims (S9, S39). Only the last act,
    termination, may come after its Node is gone."""
    if not seen.present:
        return act is not PowerAct.TERMINATE or not pinned.uid
    open_ends = (seen.provider_id and not pinned.provider_id) or (seen.system_uuid and not pinned.system_uuid)
    return seen.uid != pinned.uid or bool(open_ends)


# Whether a node is still the machine that an episode has pinned (S9).
#
# `activities/cluster/` pins; the workflows decide what follows from a difference (`TargetChanged`, `replaced`).


def same_machine(pinned: Pinned, seen: NodeView | SeenNode) -> bool:
    """Whether a Node object, perhaps a new one, stands for the pinned machine.

    The same providerID and system UUID are the same machine, with any uid of the object. Fields that one side does not know are
    not compared; if none can be compared, only the same object is the same machine.
    """
    pairs = (
        (pinned.provider_id, seen.provider_id),
        (pinned.system_uuid.casefold(), seen.system_uuid.casefold()),
    )
    known = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
    if not known:
        return bool(pinned.uid) and pinned.uid == seen.uid
    return all(ours == theirs for ours, theirs in known)


def compare_identity(
    pinned: Pinned,
    seen: SeenNode,
    *,
    destructive: bool,
    endpoints: Collection[str] | None = None,
    levels: Collection[Collection[str]] | None = None,
    machine_uids: Collection[str] | None = None,
) -> str:
    """The field that differs from the pinned target, with both values; "" if none does.

    Before a destructive act: uid, providerID and system UUID; a pinned value that has vanished is a difference. Before a
    restoring act only the providerID, if the node has one, so that no machine stays off because its Node object was deleted or
    re-created meanwhile. endpoints: those that the configuration gives now; levels: the endpoints that prove off by their OFF,
    level by level (S4), in any order; machine_uids: those of the Machines that belong to the Node now. Each is compared if it is
    known. A value that was empty when it was pinned is never compared: a later value neither confirms nor denies it.
    """
    if endpoints is not None and set(endpoints) != set(pinned.endpoints):
        return f"fence endpoints: pinned {_listed(pinned.endpoints)}, now {_listed(endpoints)}"
    if levels is not None and pinned.levels and {*map(frozenset, levels)} != {*map(frozenset, pinned.levels)}:
        return f"power levels: pinned {_each(pinned.levels)}, now {_each(levels)}"
    if not seen.present:
        return f"the Node object is gone: pinned uid {pinned.uid}" if destructive and pinned.uid else ""
    if not destructive:
        vanished = not seen.provider_id
        return "" if vanished else _difference("providerID", pinned.provider_id, seen.provider_id)
    if machine_uids is not None and (gone := set(pinned.machine_uids) - set(machine_uids)):
        return f"Machine uid: pinned {_listed(gone)}, now {_listed(machine_uids)}"
    return (
        _difference("uid", pinned.uid, seen.uid)
        or _difference("providerID", pinned.provider_id, seen.provider_id)
        or _difference("systemUUID", pinned.system_uuid.casefold(), seen.system_uuid.casefold())
    )


def _difference(field: str, pinned: str, now: str) -> str:
    return "" if not pinned or pinned == now else f"{field}: pinned {pinned}, now {now or 'none'}"


def _each(levels: Collection[Collection[str]]) -> str:
    return "; ".join(" and ".join(level) for level in levels) or "none"


def _listed(endpoints: Collection[str]) -> str:
    return ", ".join(sorted(endpoints)) or "none"
