"""What is said of an episode that was just begun or joined: the same on the command line and on the page."""

from __future__ import annotations

from datetime import datetime

from starter.handles.episodes import EpisodeHandle
from starter.output.models import Begun


def begun(episode: EpisodeHandle, stands: str, *, permit: bool | None = None, until: datetime | None = None) -> Begun:
    """For programs. permit, until: see Begun."""
    return Begun(
        cluster=episode.cluster,
        node=episode.node,
        workflow_id=episode.workflow_id,
        run_id=episode.run_id,
        joined=episode.joined,
        stands=stands,
        permit=permit,
        until=until,
    )


def in_words(found: Begun, noun: str) -> str:
    """For people."""
    how = f"{'joined the' if found.joined else 'started'} {noun} of {found.node}"
    return f"{how}: {found.stands} ({found.workflow_id}, run {found.run_id})"
