"""What people command an episode of any kind: what it refuses in its state and why, and what each other command changes.

Each is checked and verified before it comes here (`episode_workflow.py`, `attestation.py`), and takes effect at once; the story
acts. Who commands and what is in `policy/episode/node_action.py`; a kind adds its own in `workflows/definitions/episodes.py`.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

from policy.episode.advice import command_line
from policy.episode.messages import Acknowledgement, Phase
from policy.episode.node_action import CIRCUIT_BREAKER, SealedCommand, Verb
from policy.values.times import written
from workflows.episode.episode import Episode
from workflows.kit.messages import AbortRequest, HoldEpisodeRequest, OperatorCommand, PersonRequest, ResumeRequest

NEXT_ACT = "its next destructive act"
"""What a hold keeps an episode from, where its kind says nothing more exact."""
NOTHING_LEFT = "nothing destructive is left to be done"
WORD_TAKEN_BACK = "an-abort-takes-back-a-word-for-off-that-was-not-used-yet"
"""Histories of builds that went on to free on it go on as they began."""


def why_not(episode: Episode, verb: Verb) -> str:
    """Why this episode does not accept that verb in its state, whatever the command says besides; "" where it does."""
    if episode.state.phase is Phase.FINAL:
        return f"{verb.value}: this episode has ended: {episode.state.doing}"
    abort = episode.state.abort_asked
    if verb in {Verb.ACK_OFF, Verb.RETURN_PATH} and episode.is_held:
        expected = f"{verb.value}: expected an episode that is not held; this one is {episode.holds_line}"
        ends = command_line(Verb.RESUME, episode.state.node, episode.state.question, episode.hold_owners)
        return f"{expected}; `{ends}` ends that"
    if verb is Verb.RESUME and abort is not None and not episode.insists:
        return f"resume: expected an episode that goes on; this one was aborted by {abort.by}, and ends"
    asks_of_path = episode.state.phase is Phase.NEEDS_HUMAN and bool(episode.state.path_asked)
    if verb is Verb.RETURN_PATH:
        expected = "return-path: expected an episode that asks whether a path is given back; this one does not"
        return "" if asks_of_path and abort is None else expected
    if verb is Verb.RESUME and asks_of_path and not episode.is_held:
        asked = f"asked is whether {episode.state.path_asked} is given back: return-path"
        return f"resume: expected a question that it answers; {asked}"
    if verb is Verb.RESUME:
        waits = episode.state.phase is Phase.NEEDS_HUMAN or episode.state.acknowledgement is not None
        expected = "resume: expected an episode that is held or needs a person; this one goes on by itself"
        return "" if waits or episode.is_held else expected
    if verb is Verb.HOLD and abort is not None:
        return f"hold: expected an episode that goes on; this one was aborted by {abort.by}, which ends every hold"
    return ""


def require_question(episode: Episode, verb: Verb, question: int) -> None:
    """Raises ValueError where a command answers another question than is asked (S48)."""
    if question != (now := episode.state.question):
        asked = episode.holds_line if episode.is_held else episode.state.problem
        got = f"an answer to question {question}" if question else "no number"
        raise ValueError(f"{verb.value}: expected the --question that is asked, got {got}; now it is {now}: {asked}")


def consequences(episode: Episode, *, abort: str, before: str) -> dict[Verb, str]:
    """Every verb that every kind of episode has, and what comes of it. abort: what comes of that, besides. before: what a hold
    keeps it from, "" where nothing is left that a hold stops."""
    owners = episode.hold_owners
    holds = f"held by {' and '.join(owners)}" if owners else ""
    resumes = f"ends the hold of NAME ({holds}); the last one lets it go on" if owners else "tries again"
    return {
        Verb.RESUME: resumes if len(owners) != 1 else f"ends the hold of {owners[0]}, and lets it go on",
        Verb.RETURN_PATH: f"gives {episode.state.path_asked} back (if anything still writes there, data is corrupted)",
        Verb.HOLD: f"keeps it from {before} until `resume`, or for a while" if before else f"stops nothing: {NOTHING_LEFT}",
        Verb.ABORT: (f"ends every hold ({holds}); " if holds else "") + abort,
    }


def take_abort(episode: Episode, request: AbortRequest) -> str:
    """A person stops the episode, and nothing is freed any more on a word for off that has not been used yet (S20). Said again it
    may add `power_on`, and takes nothing back; nor does a cancellation."""
    former = episode.state.abort_asked
    episode.state.abort_asked = replace(former, power_on=former.power_on or request.power_on) if former is not None else request
    episode.state.aborts += 1
    power_on = ", power on" if request.power_on else ""
    episode.note("abort", "asked", f"by {request.by}: {request.reason}{power_on}", who=request.by)
    answer = f"abort of incident {episode.state.incident} noted"
    for each in episode.state.holds:
        if former is None and each.owner != request.owner:
            episode.note("hold", "ended", f"{each}; by {request.by}", who=request.by)
            answer += f"; it ends the hold of another person: {each}"
    if episode.state.acknowledgement is not None and workflow.patched(WORD_TAKEN_BACK):
        answer += _take_back_acknowledgement(episode, request)
    episode.keep_word()
    _count_and_wake(episode)
    return answer


def take_acknowledgement(episode: Episode, request: OperatorCommand) -> str:
    """A person vouches that the machine is off (S8)."""
    episode.state.acknowledgement = Acknowledgement(
        who=request.who,
        verified=request.verified,
        speaker=request.speaker,
        sealed=request.sealed,
        why=request.reason,
        at=workflow.now(),
        despite="".join(f", although {each.endpoint} says on" for each in episode.devices_on),
    )
    seen = episode.state.last_seen
    episode.state.acknowledged_boot = (seen.boot_id if seen is not None else "") or (
        episode.state.pinned.boot_id if episode.state.pinned else ""
    )
    episode.state.acknowledgement_void = ""
    take_override(episode, request.sealed)
    vouched = f"by {request.by}: {request.reason}{episode.state.acknowledgement.despite}"
    episode.note("acknowledge-off", "given", vouched, who=request.by)
    _count_and_wake(episode)
    return f"off of {episode.state.node} acknowledged by {request.by}"


def take_override(episode: Episode, sealed: SealedCommand | None) -> None:
    """A person's word, which may override a circuit breaker for this episode."""
    if sealed is not None and CIRCUIT_BREAKER in sealed.spec.override:
        episode.state.override = sealed


def take_hold(episode: Episode, request: HoldEpisodeRequest, *, before: str = NEXT_ACT) -> str:
    """Nothing destructive until `resume`. It replaces an earlier hold of the same person, and no other one. before: see
    `consequences`."""
    others = tuple(each for each in episode.state.holds if each.owner != request.owner)
    episode.state.holds, episode.state.question = (*others, request), episode.state.question + 1
    episode.note("hold", "asked", f"by {request.by}: {request.reason}", who=request.by)
    episode.keep_word()
    _count_and_wake(episode)
    beside = "".join(f"; it is also {each}" for each in others)
    ends = f"`{command_line(Verb.RESUME, episode.state.node, episode.state.question)}` ends it"
    until = f" until {written(request.until)}" if request.until is not None else ""
    if not before:
        return f"incident {episode.state.incident} is held{until}, but {NOTHING_LEFT}; {ends}{beside}"
    return f"incident {episode.state.incident} is held before {before}{until}: {ends}{beside}"


def take_resume(episode: Episode, request: ResumeRequest, *, needs_permit: bool) -> str:
    """End a hold, or let a parked episode try again; a word for off that has not been used yet is taken back. needs_permit:
    whether it then goes on with a permit only."""
    ended = _ended_by(episode, request)
    episode.state.holds = tuple(each for each in episode.state.holds if each not in ended)
    episode.note("resume", "asked", f"by {request.by}: {request.reason}", who=request.by)
    for each in ended:
        if each.owner != request.owner:
            episode.note("hold", "ended", f"{each}; by {request.by}", who=request.by)
    episode.keep_word()
    _count_and_wake(episode)
    if episode.is_held:
        return f"incident {episode.state.incident} is still {episode.holds_line}; you have ended: {'; '.join(map(str, ended))}"
    taken_back, episode.state.resumed = _take_back_acknowledgement(episode, request), request
    asks = episode.state.phase is Phase.NEEDS_HUMAN
    if asks and episode.insists:
        return f"incident {episode.state.incident} tries again what has failed{taken_back}"
    waits = " as soon as the scanner gives it a permit" if asks and needs_permit else ""
    return f"incident {episode.state.incident} goes on{waits}{taken_back}"


def _take_back_acknowledgement(episode: Episode, request: OperatorCommand) -> str:
    """A word for off that has not been used yet ends. Answers that, to end a sentence with; "" where there is none."""
    if (acknowledgement := episode.state.acknowledgement) is None:
        return ""
    episode.state.acknowledgement = None
    taken = f"the acknowledgement by {acknowledgement.by}; by {request.by}: {request.reason}"
    episode.note("acknowledge-off", "taken back", taken, who=request.by)
    return f"; the acknowledgement by {acknowledgement.by} that the machine is off is taken back"


def _ended_by(episode: Episode, request: ResumeRequest) -> tuple[HoldEpisodeRequest, ...]:
    """Which holds a person ends: their own, or by name that of another person. Raises ValueError where there is none."""
    found = tuple(
        each for each in episode.state.holds if (each.belongs_to(request.of) if request.of else each.owner == request.owner)
    )
    if not found and (episode.is_held or request.of):
        command = f"`nodewarden resume {episode.state.node} --question {episode.state.question} --of NAME` ends that of NAME"
        stands = f"it is {episode.holds_line}; {command}" if episode.state.holds else "it is not held"
        raise ValueError(f"resume: expected a hold of {request.of or request.owner}, and there is none: {stands}")
    return found


def take_return_path(episode: Episode, request: PersonRequest) -> str:
    """A person has what is left cut given back."""
    episode.state.path_command = request
    episode.note("return-path", "asked", f"by {request.by}: {request.reason}", who=request.by)
    _count_and_wake(episode)
    return f"{episode.state.path_asked} is given back"


def _count_and_wake(episode: Episode) -> None:
    episode.state.commands_given += 1
    episode.wake()
