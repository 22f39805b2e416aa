"""What an episode is told of the node that it holds: as a scan or a live look has seen it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A node that an episode cares about, as it is now. `present` False: the Node object is gone.

    `incident` is that of the mark it carries ("" for none), so that a mark without an open episode is noticed.
    `unhealthy`: some check says so now, whether or not we may act on it. `soon`: none does, but a timeout runs; a running
    episode is not over by that (a node that goes from Unknown to False starts its time anew). Identity fields are "" where
    unknown. groups: as a candidate's; none for a Node that is gone. asked_by: uids of the objects of other systems that ask for
    the node, or have their answer and still stand; only a scan says so. preserved: the Node says that it is kept now; also only
    of a scan. confirmed_well: a person has confirmed by annotation that it is well. others: in brief, what its Machines and the
    remediation objects about it say, so that a change of these is one; also only of a scan. checks: the keys of the health checks
    that count it, or its Machine, among their targets; also only of a scan.
    """

    node: str
    present: bool = True
    uid: str = ""
    ready: bool = False
    ready_since: datetime | None = None
    boot_id: str = ""
    provider_id: str = ""
    system_uuid: str = ""
    unhealthy: bool = False
    incident: str = ""
    mark_problem: str = ""
    soon: bool = False
    groups: tuple[str, ...] = ()
    asked_by: tuple[str, ...] = ()
    preserved: bool = False
    confirmed_well: bool = False
    others: str = ""
    checks: tuple[str, ...] = ()
