"""Permits that are given back: what a signal says in an episode's name is believed once Temporal shows the same (S14).

Any client of the namespace can send that signal. So the episode itself is asked: a description and its `status`, one question
for all releases of a moment, which an honest one waits for as long as one activity takes. What is never confirmed comes to
nothing; where such a one was true, the regular description of all holders frees the permit (`Holders`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import Kind, Phase
from policy.episode.permits import Release
from workflows.scanner import hold_offs
from workflows.scanner.background_tasks import BackgroundTasks
from workflows.scanner.permits import PAUSE_AFTER_FAILURE, Holders
from workflows.scanner.state import ScannerState, UnconfirmedRelease

CONFIRMED = "a release is confirmed"
"""Marks the histories in which it is: those of earlier builds believed the signal."""
CONFIRMED_WITHIN = timedelta(minutes=1)
"""How long it may take until the episode answers."""
MOST_UNCONFIRMED = 1000


class Releases:
    """Of one scanner. opening: nodes of episodes that are being opened, of which Temporal may know none yet. believe: what
    becomes of a release that is so."""

    def __init__(
        self,
        state: ScannerState,
        holders: Holders,
        background: BackgroundTasks,
        *,
        opening: Collection[str],
        believe: Callable[[Release], None],
    ) -> None:
        self._state = state
        self._holders = holders
        self._background = background
        self._opening = opening
        self._believe = believe
        self._asked = self._busy = self._ending = False

    def take(self, release: Release) -> None:
        """What a signal says."""
        if not workflow.patched(CONFIRMED):
            self._believe(release)
            return
        unconfirmed = UnconfirmedRelease(release=release, at=workflow.now())
        self._state.releases = [*self._state.releases, unconfirmed][-MOST_UNCONFIRMED:]
        self.confirm()

    def confirm(self) -> None:
        """Ask at once, where there is something to ask."""
        self._asked = True
        if self._state.releases and not (self._busy or self._ending):
            self._busy = True
            self._background.begin(self._confirm_all(), repeated=True)

    def end(self) -> None:
        """The next history asks what is left."""
        self._ending = True

    async def _confirm_all(self) -> None:
        while self._state.releases and not self._ending:
            self._asked = False
            await self._confirm()
            if self._state.releases:
                with contextlib.suppress(asyncio.TimeoutError):
                    await workflow.wait_condition(
                        lambda: self._asked or self._ending,
                        timeout=PAUSE_AFTER_FAILURE,
                        timeout_summary="before episodes are asked again for permits that were given back in their names",
                    )
        self._busy = False

    async def _confirm(self) -> None:
        state, asked_at = self._state, workflow.now()
        said = [each for each in state.releases if each.release.node not in self._opening]
        episodes = dict[str, EpisodeDescription]()
        with contextlib.suppress(ActivityError):  # Temporal can't be asked: they are asked again
            episodes = await self._holders.look_up(tuple(dict.fromkeys(each.release.node for each in said)))
        for each in said:
            release, episode = each.release, episodes.get(each.release.node)
            permit = state.permits.get(release.node)
            is_older = permit is not None and permit.incident == release.incident and permit.granted_at >= asked_at
            if episode is not None and not is_older and self._shows(episode, release, asked_at):
                state.releases.remove(each)
                self._believe(release)
            elif is_older or workflow.now() - each.at > CONFIRMED_WITHIN:
                state.releases.remove(each)
                workflow.logger.warning("not believed: a release of incident %s of %s", release.incident, release.node)

    def _shows(self, episode: EpisodeDescription, release: Release, asked_at: datetime) -> bool:
        """Whether that incident holds no permit and does what is said, by what is known of the latest episode of its node. An
        incident that is not in hand here, since it never got a permit, has to be that of an episode that is open, or was a moment
        ago."""
        state, is_its = self._state, episode.incident == release.incident
        if episode.open and (is_its or not episode.incident) and (episode.permit or not _does(episode, release)):
            return False
        in_hand = (state.permits.get(release.node), state.need_person.get(release.node), *state.queue)
        if any(each is not None and each.incident == release.incident for each in in_hand):
            return True
        return is_its and (episode.open or (episode.ended is not None and asked_at - episode.ended < hold_offs.CLOSING))


def _does(episode: EpisodeDescription, release: Release) -> bool:
    """Whether an open episode does what is said. A preservation, and an episode that gives up its machine, may go on without a
    permit."""
    if release.parked or release.held:
        return episode.parked or release.held
    return episode.phase in {Phase.FINAL, Phase.TERMINATING} or episode.kind is Kind.PRESERVATION
