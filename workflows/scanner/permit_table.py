"""The permit table as the scanner keeps it: one line per node, and the queue of those who asked.

Only bookkeeping; who gets a permit is `policy/scan/admission.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import Kind
from policy.episode.permits import NeedsPerson, Permit, PermitRequest, PermitState

REMIND_EVERY = timedelta(minutes=30)
"""How often people are told that an episode still waits for one of them."""


class PermitTable:
    """Lines in the order they were granted. Grows with open episodes, never with nodes."""

    def __init__(
        self,
        permits: tuple[Permit, ...] = (),
        queue: tuple[PermitRequest, ...] = (),
        need_person: tuple[NeedsPerson, ...] = (),
    ) -> None:
        self._permits = {permit.node: permit for permit in permits}
        self._queue = {request.incident: request for request in queue}
        self._need_person = {each.node: each for each in need_person}

    def permits(self) -> tuple[Permit, ...]:
        """All lines, parked ones included."""
        return tuple(self._permits.values())

    def queue(self) -> tuple[PermitRequest, ...]:
        """Who waits, first come first."""
        return tuple(self._queue.values())

    @property
    def need_person(self) -> tuple[NeedsPerson, ...]:
        """The open episodes that wait for a person."""
        return tuple(self._need_person.values())

    def to_be_reminded_of(self, now: datetime) -> tuple[NeedsPerson, ...]:
        """Of whom people are to be told once more."""
        return tuple(each for each in self._need_person.values() if now - each.told >= REMIND_EVERY)

    def reminded(self, incidents: Collection[str], at: datetime) -> None:
        """People have been told of these once more."""
        told = (each for each in self._need_person.values() if each.incident in incidents)
        self._need_person |= {each.node: replace(each, told=at) for each in told}

    def nodes(self) -> tuple[str, ...]:
        """Nodes that some episode holds or waits for."""
        return tuple(dict.fromkeys([*self._permits, *(request.node for request in self._queue.values())]))

    def of(self, node: str) -> Permit | None:
        """The line of a node."""
        return self._permits.get(node)

    def put(self, permit: Permit) -> None:
        """Reserve or grant; a request that waited waits no more."""
        self._permits[permit.node] = permit
        self._queue.pop(permit.incident, None)
        self._need_person.pop(permit.node, None)

    def enqueue(self, request: PermitRequest) -> None:
        """Remember who asked; asking twice keeps the place, and counts as it was asked last."""
        self._queue[request.incident] = request

    def opened(self, node: str, incident: str) -> None:
        """A reservation's episode is known to run."""
        self._change(node, incident, PermitState.OPEN, only=PermitState.RESERVED)

    def park(self, node: str, incident: str, *, asks: datetime | None = None) -> None:
        """The episode waits: it keeps its node and counts no more. asks: when it has asked for a person, if it is that."""
        self._change(node, incident, PermitState.PARKED)
        if asks is not None:
            self._need_person[node] = NeedsPerson(node=node, incident=incident, told=asks, since=asks)

    def remove(self, node: str, incident: str) -> None:
        """The episode has ended; another incident's line is left alone."""
        self._queue.pop(incident, None)
        asking = self._need_person.get(node)
        if asking is not None and asking.incident == incident:
            del self._need_person[node]
        permit = self._permits.get(node)
        if permit is not None and permit.incident == incident:
            del self._permits[node]

    def counted(self) -> int:
        """How many lines count in the budgets: all but the parked (S14)."""
        return sum(permit.holding is not PermitState.PARKED for permit in self._permits.values())

    def reconcile(self, episode: EpisodeDescription, asked_at: datetime, *, room: bool, anew: bool = False) -> None:
        """Believe the server: closed or unknown holders go, open ones we did not know of are taken in.

        A line granted after the server was asked is left alone: the answer is older than it. A holder that we do not know of
        counts at once if there is room, else it keeps its node and asks again like anybody (its last look stops it until then).
        anew: a reset has made our account an old one, so what an episode says of its permit goes before it.
        """
        permit = self._permits.get(episode.node)
        if permit is not None and permit.granted_at >= asked_at:
            return
        asking = self._need_person.get(episode.node)
        if asking is None or (asking.since or asking.told) < asked_at:
            self._need_person.pop(episode.node, None)
        if episode.open and episode.parked:
            known = asking is not None and asking.incident == episode.incident
            new = NeedsPerson(node=episode.node, incident=episode.incident, told=asked_at, since=asked_at)
            self._need_person[episode.node] = asking if known and asking is not None else new
        if not episode.open:
            if permit is not None:
                self.remove(episode.node, permit.incident)
            for request in self.queue():
                if request.node == episode.node:
                    self._queue.pop(request.incident, None)
            return
        parked = permit is not None and permit.holding is PermitState.PARKED
        forgotten = anew and parked and episode.permit and not episode.parked
        if permit is not None and episode.incident in {"", permit.incident} and not forgotten:
            self._confirm(permit, episode, parked=episode.parked or (anew and not episode.permit))
            return
        if episode.kind is Kind.PRESERVATION and not episode.permit:
            return  # its workflow id holds the node; a line here would outlive it, for it has no permit to give back
        asks = not episode.parked and not room
        self._permits[episode.node] = Permit(
            node=episode.node,
            workflow_id=episode.workflow_id,
            incident=episode.incident,
            kind=episode.kind,
            holding=PermitState.OPEN if room and not episode.parked and episode.permit else PermitState.PARKED,
            granted_at=episode.started or asked_at,
            provider_id=episode.provider_id,
            control_plane=episode.control_plane,
            node_uid=episode.node_uid,
            found=True,
            override=episode.override,
        )
        if asks and episode.permit and episode.incident:
            self.enqueue(
                PermitRequest(
                    node=episode.node,
                    workflow_id=episode.workflow_id,
                    incident=episode.incident,
                    kind=episode.kind,
                    provider_id=episode.provider_id,
                    control_plane=episode.control_plane is not False,
                    node_uid=episode.node_uid,
                    override=episode.override,
                )
            )

    def _confirm(self, permit: Permit, episode: EpisodeDescription, *, parked: bool) -> None:
        """A line whose episode is open. Only the episode's own parking parks it: a grant may be younger than its answer. What the
        line does not say of the node (it was taken in while its episode was silent) the episode does. Whoever once said
        that it is of the control plane is believed (S15)."""
        said = {permit.control_plane, episode.control_plane}
        holding = PermitState.OPEN if permit.holding is PermitState.RESERVED else permit.holding
        self._permits[permit.node] = replace(
            permit,
            holding=PermitState.PARKED if parked else holding,
            control_plane=next((each for each in (True, False) if each in said), None),
            node_uid=permit.node_uid or episode.node_uid,
            provider_id=permit.provider_id or episode.provider_id,
        )

    def _change(self, node: str, incident: str, holding: PermitState, only: PermitState | None = None) -> None:
        permit = self._permits.get(node)
        if permit is not None and permit.incident == incident and (only is None or permit.holding is only):
            self._permits[node] = replace(permit, holding=holding)
