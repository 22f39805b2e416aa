"""The small questions at the branches of a fencing: is it proven, does it still stand, how long to wait.

Each is a pure predicate or choice, so that the story in `workflows/fencing/story.py` has no second automaton behind it. What an
error is worth is `activities/errors.py`, whether it is still the right machine `policy/episode/identity.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from policy.episode.gate import Operation
from policy.episode.messages import Observation, OffProof, PathProof, Pinned, Reading, RestartProof
from policy.fence.plan import FencingPlan, Freeing, PowerDevice
from policy.fence.power import RESTORING, PowerAct, PowerState, VolumeState

CLOCK_TOLERANCE = timedelta(seconds=5)
"""Between the cluster's clock and ours; the API's moments are cut to whole seconds besides."""


def power_due(
    not_ready_since: datetime | None, plan: FencingPlan, now: datetime, *, started: datetime | None = None
) -> timedelta:
    """How long power-management still has to wait, 0 when it is due; it counts from the moment the node stopped being Ready.

    started: when the episode began. A node cannot have stopped being Ready after that (a clock ahead of ours says so at
    times), and where nobody knows since when, the wait counts from there. Without either there is nothing to count from.
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

    OFF must be the *latest* word of every device, read strictly after the last off command to any of them had ended
    (`command_ended`, by endpoint), with no power-on since. A device without a command or a reading, or one that says anything
    but off, leaves nothing proven.
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

    A person's acknowledgement stands for the readings (S8). Whoever acts on the proof also sees to it that the readings are fresh
    (S2), that there was no power-on since, and that the node shows no new boot id (S6).
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


def freeing_choice(plan: FencingPlan) -> Freeing:
    """How to free: what the plan says; `automatic` is the taint where the cluster acts on it, else deletion."""
    if plan.freeing is not Freeing.AUTOMATIC:
        return plan.freeing
    return Freeing.OUT_OF_SERVICE_TAINT if plan.taint_honoured else Freeing.DELETION


def paths_cut(proofs: Collection[PathProof], endpoints: Collection[str]) -> bool:
    """Whether there is a proof, and each shows what it should after its command had ended (S1, S3): every pinned path read as
    cut, or every volume as available."""
    return bool(proofs) and all(
        (proof.readings or proof.volumes)
        and all(reading.endpoint in endpoints and _reads_off_after(reading, proof.commanded_at) for reading in proof.readings)
        and all(each.state is VolumeState.AVAILABLE and each.at > proof.commanded_at for each in proof.volumes)
        for proof in proofs
    )


def may_switch_on(endpoint: str, *, switched_off: bool, configured: Collection[str] | None, insisted: bool) -> bool | None:
    """Whether a device may be told on (S9): one that is not configured for the node any more may feed another machine by now.
    None: that can't be told.

    switched_off: this episode has switched it off. It goes on again unless other devices are configured instead, and even then
    where a person insists: a configuration that is gone, or can't be read, strands no machine that we switched off. Of any other
    device, where a person's word says that the machine is off, it must be known that it is the node's. configured: the devices
    that are configured for the node now, None where that is not known.
    """
    if configured is not None and endpoint in configured:
        return True
    if switched_off:
        return insisted or not configured
    return None if configured is None else False


def was_open(before: PowerState | None) -> bool:
    """Whether a path is known to have been open when we cut it: its device said so right before (S3). before: None where nothing
    was told. What was cut before us may be what keeps a machine from volumes that others write to by now (S35)."""
    return before is PowerState.ON


def may_restore_path(*, consequences: bool, found_cut: bool, restart: RestartProof | None) -> bool:
    """Whether a path that is cut may be given back by itself: where it was open before us and nothing was freed, or after a
    restart. Otherwise a person must say so, of this path and after its consequences. found_cut: it may have been cut before us,
    and nobody knows by whom, or what was freed behind it."""
    return not (consequences or found_cut) or restart is not None


def restart_proven(
    pinned: Pinned,
    observation: Observation,
    powered_on_at: datetime | None,
    *,
    boot_ids_before: Collection[str] = (),
) -> RestartProof | None:
    """The proof of a restart: a boot id first seen after our power-on, other than the pinned one.

    boot_ids_before: those the node showed before the power-on (it may have booted once more before we switched it off); none of
    them counts. A node that has been Ready since before the power-on shows a boot that we only had not seen. Where the pinned
    boot id is not known, any could be the old one: nothing is proven.
    """
    if powered_on_at is None or not observation.present or not observation.boot_id or not pinned.boot_id:
        return None
    if observation.boot_id == pinned.boot_id or observation.boot_id in boot_ids_before:
        return None
    ready_since = observation.ready_since if observation.ready else None
    if ready_since is not None and ready_since <= powered_on_at - CLOCK_TOLERANCE:
        return None
    seen_at = max(powered_on_at, observation.ready_since or powered_on_at)
    return RestartProof(boot_id=observation.boot_id, previous_boot_id=pinned.boot_id, seen_at=seen_at)


def _reads_off_after(reading: Reading, moment: datetime) -> bool:
    return reading.state is PowerState.OFF and reading.at > moment


# Which power act a last look that says go may license (S42): what it has looked at must be what the act takes.
#
# The look is `activities/cluster/live/last_look.py`, the signature `activities/licences.py`; why a look says no is `gate.py`.


def licenses(looked: Operation, act: PowerAct, pinned: Pinned, seen: Observation, *, devices_compared: bool) -> bool:
    """looked: what the look was made for. devices_compared: those that are configured now with those that were pinned.

    A look before a removal licenses none: its control plane goes on with a member fewer to count, and one whose machine is
    switched off or given up with as many as before (S15).
    """
    if act in RESTORING:
        return looked is Operation.GIVE_BACK
    return looked is Operation.DISRUPT and devices_compared and not _is_blank(pinned, seen, act)


def _is_blank(pinned: Pinned, seen: Observation, act: PowerAct) -> bool:
    """Whether the pin leaves open whom it is about, by which a device's word and other Nodes' claims are compared (S9, S39). Only
    what is given up last may have lost its Node by then."""
    if not seen.present:
        return act is not PowerAct.TERMINATE or not pinned.uid
    open_ends = (seen.provider_id and not pinned.provider_id) or (seen.system_uuid and not pinned.system_uuid)
    return seen.uid != pinned.uid or bool(open_ends)
