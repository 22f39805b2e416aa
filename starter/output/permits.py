"""What would still be in the way of an episode that a person holds, or is asked about, once that person has it go on.

It is asked of the scanner's own rules, about the table and the report that it has shown last. To be looked at; the scanner
decides by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from policy.episode.messages import EpisodeStatus, Kind, Phase, episode_id
from policy.episode.operator_commands import CIRCUIT_BREAKER
from policy.episode.permits import Permit, PermitAnswer, PermitDecision, PermitRequest, PermitState
from policy.scan import pauses
from policy.scan.admission import answer_request
from starter import wording
from starter.errors import MissingError, RequestError
from workflows.kit.messages import ScannerStatus

if TYPE_CHECKING:
    from starter.client import Nodewarden
    from starter.handles.episodes import EpisodeHandle


def still_stopped_by(scanner: ScannerStatus | None, episode: EpisodeStatus, now: datetime) -> str:
    """Why the scanner would give no permit now, "" where it would, or none is needed: after off only restoring may be left, which
    asks for none (S17)."""
    waits = episode.phase is Phase.NEEDS_HUMAN or episode.held
    asks = waits and not episode.permit and episode.off_proof is None and episode.kind is not Kind.PRESERVATION
    if scanner is None or not asks:
        return ""
    request = PermitRequest(
        node=episode.node,
        workflow_id=episode_id(episode.cluster, episode.node),
        incident=episode.incident,
        kind=episode.kind,
        provider_id=episode.provider_id,
        control_plane=episode.control_plane is not False,
        node_uid=episode.node_uid,
        by_person=True,
        override=CIRCUIT_BREAKER if episode.override else "",
    )
    others = [each for each in scanner.permits if each.incident != episode.incident or each.state is not PermitState.PARKED]
    answer = _answer(scanner, request, now, others)
    return "" if answer.decision is PermitDecision.GRANTED else answer.reason


def refused_now(scanner: ScannerStatus | None, cluster: str, node: str, now: datetime) -> str:
    """Why a person's new request about a node would be refused now, "" where it would begin, or wait for a permit."""
    if scanner is None:
        return ""
    request = PermitRequest(node=node, workflow_id=episode_id(cluster, node), incident="", by_person=True)
    answer = _answer(scanner, request, now, scanner.permits)
    return answer.reason if answer.decision is PermitDecision.REFUSED else ""


def _answer(scanner: ScannerStatus, request: PermitRequest, now: datetime, permits: Iterable[Permit]) -> PermitAnswer:
    paused = pauses.described(scanner.pauses)
    return answer_request(scanner.report, permits, request, cap=scanner.concurrency, now=now, paused=paused)


async def in_the_way(warden: Nodewarden, episode: EpisodeHandle) -> str:
    """What would keep it although a person has it go on, "" where nothing does, or that can't be asked."""
    try:
        status, scanner = await asyncio.gather(episode.status(), warden.scanner_status(episode.cluster))
    except MissingError:
        return ""
    except RequestError as error:
        return wording.not_yet(str(error))
    stopped = still_stopped_by(scanner, status, datetime.now(UTC))
    return wording.not_yet(stopped) if stopped else ""
