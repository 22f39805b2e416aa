"""The scanner's permits: which requests and last looks they allow, with which permit and input an episode begins (`Permits`), and
which episodes hold them by Temporal's account (`Holders`).

Each rule is a row of `policy/scan/permit_rules.py`. When to ask is `story.py`, and for those that wait `queue.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import DescribeRequest, EpisodeActivities, EpisodeDescription, FindRequest, FoundOpen
from activities.errors import error_message
from policy.episode.messages import FencingInput, Kind, Need, NeedKind, RemediationInput, SeenNode, episode_id
from policy.episode.permits import (
    Permit,
    PermitAnswer,
    PermitQuestion,
    PermitRequest,
    PermitState,
    PortionAnswer,
    PortionRequest,
    portion_of,
)
from policy.remediation.ladder import removes
from policy.scan import pauses
from policy.scan.admission import answer_request, quorum_objection, room_in_scopes
from policy.scan.permit_rules import checks_of, groups_of
from policy.scan.scan_report import Candidate, LeftOver, ScanReport
from workflows.kit import options
from workflows.scanner import hold_offs
from workflows.scanner.state import ScannerInput, ScannerState

# Which episodes hold nodes by Temporal's own account: holders are described, and a table without memory is built anew (S14).

DESCRIBE_EVERY = timedelta(seconds=60)
"""How often holders are described, in case the release of an episode never arrived: so seldom for each DESCRIBED_AT_ONCE of them,
since each is asked what it does, and a thousand that are at work have no time for that."""
PAUSE_AFTER_FAILURE = timedelta(seconds=5)
LIST_LAG = timedelta(seconds=10)
"""How long at most Temporal's list of open workflows lacks one that has begun; a second is usual."""
DESCRIBED_AT_ONCE = 200
CLOSED = "the node of an episode that is described as closed is left alone until a scan that is younger"
UNCLAIMED = "a permit that its episode says it does not have is parked"
ASKED_AFTER = "what an episode says counts where the task that granted its permit has asked"
BORN_AGAIN = "a young history that was reset to its first task is seen"


def strangers(cluster: str, state: ScannerState, report: ScanReport) -> tuple[Permit, ...]:
    """Marked nodes without a permit: an episode holds them that we know nothing of, as after a reset of this workflow, and counts
    as it would at worst until it is described as closed (S14)."""
    just_ended = hold_offs.just_ended(state)
    return tuple(
        Permit(
            node=seen.node,
            workflow_id=episode_id(cluster, seen.node),
            incident=seen.incident,
            kind=Kind.FENCING,
            state=PermitState.OPEN,
            granted_at=workflow.now(),
            provider_id=seen.provider_id,
            control_plane=None,
            node_uid=seen.uid,
            groups=seen.groups,
            found=True,
        )
        for seen in report.seen_nodes
        if seen.incident and seen.node not in state.permits and seen.incident not in just_ended
        and state.described.get(seen.incident, True)
    )  # fmt: skip


class Holders:
    """Keeps one scanner's permit table as Temporal's account of its episodes says."""

    def __init__(self, scanner: ScannerInput, state: ScannerState) -> None:
        self._scanner = scanner
        self._state = state
        self._list_complete_from = state.started + LIST_LAG
        self.began_as = ""
        """The run that the first event of this history names."""
        self._run, self._forgotten = "", False
        """Of this history only: another run in a report, or a call of `forget`, shows a reset."""
        self.problem = ""
        self.found: FoundOpen | None = None
        """Once the list has all that the last scanner did, until that is taken over."""
        self.was_reset = False
        """Whether this history may have had a former life, and what that had set was not taken over yet (S44, S52)."""

    def forget(self) -> None:
        """The table may lack what an earlier life of this history has granted. Called where the time can't be read."""
        self._state.known, self._forgotten, self.was_reset = False, True, True

    async def rebuild(self, report: ScanReport) -> None:
        """Without carried state nothing is granted before all open episodes are in the table: those that Temporal lists, and
        those of marks that are seen (S14).

        An earlier scanner granted nothing after we began. So a list that is `LIST_LAG` younger than that beginning misses no
        episode that it let act. A reset of this workflow takes back what it knew, which its first report shows: built anew, too.
        """
        state = self._state
        # Of a history that was reset to its first task, before what is carried over was too old.
        reborn = not self._run and self.began_as and report.run not in {"", self.began_as}
        if self._forgotten or (report.run and self._run not in {"", report.run}) or (reborn and workflow.patched(BORN_AGAIN)):
            state.known, self._forgotten, self._list_complete_from = False, False, workflow.now() + LIST_LAG
            self.was_reset = True
        self._run = report.run or self._run
        if state.known or not report.view.synced:
            return  # before the first sync there may be marks that were not seen yet
        found = await self._find_open()
        if found is not None and found.earlier and (lag := self._list_complete_from - workflow.now()) > timedelta(0):
            await workflow.sleep(lag, summary="until the list of open episodes has all that the last scanner admitted")
            found = await self._find_open()
        if self._forgotten:
            return  # what was found was so before the reset
        if found is not None:
            self.found = found
            marked = (seen.node for seen in report.seen_nodes if seen.incident or seen.mark_problem)
            # Those may be opening: that there is no episode yet says nothing.
            reserved = {permit.node for permit in state.permits.values() if permit.state is PermitState.RESERVED}
            nodes = tuple(sorted({*found.nodes, *marked, *state.permits} - reserved))
            state.known = (not nodes or await self._describe(nodes, report)) and not self._forgotten
            state.described_at = workflow.now()
        if not state.known:
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the open episodes are looked for again")

    def to_be_described(self, report: ScanReport, opening: set[str]) -> tuple[str, ...]:
        """The nodes of episodes that are to be described now, none where that is not due. opening: nodes of episodes that are
        being opened; until that is over, it is not known that there is none."""
        state = self._state
        if not state.known:
            return ()  # an episode that is found while the table is built is no stranger
        found = strangers(self._scanner.cluster, state, report)
        new = not self.problem and any(each.incident not in state.described for each in found)
        pause = DESCRIBE_EVERY * max(1, math.ceil(len(state.permits) / DESCRIBED_AT_ONCE))
        if not new and state.described_at is not None and workflow.now() - state.described_at < pause:
            return ()
        marked = (seen.node for seen in report.seen_nodes if seen.incident)
        return tuple(sorted({*state.nodes_in_hand(), *marked, *state.need_person} - opening))

    async def describe(self, nodes: tuple[str, ...], report: ScanReport) -> bool:
        """Release what has closed without a release that arrived, and learn what became of unknown openings. report: of the
        marks that are seen.

        Returns whether that changed the table.
        """
        state = self._state
        state.described_at = workflow.now()
        marks = {seen.node: seen.incident for seen in report.seen_nodes if seen.incident}
        before = (dict(state.permits), list(state.queue), state.described)
        if await self._describe(nodes):
            permits = {permit.incident for permit in state.permits.values()}
            state.described = {marks[node]: marks[node] in permits for node in nodes if node in marks}
        return before != (state.permits, state.queue, state.described)

    async def _describe(self, nodes: tuple[str, ...], report: ScanReport | None = None) -> bool:
        """Ask what the nodes' episodes do. report: where the table is built anew; its policies say how many permits count."""
        state, asked_at = self._state, workflow.now()
        try:
            described = await self.look_up(nodes)
        except ActivityError as error:
            self.problem = f"holders can't be described: {error_message(error)}"
            return False
        self.problem = ""
        for episode in sorted(described.values(), key=lambda each: (each.started or asked_at, each.node)):
            released_at = state.released.get(episode.incident)
            if not episode.open or released_at is None or asked_at - released_at >= hold_offs.CLOSING:
                # An episode that a predecessor granted keeps its permit, as far as the cap goes; later strangers must ask (S14,
                # S15, S17).
                room = not state.known and state.in_use() < self._scanner.cap_under(report)
                room = room and report is not None and room_in_scopes(report, state.permits.values(), episode.node)
                permit = state.permits.get(episode.node)
                same = permit is not None and (permit.incident, permit.granted_at) == (episode.incident, asked_at)
                follows = same and workflow.patched(ASKED_AFTER)
                unclaimed = self._is_unclaimed(episode, asked_at)
                state.reconcile(episode, asked_at, room=room, anew=not state.known, unclaimed=unclaimed, follows=follows)
                hold_offs.end_by_person(state, episode)
                if permit is not None and episode.node not in state.permits and workflow.patched(CLOSED):
                    hold_offs.note_closed(state, permit.node, permit.incident)
        return True

    def _is_unclaimed(self, episode: EpisodeDescription, asked_at: datetime) -> bool:
        """Whether an open episode says that it has no permit, long after one was granted in its name: a stranger has asked for
        that, while a person holds it for example. It gives back what it does not know of never, and others would wait (S14)."""
        permit = self._state.permits.get(episode.node)
        granted = permit is not None and permit.incident == episode.incident and permit.state is PermitState.OPEN
        late = permit is not None and asked_at - permit.granted_at > DESCRIBE_EVERY
        return episode.open and not episode.permit and granted and late and workflow.patched(UNCLAIMED)

    async def look_up(self, nodes: tuple[str, ...]) -> dict[str, EpisodeDescription]:
        """What Temporal knows of the nodes' episodes, and what these say themselves. Raises ActivityError."""
        described = list[EpisodeDescription]()
        for first in range(0, len(nodes), DESCRIBED_AT_ONCE):
            request = DescribeRequest(cluster=self._scanner.cluster, nodes=nodes[first : first + DESCRIBED_AT_ONCE])
            result = await options.execute(
                EpisodeActivities.describe, request, options.temporal_call(), "describes the holders of permits"
            )
            described += result.episodes
        return {each.node: each for each in described}

    async def _find_open(self) -> FoundOpen | None:
        """None where they could not be listed: the problem says why."""
        try:
            return await options.execute(
                EpisodeActivities.find_open,
                FindRequest(cluster=self._scanner.cluster),
                options.temporal_call(),
                "lists the open episodes of the cluster",
            )
        except ActivityError as error:
            self.problem = f"no permit is granted before all open episodes are known: {error_message(error)}"
            return None


class Permits:
    """Of one scanner. A permit is written before its episode is opened (S14)."""

    def __init__(self, scanner: ScannerInput, state: ScannerState) -> None:
        self._scanner = scanner
        self._state = state

    # What counts, and who may --------------------------------------------------------------------------------------

    def as_known(self, request: PermitRequest) -> PermitRequest:
        """The request with what is known of its incident: any client of Temporal may ask in an episode's name, and makes of a
        member of the control plane no other node (S15), and of a repair no preservation, which no check limits (S14)."""
        permit = self._permit_of(request)
        waiting = [each for each in self._state.queue if (each.node, each.incident) == (request.node, request.incident)]
        known = [*([permit] if permit is not None else []), *waiting]
        repairs = (each.kind for each in (*known, request) if each.kind is not Kind.PRESERVATION)
        return replace(
            request,
            kind=next(repairs, Kind.PRESERVATION),
            control_plane=request.control_plane or any(each.control_plane for each in known),
            provider_id=(permit.provider_id if permit is not None else "") or request.provider_id,
            node_uid=(permit.node_uid if permit is not None else "") or request.node_uid,
            owner=(permit.owner if permit is not None else "") or request.owner,
            removes=permit.removes if permit is not None and not permit.found else request.removes,
        )

    def _permit_of(self, request: PermitRequest) -> Permit | None:
        permit = self._state.permits.get(request.node)
        return permit if permit is not None and permit.incident == request.incident else None

    def counted(self, report: ScanReport, own: Permit | None = None) -> tuple[Permit, ...]:
        """The permits, and what counts without one: marked strangers, and episodes that were found and wait for their permit,
        which may have done anything under the one they had (S14). own: the permit of the one that asks. If each of those that
        were found waited for the others, none would ever go on.
        """
        marks = {each.incident for each in report.seen_nodes} if own is None or not own.found else set[str]()
        waiting = marks.intersection(each.incident for each in self._state.queue)
        permits = (
            replace(permit, state=PermitState.OPEN) if permit.found and permit.incident in waiting else permit
            for permit in self._state.permits.values()
            if permit is not own
        )
        return (*permits, *strangers(self._scanner.cluster, self._state, report))

    def answer(self, report: ScanReport, request: PermitRequest, *, ahead: int = 0) -> PermitAnswer:
        """Decide the request of an open episode. Its own parked permit is not in its way. What it has as a preservation is not in
        the way of its repair either, and is no leave for that. ahead: how many requests come before it."""
        state = self._state
        permit, mine = state.permits.get(request.node), self._permit_of(request)
        grows = mine is not None and mine.kind is Kind.PRESERVATION and request.kind is not Kind.PRESERVATION
        own = mine if grows or (mine is not None and mine.state is PermitState.PARKED) else None
        # A mark without a permit is its own, or of one that has ended: it has the id that both would have.
        others = tuple(each for each in self.counted(report, own) if permit is not None or each.node != request.node)
        return answer_request(
            report,
            others,
            request,
            cap=self._scanner.cap,
            ahead=ahead,
            now=workflow.now(),
            # What a parked episode did to the power is its own affair.
            power=() if own is not None else tuple(state.power.values()),
            held_off=hold_offs.against_requests(state),
            paused=pauses.of_all(pauses.in_force(state.pauses, workflow.now())),
            counted_under=own.checks if own is not None else (),
        )

    def look(self, asked: PermitQuestion, *, halted: str) -> PermitQuestion:
        """Whether that incident may disrupt that node now, and why not (S14, S20). halted: why no node may be disrupted, by a
        person's request; "": none has asked for that."""
        permit, report = self._state.permits.get(asked.node), self._state.report
        if permit is None or permit.incident != asked.incident or permit.state is PermitState.PARKED:
            reason = f"the permit of {asked.node} is held by {permit.incident if permit else 'no episode'}"
        elif permit.override and asked.override != permit.override:
            reason = f"the permit of {asked.node} overrides a {permit.override}, and no NodeAction attests that a person does"
        else:
            # Whatever was true when its permit was granted.
            reason = halted
            if not reason and report is not None and permit.control_plane is not False:
                reason = quorum_objection(report, self.counted(report), permit)
        return replace(asked, held=not reason, reason=reason, paused=halted)

    def hand_out(self, request: PortionRequest) -> PortionAnswer:
        """How many pods that episode may free now. It needs no permit: what it may free its proof says, here only how fast."""
        state = self._state
        state.portions, answer = portion_of(state.portions, request, workflow.now(), used_within=options.ACT_WINDOW)
        return answer

    # Permits, and what their episodes begin with ----------------------------------------------------------------------

    def reserve_for_candidate(
        self, candidate: Candidate, *, state: PermitState = PermitState.RESERVED
    ) -> FencingInput | RemediationInput:
        """state: parked for one that only asks a person."""
        permit = self._reserve(
            node=candidate.node,
            kind=Kind.REMEDIATION if candidate.ladder else Kind.FENCING,
            state=state,
            provider_id=candidate.provider_id,
            zone=candidate.zone,
            control_plane=candidate.control_plane,
            reason=candidate.reason,
            node_uid=candidate.uid,
            groups=candidate.groups,
            checks=candidate.checks,
            healthy_under=candidate.healthy_under,
            owner=candidate.owner,
            removes=removes(candidate.ladder),
        )
        need = Need(
            kind=candidate.need,
            reason=f"{candidate.check.key}: {candidate.message or candidate.reason}",
            check=candidate.check,
            requester=candidate.check.key,
            since=candidate.since if candidate.dated else None,
            cause=candidate.reason,
            object_uid=candidate.object_uid,
            delegate=candidate.delegate,
        )
        if not candidate.ladder:
            return replace(self._fencing(permit, need), template=candidate.template)
        return replace(
            self._remediation(permit, need, candidate),
            ladder=candidate.ladder,
            failed=candidate.failed,
            retry=candidate.retry,
            exhausted=candidate.exhausted,
            memory=candidate.memory,
            permit_granted=state is not PermitState.PARKED,
        )

    def reserve_for_clean_up(self, orphan: SeenNode) -> FencingInput:
        """A healthy node with the mark of an episode that is not open."""
        reason = f"carries the mark of incident {orphan.incident}, which is not open"
        permit = self._reserve(node=orphan.node, node_uid=orphan.uid, kind=Kind.FENCING, reason=reason)
        return self._fencing(permit, Need(kind=NeedKind.CLEAN_UP, reason=reason, requester=workflow.info().workflow_id))

    def reserve_for_left_over(self, found: LeftOver) -> RemediationInput:
        """An object that an earlier episode has left behind: it is followed and deleted."""
        permit = self._reserve(node=found.node, node_uid=found.node_uid, kind=Kind.REMEDIATION, reason=found.reason)
        need = Need(kind=NeedKind.CHECK, reason=found.reason, check=found.check, requester=workflow.info().workflow_id)
        return replace(self._remediation(permit, need, found), ladder=(found.step,), adopts=found.name)

    def grant(self, request: PermitRequest, report: ScanReport) -> None:
        """The permit of an open episode that has asked. The checks that counted under the one it had go on counting (S14), and
        one that it holds stays past the circuit breaker that it was granted past, whatever it asks for by now (S17). Only a
        person's request ends a hold-off, and not before: it may be given up in the queue (S19). Whether it is one of an open
        episode is found out at once, as is whether its node is of the control plane where only it says so (S15)."""
        if request.by_person and (request.node in self._state.held_off or request.node in self._state.attempts):
            self._state.described_at = None
        known = self._permit_of(request)
        checks = checks_of(report, request.node)
        if known is not None and known.state is not PermitState.PARKED:
            request = replace(request, override=known.override)
        subject = request.as_subject()
        if known is not None and known.control_plane is None and not request.control_plane:
            subject["control_plane"], self._state.described_at = None, None
        self._state.put(
            Permit(
                **subject,
                state=PermitState.OPEN,
                granted_at=workflow.now(),
                groups=groups_of(report, request.node),
                checks=tuple(sorted({*(checks or ()), *(known.checks if known is not None else ())})),
                healthy_under=known.healthy_under if known is not None else (),
                found=checks is None and (known is None or known.found),
            )
        )

    def _reserve(self, *, node: str, state: PermitState = PermitState.PARKED, **known: Any) -> Permit:
        """For an episode that is opened next. A parked one counts in no budget; its node is held all the same. known: fields of
        Permit."""
        ids = {"workflow_id": episode_id(self._scanner.cluster, node), "incident": workflow.uuid4().hex[:12]}
        permit = Permit(node=node, state=state, granted_at=workflow.now(), **ids, **known)
        self._state.put(permit)
        return permit

    def _fencing(self, permit: Permit, need: Need) -> FencingInput:
        return FencingInput(
            cluster=self._scanner.cluster,
            node=permit.node,
            node_uid=permit.node_uid,
            reason=need.reason,
            requester=need.requester,
            incident=permit.incident,
            need=need,
            permit_granted=True,
            holder=self._state.holder,
        )

    def _remediation(self, permit: Permit, need: Need, victim: Candidate | LeftOver) -> RemediationInput:
        return RemediationInput(
            cluster=self._scanner.cluster,
            node=permit.node,
            machine=victim.machine_ref,
            machine_uid=victim.machine_uid,
            node_uid=permit.node_uid,
            reason=need.reason,
            requester=need.requester,
            incident=permit.incident,
            holder=self._state.holder,
            need=need,
        )
