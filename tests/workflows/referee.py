"""The rules, held against the truth in the instant in which something is done.

A referee knows what the machine is, what it has told (only that may be in a proof), what it was commanded, and what people have
said. It takes nobody's word for anything: neither a proof's own nor that of the predicates of `policy`. What it finds is kept in
`broken`, each line with the number of its rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from policy.episode.messages import OffProof, Reading, VolumeReading
from policy.fence.plan import Act, FencingPlan, PowerDevice
from policy.fence.power import PowerState, VolumeState
from tests.workflows.attempts import START, Attempt
from tests.workflows.contract import FreeCutRequest, FreeDumpingRequest, FreeRequest, Target
from tests.workflows.executions import Word
from tests.workflows.machine import ANOTHER, Machine

WINDOW, SPREAD = timedelta(seconds=15), timedelta(seconds=4)
"""How old what a consequence was decided on may be by the end of its time; by devices that take longer than that, as long as they
may, and what clocks and ways may add."""
FRESH = timedelta(seconds=60)
"""The same of what is behind paths that are cut, which are read one after the other."""
DEAD = timedelta(seconds=20)
"""How old a message of a dying kernel may be by then: no machine ends its dump and boots in that time."""
LOOKED = timedelta(seconds=75)
"""How long ago the last look may have been: its answer, a lost workflow task, the wait of the act in its queue."""
HEARD = timedelta(seconds=50)
"""So long before an act whoever objects has spoken early enough: the last look's answer, a lost workflow task, the window of the
act."""
EXPOSED = timedelta(seconds=90)
"""How long our taint may stand on a machine that somebody else has switched on, before we have noticed and taken it away."""


@dataclass(slots=True, kw_only=True)
class Command:
    """One command to one device. until: when it can have no effect any more."""

    endpoint: str
    state: PowerState
    decided: datetime
    began: datetime
    until: datetime
    incident: str
    unclear: bool = False
    """Its answer was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A person's word to the episode, with what becomes of it; also that it was reset, and when."""

    what: str
    word: Word
    power_on: bool = False


AGAIN = frozenset({"resume", "acknowledge-off", "reset"})
"""By which a person has it do again what it had done."""
State = TypeVar("State")


LONGEST_REPLY = timedelta(seconds=20)
"""So long what an activity answers may be under way, a workflow task whose worker has died included (`executions.py`)."""


def _answer(told: Mapping[datetime, State], asked: datetime) -> State | None:
    """What was answered to the question of that moment: by the episode's count, which may be some microseconds off."""
    return next((told[each] for each in sorted(told) if each >= asked - timedelta(milliseconds=1)), None)


@dataclass
class Referee:
    """What is known of one machine's episodes, and what was wrong with them."""

    machine: Machine
    plan: FencingPlan
    broken: list[str] = field(default_factory=list)
    told: dict[str, dict[datetime, PowerState]] = field(default_factory=dict)
    """What each device has answered, by when it was asked."""
    told_volumes: dict[str, dict[datetime, VolumeState]] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    asked: dict[str, datetime] = field(default_factory=dict)
    """When each device was last asked for its state, whatever it has answered."""
    unaware: set[str] = field(default_factory=set)
    """Episodes whose mark somebody had taken away before the next one began: it can't know what they had begun."""
    detached: dict[str, datetime] = field(default_factory=dict)
    """Until when the latest command to detach a volume may have an effect."""
    said: list[Said] = field(default_factory=list)
    permit: bool = True
    looked: datetime | None = None
    """When a last look said go, as long as nothing else was done upon it."""
    need_gone: bool = False
    """What the latest look that asked for it said of the need."""
    freed: bool = False
    freed_boot: int = 0
    """Which boot was the latest when pods were freed last."""
    word: bool = False
    """Somebody has said that the machine is off."""
    path_command: bool = False
    """Somebody has said that paths may be given back."""
    said_at_word: dict[str, PowerState] = field(default_factory=dict)
    contradicted: bool = False
    tried_by: str = ""
    """Which episode has last asked for a consequence."""
    all_freed_by: str = ""
    """Which episode has last freed all that ran there, or as much as would go."""
    on_word: bool = False
    """Whether its proof was a person's word."""
    asked_need: datetime | None = None
    """When a look last asked whether the need is gone."""
    climbs: bool = False
    """Several steps of a ladder may switch it off, one after the other."""
    off_by: str = ""
    """Which episode has last commanded off."""
    disowned: dict[str, datetime] = field(default_factory=dict)
    """Devices that the configuration does not name any more, and since when."""
    looked_last: datetime | None = None
    """When a look was last answered."""
    rival: tuple[datetime, datetime] | None = None
    """From when until when another deployment fences the node."""
    looked_before_restoring: datetime | None = None
    """When a look was last answered that asked only for the machine."""
    warned: bool = False
    """People were told that workloads are left."""

    def fault(self, rule: str, what: str) -> None:
        """A rule is broken."""
        self.broken.append(f"{rule}: {what}")

    # What is heard --------------------------------------------------------------------------------------------------

    read_back: dict[str, dict[datetime, PowerState]] = field(default_factory=dict)

    def tells(self, reading: Reading, asked: datetime) -> None:
        """A device has answered."""
        self.told.setdefault(reading.endpoint, {})[asked] = reading.state
        if self.word and reading.state is PowerState.ON and self.said_at_word.get(reading.endpoint) is not PowerState.ON:
            self.contradicted = True

    def reads_back(self, reading: Reading, asked: datetime) -> None:
        """A device has answered within the activity that commanded it, once that command had ended."""
        self.tells(reading, asked)
        self.read_back.setdefault(reading.endpoint, {})[asked] = reading.state

    def answered(self, reading: Reading) -> PowerState | None:
        """What its device really said to the question of that reading. One that was read back is told of with its command, which
        takes a moment."""
        told = self.told.get(reading.endpoint, {})
        if any(abs(at - reading.at) <= timedelta(milliseconds=1) for at in told):
            return _answer(told, reading.at)
        since = reading.at - LONGEST_REPLY
        back = [state for at, state in sorted(self.read_back.get(reading.endpoint, {}).items()) if since <= at <= reading.at]
        if back:
            return back[-1]
        return _answer(told, reading.at)

    def has_said_off(self, endpoint: str) -> bool:
        """Whether a device has said off, and nothing else, since it was last commanded."""
        sent = max((each.began for each in self.commands if each.endpoint == endpoint), default=None)
        heard = [state for at, state in self.told.get(endpoint, {}).items() if sent is not None and at >= sent]
        return bool(heard) and set(heard) == {PowerState.OFF}

    def tells_of_volume(self, reading: VolumeReading, asked: datetime) -> None:
        """A cloud has answered."""
        self.told_volumes.setdefault(reading.volume, {})[asked] = reading.state

    def hears_word(self) -> None:
        """A person vouches for the machine."""
        self.word, self.contradicted = True, False
        latest = {endpoint: answers[max(answers)] for endpoint, answers in self.told.items() if answers}
        self.said_at_word = latest

    def begins_anew(self) -> None:
        """Another episode of the same machine: a licence is not inherited, nor is a word."""
        self.looked, self.permit, self.word, self.need_gone, self.path_command = None, True, False, False, False
        self.said.clear()

    def is_reset(self, now: datetime, since: datetime) -> None:
        """What was said since is not said any more, unless it is said again."""
        for each in self.said:
            if each.word.taken is not None and each.word.taken >= since:
                each.word.taken, each.word.done = None, False
        self.said.append(Said(what="reset", word=Word(taken=now)))
        self.all_freed_by = ""  # for all that it knows by now
        for command in self.commands:
            command.unclear = False  # a history that was reset does not say that it was asked for: it is waited out (S34)

    # Destructive acts -----------------------------------------------------------------------------------------------

    def heeds(self, name: str, now: datetime, objections: dict[str, datetime], *, rule: str = "S20") -> None:
        """S20, S21: what has been said long enough before an act for its last look to have seen it is obeyed, wherever that look
        is taken."""
        for what, since in objections.items():
            if now - since > HEARD:
                self.fault(rule, f"{name} although {what}, for {now - since} already")

    def destructive(self, name: str, attempt: Attempt) -> None:
        """S9, S14, S20: right after a last look that said go, on the machine that was pinned, with leave, and unless somebody has
        said no meanwhile. A repetition of the same decision needs no look of its own."""
        if attempt.repeats:
            return
        if self.looked is None:
            self.fault("S20", f"{name} without a last look before it")
        elif attempt.now - self.looked > LOOKED:
            self.fault("S20", f"{name} on a look of {attempt.now - self.looked} ago")
        self.looked = None
        if not self.permit:
            self.fault("S14", f"{name} without a permit")
        self.require_no_objection(name, attempt)

    def require_no_objection(self, name: str, attempt: Attempt) -> None:
        """S20: neither by a hold nor by an abort, when the act was decided."""
        if attempt.repeats:
            return
        self.require_no_veto(name, attempt)
        if self.said_before("abort", attempt.decided):
            self.fault("S20", f"{name} after an abort")

    def looks(self, at: datetime, target: Target, *, go: bool) -> None:
        """A last look is answered. What it says go to is the machine that was pinned (S9)."""
        self.looked = at if go else None
        machine, pinned = self.machine, target.pinned
        if go and pinned.uid and (machine.holder == ANOTHER or not machine.present or machine.uid != pinned.uid):
            self.fault("S9", f"a last look said go to {machine.uid} of machine {machine.holder}, pinned is {pinned.uid}")

    def require_no_veto(self, name: str, attempt: Attempt) -> None:
        """S20: a hold that was taken before the act was decided is obeyed, until a resume or an abort."""
        words = sorted(
            (each.word.taken, number, each.what)
            for number, each in enumerate(self.said)
            if each.word.taken is not None and each.word.taken <= attempt.decided
        )
        if words and words[-1][2] == "hold":
            self.fault("S20", f"{name} while held")

    @property
    def held_now(self) -> bool:
        """Whether the last word that was taken is a hold."""
        return self.held_since is not None

    @property
    def held_since(self) -> datetime | None:
        """When that was; None: the last word is another one."""
        words = [(each.word.taken, number, each.what) for number, each in enumerate(self.said) if each.word.taken is not None]
        at, _, what = max(words, default=(None, 0, ""))
        return at if what == "hold" else None

    def is_held(self, moment: datetime) -> bool:
        """Whether a person held it at that moment, or has since."""
        words = sorted((each.word.taken, each.what) for each in self.said if each.word.taken is not None)
        before = [what for taken, what in words if taken <= moment]
        return before[-1:] == ["hold"] or any(what == "hold" for taken, what in words if taken > moment)

    @property
    def aborted_at(self) -> datetime | None:
        """When a person first aborted the present episode."""
        return min((each.word.taken for each in self.said if each.what in {"abort", "cancel"} and each.word.taken), default=None)

    @property
    def resumed_at(self) -> datetime:
        """When a person last had it go on, or it was reset."""
        return max((each.word.taken for each in self.said if each.what in AGAIN and each.word.taken), default=START)

    def said_before(self, what: str, moment: datetime) -> bool:
        """Whether a person's word of that kind had been taken by then."""
        return any(each.what == what and each.word.taken is not None and each.word.taken <= moment for each in self.said)

    def uses(self, attempt: Attempt, what: str) -> None:
        """S34, S42: a licence is of one run and for one act, whose worker may begin it again; a reset gives none of it back."""
        licence, user = attempt.request.licence, (attempt.run_id, attempt.activity_id, attempt.scheduled)
        if self.used.setdefault((licence, what), user) != user:
            self.fault("S42", f"{what} on a licence that was used before, by {self.used[licence, what]}")

    used: dict[tuple[str, str], tuple[str, str, datetime]] = field(default_factory=dict)

    def commands_device(self, attempt: Attempt, device: PowerDevice, state: PowerState, until: datetime, incident: str) -> None:
        """S5, S10, S33, S34: a device of the plan, nothing else in flight, no second off where one is known to have worked."""
        endpoint = device.endpoint
        if attempt.repeats:
            self.fault("S33", f"{state} {endpoint} is repeated without a look at what it has done")
        if endpoint in self.disowned:
            seen = self.looked_last is None or self.looked_last >= self.disowned[endpoint]
            gives_back = state is PowerState.ON and any(each.endpoint == endpoint for each in self.commands)
            if seen and not gives_back:  # what we have switched off comes back, whosever it is by now
                self.fault("S9", f"{state} {endpoint}, which the configuration names no more since the target was pinned")
        elif replace(device, levels=()) not in self._planned():
            self.fault("S10", f"{endpoint} is commanded, which the plan does not name like this")
        for other in self.commands:
            if other.until > attempt.now and other.incident not in self.unaware:
                self.fault("S34", f"{state} {endpoint} while {other.state} {other.endpoint} may be under way")
        if state is PowerState.OFF:
            self._needless(endpoint, attempt, incident)
            self.off_by = incident
            theirs = incident != self.tried_by and self.tried_by not in self.unaware
            if self.machine.out_of_service and self.machine.present and theirs:
                self.fault("S1", f"{state} {endpoint} while the taint of a predecessor stands, which nobody has proven anew")
        self.commands.append(
            Command(endpoint=endpoint, state=state, decided=attempt.decided, began=attempt.now, until=until, incident=incident)
        )

    def _needless(self, endpoint: str, attempt: Attempt, incident: str) -> None:
        mine = [each for each in self.commands if each.endpoint == endpoint and each.incident == incident]
        asked = [each.word.taken for each in self.said if each.what in AGAIN and each.word.taken]
        if mine and mine[-1].state is PowerState.ON and not self.climbs and not any(moment >= mine[-1].began for moment in asked):
            self.fault("S5", f"off {endpoint} once more after our own on, and nobody has asked for it")
        level = next((each for each in self.plan.levels if endpoint in {device.endpoint for device in each}), ())
        if not mine or mine[-1].state is not PowerState.OFF or len(level) != 1 or self.climbs:
            return
        if mine[-1].unclear and self.asked.get(endpoint, START) <= mine[-1].began:
            self.fault("S33", f"off {endpoint} once more, and nobody has read what has become of the last one")
        answers = {at: state for at, state in self.told.get(endpoint, {}).items() if at > mine[-1].until}
        others = [state for known in self.told.values() for at, state in known.items() if at > mine[-1].until]
        if answers and answers[max(answers)] is PowerState.OFF and PowerState.ON not in others and not asked:
            self.fault("S33", f"off {endpoint} once more, which has said off since the last one")

    def _planned(self) -> Iterable[PowerDevice]:
        methods = (*self.plan.isolation, *self.plan.recovery)
        return (*self.plan.devices, *(each.device for each in methods if each.device is not None))

    # Consequences ---------------------------------------------------------------------------------------------------

    def consequence(self, name: str, attempt: Attempt, request: FreeRequest, *, devices_on: datetime | None) -> None:
        """S1, S2, S4, S6, S8: proven by what the devices have really said, and as true as it was then. devices_on: since when a
        device would have said on, if it had been asked."""
        machine, proof = self.machine, request.proof
        self.require_no_veto(name, attempt)
        if self.tried_by != request.target.incident:  # a try that failed may have done something all the same
            self._need_stands(name, request.target.incident)
        self.tried_by = request.target.incident
        if attempt.now > request.not_after:
            return  # refused as too late, whatever it says
        self.on_word = proof.acknowledgement is not None
        if proof.acknowledgement is not None:
            self._on_a_word(name, proof)
        else:
            self._proven(name, proof, attempt, request.target.incident)
            read_at = min((reading.at for reading in proof.readings), default=attempt.now)
            knowable = not machine.miswired or (devices_on is not None and devices_on < read_at - timedelta(seconds=5))
            if machine.runs and knowable and (machine.on_since is None or machine.on_since <= read_at):
                self.fault("S1", f"{name} while the machine runs")
            if request.not_after - read_at > max(WINDOW, self.plan.act_deadline + SPREAD):
                self.fault("S45", f"{name} on readings that will be {request.not_after - read_at} old")

    def _need_stands(self, name: str, incident: str) -> None:
        """S6: before the first consequence somebody has asked, and nobody has heard that the need is gone."""
        off = max((each.began for each in self.commands if each.incident == incident), default=None)
        if self.need_gone:
            self.fault("S6", f"{name} although the need was gone before")
        if self.asked_need is None or (off is not None and self.asked_need < off):
            self.fault("S6", f"{name}, and since the off nobody has asked whether the need is gone")

    def _on_a_word(self, name: str, proof: OffProof) -> None:
        assert proof.acknowledgement is not None
        if not self.word or not proof.acknowledgement.who or not proof.acknowledgement.why:
            self.fault("S8", f"{name} on a word that nobody gave")
        elif self.contradicted:
            self.fault("S8", f"{name} on a word that a device has come to contradict since")
        if self.machine.runs and self.contradicted:
            self.fault("S1", f"{name} while the machine runs")

    def _proven(self, name: str, proof: OffProof, attempt: Attempt, incident: str) -> None:
        read = {reading.endpoint for reading in proof.readings}
        if read not in [{device.endpoint for device in level} for level in self.plan.levels] or not read:
            self.fault("S4", f"{name} on readings of {sorted(read)}, which are no whole level")
        known = attempt.decided if attempt.repeats else attempt.now
        mine = [each for each in self.commands if each.incident == incident and each.decided <= known]
        last_on = max(
            (each.began for each in mine if each.state is PowerState.ON and each.endpoint in self.machine.power), default=None
        )
        for reading in proof.readings:
            if self.answered(reading) is not PowerState.OFF or reading.state is not PowerState.OFF:
                self.fault("S3", f"{name} on a reading of {reading.endpoint} that was never given")
            commanded = [each for each in mine if each.endpoint == reading.endpoint]
            if not commanded or commanded[-1].state is not PowerState.OFF:
                self.fault("S2", f"{name}: {reading.endpoint} was not commanded off since it was switched on")
            elif commanded[-1].until > reading.at:
                self.fault("S2", f"{name} on a reading of {reading.endpoint} while its off was under way")
            elif self._was_on_since(reading, commanded[-1].until):
                self.fault("S6", f"{name} on an off of {reading.endpoint}, which has said on since it was read as off")
            elif last_on is not None and last_on >= commanded[-1].began:
                self.fault("S6", f"{name} on an off of {reading.endpoint} from before our power-on")

    def _was_on_since(self, reading: Reading, commanded: datetime) -> bool:
        """Whether a device that had obeyed our off has told of an on since: what it says now is another off than ours."""
        heard = [state for at, state in sorted(self.told.get(reading.endpoint, {}).items()) if commanded < at <= reading.at]
        obeyed = heard.index(PowerState.OFF) if PowerState.OFF in heard else len(heard)
        return PowerState.ON in heard[obeyed:]

    def cut_consequence(self, attempt: Attempt, request: FreeCutRequest) -> None:
        """S1 for path cut proven: only what lies behind paths that are cut, and volumes that are detached."""
        machine = self.machine
        if attempt.now > request.not_after:
            return
        if self.looked is None and not attempt.repeats and not (self.off_by == request.target.incident and not machine.runs):
            self.fault("S20", "free-cut-pods without a last look before it")
        self.looked = None
        self.require_no_veto("free-cut-pods", attempt)
        if self.said_before("abort", attempt.decided):
            self.fault("S20", "free-cut-pods after an abort")
        readings = [reading for proof in request.proofs for reading in proof.readings]
        volumes = [volume for proof in request.proofs for volume in proof.volumes]
        if not readings and not volumes:
            self.fault("S1", "free-cut-pods on a proof that is none")
        for reading in readings:
            self._path_cut(reading, request.target.incident)
        for volume in volumes:
            if _answer(self.told_volumes.get(volume.volume, {}), volume.at) is not VolumeState.AVAILABLE:
                self.fault("S3", f"free-cut-pods on a reading of {volume.volume} that was never given")
            if volume.at <= self.detached.get(volume.volume, volume.at):
                self.fault("S2", f"free-cut-pods on a reading of {volume.volume} from before its detachment")
        proven = {reading.endpoint for reading in readings}
        handles = {volume.volume for volume in volumes}
        for method in self.plan.isolation:
            if method.act is Act.CUT_PATH and method.device is not None and method.device.endpoint in proven:
                handles |= set(method.storage.handles)
            elif method.act is Act.CUT_PATH and set(method.storage.classes) & set(request.storage.classes):
                self.fault("S1", f"free-cut-pods behind {method.name}, which is not proven cut")
        if set(request.storage.handles) - handles:
            self.fault("S1", f"free-cut-pods of {sorted(set(request.storage.handles) - handles)}, which nothing is known of")
        for reading in readings:
            if machine.paths.get(reading.endpoint) is PowerState.ON and self._path_on_since(reading.endpoint, reading.at):
                self.fault("S1", f"free-cut-pods while {reading.endpoint} is open")
        oldest = min((each.at for each in (*readings, *volumes)), default=attempt.now)
        if request.not_after - oldest > FRESH:
            self.fault("S2", f"free-cut-pods on readings that will be {request.not_after - oldest} old")

    def tells_the_truth(self, message: str, incident: str) -> None:
        """S35, S44: nobody is told that a machine was left alone which we have switched off."""
        mine = [each for each in self.commands if each.incident == incident and each.endpoint in self.machine.power]
        sent = any(each.state is PowerState.OFF for each in mine)
        if sent and "before power-off" in message:
            self.fault("S35", f"off was sent, and people are told: {message}")

    def dumping_consequence(self, attempt: Attempt, request: FreeDumpingRequest) -> None:
        """S1 for a kernel that is said to be dead: only where that is trusted, moments after its word, and while it is true."""
        machine, rule = self.machine, self.plan.kdump
        if attempt.now > request.not_after:
            return
        self.tried_by = request.target.incident
        if self.looked is None:
            self.fault("S20", "free-while-dumping without a last look before it")
        self.looked = None
        self.require_no_veto("free-while-dumping", attempt)
        if self.said_before("abort", attempt.decided):
            self.fault("S20", "free-while-dumping after an abort")
        if rule is None or not rule.trusted:
            self.fault("S1", "free-while-dumping on messages that nobody trusts")
        if machine.runs and machine.dump is None:
            self.fault("S1", "free-while-dumping while the machine runs")
        if request.not_after - request.proof.last > DEAD:
            self.fault("S2", f"free-while-dumping on a message that will be {request.not_after - request.proof.last} old")

    def _path_cut(self, reading: Reading, incident: str) -> None:
        if self.answered(reading) is not PowerState.OFF:
            self.fault("S3", f"free-cut-pods on a reading of {reading.endpoint} that was never given")
        commanded = [each for each in self.commands if each.endpoint == reading.endpoint and each.incident == incident]
        if not commanded or commanded[-1].state is not PowerState.OFF or commanded[-1].until > reading.at:
            self.fault("S2", f"free-cut-pods on a reading of {reading.endpoint} that follows no cut of ours")

    def _path_on_since(self, endpoint: str, moment: datetime) -> bool:
        """Whether the path was open at that moment already: what others open later nobody can know."""
        return self.opened_by_others.get(endpoint, moment) <= moment

    opened_by_others: dict[str, datetime] = field(default_factory=dict)

    def has_freed(self, incident: str, *, all_of_it: bool) -> None:
        """A consequence was carried out."""
        self.all_freed_by = incident if all_of_it else self.all_freed_by
        self.freed, self.freed_boot = True, self.machine.boots

    # The way back ---------------------------------------------------------------------------------------------------

    def powers_on(self, attempt: Attempt, incident: str) -> None:
        """S32: our taint goes before the machine comes, whoever has taken our mark off. S38: whoever has lost the Lease to
        another deployment, which fences the node, keeps his hands off it."""
        machine, mark = self.machine, self.machine.mark
        self._stays_off(attempt, incident)
        if machine.present and machine.holder != ANOTHER and machine.out_of_service:
            self.fault("S32", "power on while our taint stands")
        if self.rival is not None and mark is not None and mark.incident != incident:
            since, until = self.rival
            seen = self.looked_before_restoring
            if since <= attempt.now <= until and (seen is None or seen > since):
                self.fault("S38", "power on while another deployment fences the node")

    def _stays_off(self, attempt: Attempt, incident: str) -> None:
        """S20, S35: after off was proven an abort leaves the machine off, unless it says otherwise."""
        ends = [each for each in self.said if each.what in {"abort", "cancel"} and each.word.taken is not None]
        heard = [each for each in ends if each.word.taken is not None and each.word.taken <= attempt.decided]
        mine = [each.state for each in self.commands if each.incident == incident and each.endpoint in self.machine.power]
        off = self.all_freed_by == incident and mine[-1:] == [PowerState.OFF] and not self.machine.runs
        if heard and off and not attempt.repeats and not any(each.power_on for each in ends):
            self.fault("S20", "power on after an abort that leaves the machine off")

    def opens_path(self, endpoint: str) -> None:
        """A path is given back after pods were freed only with a restart or a person's word."""
        if self.freed and self.machine.boots == self.freed_boot and not self.path_command:
            self.fault("S35", f"{endpoint} is given back after pods were freed, without a restart or a word")

    def gives_up(self, attempt: Attempt, request_incident: str) -> None:
        """S1: only a machine that is off is given up for good; there is no way back."""
        machine = self.machine
        latest = max((at for answers in self.told.values() for at in answers), default=attempt.now)
        goes_on = max((each.word.taken for each in self.said if each.what == "resume" and each.word.taken), default=latest)
        if attempt.now - latest > FRESH or goes_on > latest:
            self.fault("S2", f"a machine is given up on a reading of {attempt.now - latest} ago")
        if machine.runs and (machine.on_since is None or machine.on_since <= latest):
            self.fault("S1", "a machine that runs is given up")
        if not any(each.incident == request_incident and each.state is PowerState.OFF for each in self.commands):
            self.fault("S2", "a machine is given up that was never commanded off")
