"""What people say on the page, and what they are shown before: the same words as on the command line, by the same functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from temporalio.exceptions import ApplicationError

from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome
from policy.episode.operator_commands import (
    ANSWERS,
    CIRCUIT_BREAKER,
    NOT_VERIFIED,
    OVERRIDES,
    Verb,
    override_problem,
    reason_problem,
)
from policy.fence.config import ShownConfig, shown_config
from policy.preservation.requests import LONGEST_PRESERVATION
from policy.scan.permit_rules import OVERRIDABLE, against_requests
from policy.values.times import parse_duration
from starter import wording
from starter.client import Nodewarden
from starter.errors import MissingError, RefusedError, RequestError
from starter.handles.episodes import EpisodeHandle
from starter.handles.node_actions import name_of
from starter.output.at_stake import SECONDS_TO_READ, device_words, pods_on, unread
from starter.output.begun import begun, in_words
from starter.output.models import Begun, Told
from starter.output.permits import in_the_way, refused_now, still_stopped_by
from starter.plans.fence_plans import planned
from starter.web.answers import UnreadableError
from starter.web.auth import Caller
from starter.web.overview import Overview, overview_of, stop_of
from starter.web.views import Views

CONSEQUENCES = {
    Verb.PAUSE: "nothing new is begun in this cluster and nothing destructive is done, until `unpause` or for a while; what is "
    "off already is still freed and switched on again",
    Verb.UNPAUSE: "your own pause ends, or the one that you choose; the cluster goes on when none is left",
    Verb.FENCE: "the machine is switched off and on again, and its pods are freed once it is proven off",
    Verb.REMEDIATE: "the node is repaired or replaced, as the health check that covers it says",
    Verb.PRESERVE: "the machine is kept as it is, powered, until its time is over or a person releases it",
}
"""Of the words that no open episode has to hear."""

NONE_BEGINS = "no episode of this node is begun until `resume`"
OF_THE_CLUSTER = frozenset({Verb.PAUSE, Verb.UNPAUSE})
WITH_A_TIME = {Verb.PAUSE: False, Verb.HOLD: False, Verb.PRESERVE: False, Verb.EXTEND: True}
"""Whether that word needs one."""
POWERS = frozenset({Verb.FENCE, Verb.ACK_OFF, Verb.ABORT, Verb.REMEDIATE})
"""Before these it is said what runs on the machine."""


class WordToSay(BaseModel):
    """A word to be said. node: "" of `pause` and `unpause`. for: how long, such as 2h. powerOn: of `abort`, whether a machine
    that is off by then is switched on again. question: of what answers one, its number as the person has seen it. of: of
    `unpause` and `resume`, to whom the pause or hold belongs, "" for one's own. override: what it passes over, with commas
    between (`circuit-breaker`; of `ack-off` also `device-reads-on`). nodeName: with an override, and with `ack-off`, the node's
    name, which the person has typed once more."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="forbid")

    word: Verb
    node: str = ""
    reason: str
    hold: Annotated[str, Field(alias="for")] = ""
    power_on: Annotated[bool, Field(alias="powerOn")] = False
    question: int = 0
    of: str = ""
    override: str = ""
    node_name: Annotated[str, Field(alias="nodeName")] = ""

    def checked(self) -> WordToSay:
        """Raises UnreadableError that names the field."""
        if said := reason_problem(self.reason):
            raise UnreadableError(f"reason: {said}")
        if self.word is Verb.STOP_SCAN:
            raise UnreadableError("word: expected another one; use `nodewarden scan stop` on the command line")
        if bool(self.node) is (self.word in OF_THE_CLUSTER):
            raise UnreadableError(f"node: expected {'none' if self.node else 'a node'} with {self.word.value}")
        if self.hold and self.word not in WITH_A_TIME:
            raise UnreadableError(f"for: expected nothing with {self.word.value}, got {self.hold!r}")
        if self.of and self.word not in {Verb.UNPAUSE, Verb.RESUME}:
            raise UnreadableError(f"of: expected nothing with {self.word.value}, got {self.of!r}")
        if self.override and (problem := override_problem(self.override, self.word)):
            raise UnreadableError(f"override: {problem}")
        if (self.override or self.word is Verb.ACK_OFF) and self.node_name != self.node:
            raise UnreadableError(f"nodeName: expected {self.node}, typed once more, got {self.node_name!r}")
        if WITH_A_TIME.get(self.word) and not self.hold:
            raise UnreadableError(f"for: expected a duration such as 24h with {self.word.value}, got nothing")
        return self

    @property
    def span(self) -> timedelta | None:
        """Raises UnreadableError."""
        try:
            found = parse_duration(self.hold) if self.hold else None
        except ValueError:
            found = timedelta(0)
        if found is not None and not timedelta(0) < found <= LONGEST_PRESERVATION:
            raise UnreadableError(f"for: expected a duration above 0 such as 24h or 90m, got {self.hold!r}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ActPreview:
    """What would come of a word. heard: whether it is heard now; why_not: else why not. refused: why a new episode would get no
    permit now, also where the word may override that. known: what is known of the machine and
    of what stands in the way. plan: what fencing would do, of `fence`. command: how it is said on the
    command line, "" where it is not heard. owners: to whom the pauses or holds belong of which that word ends one. overridable:
    whether a circuit breaker is open that the word may override."""

    cluster: str
    word: Verb
    node: str
    heard: bool
    why_not: str
    refused: str
    consequence: str
    known: tuple[str, ...]
    permits_used: int
    permits_of: int
    plan: ShownConfig | None = None
    command: str = ""
    question: int = 0
    owners: tuple[str, ...] = ()
    overridable: bool = False


async def said(caller: Caller, cluster: str, act: WordToSay) -> Told | Begun:
    """Say it, as who asks. Raises UnreadableError, RefusedError, MissingError, SilentError."""
    act.checked()
    span = act.span
    warden, reason = caller.warden, act.reason.strip()
    if act.word in OF_THE_CLUSTER:
        scanner = warden.scanner(cluster)
        if act.word is Verb.PAUSE:
            until = datetime.now(UTC) + span if span is not None else None
            return Told(cluster=cluster, answer=await scanner.pause(who="", reason=reason, until=until))
        return Told(cluster=cluster, answer=await scanner.unpause(who="", reason=reason, of=act.of))
    if act.word in CONSEQUENCES:
        return await _begun(warden, cluster, act, reason, span)
    episode = warden.episode(cluster, act.node)
    answer = await _told(warden, episode, act, reason, span)
    return Told(cluster=cluster, answer=answer, node=act.node, workflow_id=episode.workflow_id)


async def _told(warden: Nodewarden, episode: EpisodeHandle, act: WordToSay, reason: str, span: timedelta | None) -> str:
    words: dict[Verb, Callable[[], Awaitable[str]]] = {
        Verb.ABORT: lambda: episode.abort(who="", reason=reason, power_on=act.power_on),
        Verb.ACK_OFF: lambda: episode.ack_off(who="", reason=reason, question=act.question, override=act.override),
        Verb.RETURN_PATH: lambda: episode.return_path(who="", reason=reason, question=act.question),
        Verb.HOLD: lambda: episode.hold(who="", reason=reason, until=datetime.now(UTC) + span if span is not None else None),
        Verb.RELEASE: lambda: episode.release(who="", reason=reason),
        Verb.EXTEND: lambda: episode.extend(who="", reason=reason, hold=span),
        Verb.ISOLATE: lambda: episode.isolate(who="", reason=reason),
    }
    if act.word is not Verb.RESUME:
        return await words[act.word]()
    before = await in_the_way(warden, episode)
    return "; ".join(filter(None, (await episode.resume(who="", reason=reason, question=act.question, of=act.of), before)))


async def _begun(warden: Nodewarden, cluster: str, act: WordToSay, reason: str, span: timedelta | None) -> Begun:
    if act.word is Verb.PRESERVE:
        episode = await warden.preserve(cluster, act.node, reason=reason, hold=span)
        found = await episode.kept()
    else:
        begin = warden.fence if act.word is Verb.FENCE else warden.remediate
        episode = await begin(cluster, act.node, reason=reason, override=act.override)
        found = await episode.decided()
    if isinstance(found, EpisodeResult):
        if found.missing:
            raise MissingError(found.message)
        raise RefusedError(found.message if found.outcome is Outcome.REFUSED else wording.ending(found))
    if act.word is Verb.PRESERVE:
        stands = wording.kept(found) if found is not None else wording.standing(None)
        return begun(episode, stands, until=found.preserved_until if found is not None else None)
    return begun(episode, wording.standing(found), permit=found is not None and found.permit)


def in_a_line(answer: Told | Begun, word: Verb) -> str:
    """For people."""
    nouns = {Verb.FENCE: "fencing", Verb.REMEDIATE: "remediation", Verb.PRESERVE: "preservation"}
    return answer.answer if isinstance(answer, Told) else in_words(answer, nouns[word])


async def preview(views: Views, caller: Caller, cluster: str, word: Verb, node: str) -> ActPreview:
    """What would come of it, as far as the views and the caller's own rights let it be seen. Raises UnreadableError."""
    WordToSay(word=word, node=node, node_name=node, reason="-", hold="1h" if WITH_A_TIME.get(word) else "").checked()
    status = await views.known(cluster).status()
    overview = overview_of(status)
    episode, why_not, consequence = None, "", CONSEQUENCES.get(word, "")
    if node:
        try:
            episode = await views.warden.episode(cluster, node).status()
        except RequestError as error:
            why_not = "" if word in CONSEQUENCES or word is Verb.HOLD else str(error)
            consequence = consequence or (NONE_BEGINS if word is Verb.HOLD else "")
    if episode is not None:
        why_not, consequence = _heard(episode, word, consequence)
    known = _in_the_way(overview, word) if word in CONSEQUENCES and node else []
    asks = word in {Verb.FENCE, Verb.REMEDIATE} and not why_not
    refused = refused_now(status.scanner, cluster, node, status.at) if asks else ""
    known = [each for each in known if each != refused]
    known += [wording.at_risk(row, status.at) for row in overview.at_risk if row.node == node]
    if word in POWERS:
        known += [f"its fence device {row.endpoint} has a problem: {row.problem}" for row in status.devices if row.node == node]
    if episode is not None and word is Verb.RESUME and (stopped := still_stopped_by(status.scanner, episode, status.at)):
        known.append(wording.not_yet(stopped))
    plan = None
    if episode is not None and word is Verb.ACK_OFF and not why_not:
        known += await device_words(views.warden, episode)
    if node and word in POWERS:
        plan, seen = await _looked(caller, views, cluster, node, word)
        known += seen
    return ActPreview(
        cluster=cluster,
        word=word,
        node=node,
        heard=not why_not,
        why_not=why_not,
        refused=refused,
        consequence=consequence,
        known=tuple(known),
        permits_used=overview.permits_used,
        permits_of=overview.permits_of,
        plan=plan,
        command=_command(episode, word, node),
        question=episode.question if episode is not None and word in ANSWERS else 0,
        owners=_owners(overview, episode, word),
        overridable=word in OVERRIDES[CIRCUIT_BREAKER]
        and any(not each.allowed and each.reason in OVERRIDABLE for each in overview.checks),
    )


def _owners(overview: Overview, episode: EpisodeStatus | None, word: Verb) -> tuple[str, ...]:
    if word is Verb.UNPAUSE:
        return tuple(each.owner for each in overview.pauses)
    return episode.held_by if episode is not None and word is Verb.RESUME else ()


def _in_the_way(overview: Overview, word: Verb) -> list[str]:
    """Of all that keeps the scanner from acting what keeps it from this. To keep a machine no check is asked, for what disrupts
    all are: in the words of the refusal."""
    of_checks = {stop_of(check): against_requests(check) if word is not Verb.PRESERVE else "" for check in overview.checks}
    return [said for each in overview.stops if (said := of_checks.get(each, each))]


def _command(episode: EpisodeStatus | None, word: Verb, node: str) -> str:
    """As the open episode has it; of what needs none, its word."""
    if word in CONSEQUENCES:
        return f"nodewarden {word.value} {node}".strip()
    return next((way.command for way in episode.ways if way.word is word), "") if episode is not None else ""


def _heard(episode: EpisodeStatus, word: Verb, consequence: str) -> tuple[str, str]:
    """Why an open episode does not hear that word, "" where it does, and what comes of it."""
    if word in CONSEQUENCES:
        return f"{episode.node} has an open episode already: {episode.kind.value}, {episode.doing}", consequence
    found = next((way for way in episode.ways if way.word is word), None)
    if found is not None:
        return "", found.consequence
    hears = ", ".join(way.word.value for way in episode.ways)
    return f"the episode of {episode.node} does not accept {word.value} now{f', but {hears}' if hears else ''}", consequence


async def said_by(caller: Caller, cluster: str) -> str:
    """By what name the word is said: Kubernetes', where it gives one."""
    async with caller.opening(cluster) as connection:
        with suppress(ApplicationError, TimeoutError):
            async with asyncio.timeout(SECONDS_TO_READ):
                if connection is not None:
                    return f"{await name_of(connection)}, if Kubernetes verifies it"
    return f"{caller.name}{NOT_VERIFIED}" if caller.name else ""


async def _looked(caller: Caller, views: Views, cluster: str, node: str, word: Verb) -> tuple[ShownConfig | None, list[str]]:
    """By the caller's own rights: what runs there, and what fencing would do."""
    async with caller.opening(cluster) as connection:
        if connection is None:
            return None, []
        seen, plan = [await pods_on(connection, node)], None
        try:
            async with asyncio.timeout(SECONDS_TO_READ):
                if word is Verb.FENCE and views.source is not None:
                    plan = shown_config(await planned(connection, node, source=views.source))
        except (ApplicationError, RequestError, TimeoutError) as error:
            seen.append(unread("what would be done", error))
        return plan, seen
