"""NodeActions that people have made with kubectl are carried out, and answered in their status: Done, or Refused with the reason.

The scan sees them (`watch/following.py`) and calls `attend`; the work is done beside it, and it waits for none of that. Whoever
dies in the middle is followed by another process that says the same word again: it counts once
(`activities/node_action_dispatcher.py`). None is carried out whose name may be anybody's, whatever words are heard else: who
may make objects could not speak at all without them. Those that a command line has made are said by it. What is a day old is
taken away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import NODE_ACTIONS
from activities.cluster.api.refusals import ObjectNotFound, edit
from activities.cluster.live.attestation import doubt_of
from activities.cluster.report.background_writer import Attending
from activities.errors import ErrorType, error_type
from policy.episode.operator_commands import NAMESPACE, SAID_LABEL, WITHIN, ActionName, Spoken, Verb, spoken_of
from policy.values.display_text import in_a_line
from policy.values.times import moment_of, written

log = logging.getLogger(__name__)

DONE, REFUSED = "Done", "Refused"
BEGINNINGS = {Verb.FENCE, Verb.PRESERVE, Verb.REMEDIATE}
"""Said again after their episode has ended, they would begin another one, if only to be refused."""
AT_ONCE = 8
TRY_AGAIN_SECONDS = 5.0
KEPT_FOR = timedelta(days=1)
LOOK_AGAIN_SECONDS = 3600.0
"""Whether something is a day old by now."""


class Speaks(Protocol):
    """Whoever passes a word on."""

    async def say(self, cluster: str, spoken: Spoken, action: ActionName, who: str) -> str:
        """The answer. Raises NotLicensed where it is refused."""

    async def tell_policies(self, cluster: str, policies: str) -> None:
        """Which policies name devices, for the check of fence devices. Raises Unreachable."""


class ActionKeeping(Attending):
    """Of one cluster. found: the objects as last seen, by namespace and name. One per view; `close` ends what is under way."""

    def __init__(
        self,
        cluster: str,
        connection: ClusterConnection,
        found: Mapping[str, JsonObject],
        herald: Speaks,
        *,
        kept_for: timedelta = KEPT_FOR,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__("NodeActions", on_change=on_change)
        self._cluster = cluster
        self._connection = connection
        self._found = found
        self._herald = herald
        self._kept_for = kept_for
        self._not_before: dict[str, float] = {}
        """Until when each object is left alone: our answer to it may still be on its way to us."""

    def attend(self) -> float:
        """See to what is there, beside the caller. In how many seconds to call again; `on_change` says when work has ended."""
        if self.busy or not self._found:
            return float("inf")
        now = asyncio.get_running_loop().time()
        self._not_before = {uid: until for uid, until in self._not_before.items() if until > now}
        due = [each for each in self._found.values() if self._is_due(each)]
        if now_due := [each for each in due if _uid(each) not in self._not_before]:
            self._not_before |= dict.fromkeys(map(_uid, now_due), now + TRY_AGAIN_SECONDS)
            self.begin(self._work(now_due))
            return float("inf")
        return min((self._not_before[_uid(each)] - now for each in due), default=LOOK_AGAIN_SECONDS)

    async def _work(self, due: list[JsonObject]) -> None:
        for first in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._see_to(each) for each in due[first : first + AT_ONCE]))

    def _is_due(self, found: JsonObject) -> bool:
        labels = found["metadata"].get("labels") or {}
        said = SAID_LABEL in labels or (found.get("status") or {}).get("phase") in {DONE, REFUSED}
        return not said or self._age(found) > self._kept_for

    def _age(self, found: JsonObject) -> timedelta:
        made = moment_of(found["metadata"].get("creationTimestamp"))
        return self._connection.now() - made if made is not None else timedelta.max

    async def _see_to(self, found: JsonObject) -> None:
        name = found["metadata"]["name"]
        try:
            if self._age(found) > self._kept_for:
                await self._connection.delete(_path(name), uid=found["metadata"]["uid"])
            else:
                await self._answer(found, *await self._said(found))
        except ObjectNotFound:
            return
        except ApplicationError as error:
            log.warning("NodeAction/%s is not answered yet: %s", name, error.message)

    async def _said(self, found: JsonObject) -> tuple[str, str]:
        """The phase, and what was answered. What was made use of was heard, however long ago, and if its answer was lost: it is
        said again for that, and is obeyed once."""
        spec: dict[str, Any] = found.get("spec") or {}
        status = found.get("status") or {}
        used = bool(status.get("usedBy"))
        if used and (spec.get("action") in BEGINNINGS or (spec.get("action") == Verb.ACK_OFF and not spec.get("question"))):
            return DONE, f"{status.get('workflow')} has begun"
        if not used and self._age(found) > WITHIN:
            return REFUSED, f"it is older than {WITHIN.total_seconds():.0f} s, and it was not carried out: create a new one"
        if not used and (problem := await doubt_of(self._connection, found)):
            return REFUSED, problem
        action = ActionName(name=found["metadata"]["name"], uid=found["metadata"]["uid"])
        try:
            return DONE, await self._herald.say(self._cluster, spoken_of(spec), action, str(spec.get("requestedBy", "")))
        except ValueError as error:
            return REFUSED, str(error)
        except ApplicationError as error:
            if error_type(error) is not ErrorType.NOT_LICENSED:
                raise
            if used:
                return DONE, f"{status.get('workflow')} has accepted it; asked again for its answer: {error.message}"
            return REFUSED, error.message

    async def _answer(self, found: JsonObject, phase: str, message: str) -> None:
        name = found["metadata"]["name"]

        async def once() -> None:
            live = await self._connection.get(_path(name))
            status = live.get("status") or {}
            if live["metadata"]["uid"] != found["metadata"]["uid"] or status.get("phase") in {DONE, REFUSED}:
                return
            told = status | {"phase": phase, "message": in_a_line(message, 1024), "at": written(self._connection.now())}
            operations = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
                {"op": "add", "path": "/status", "value": told},
            ]
            await self._connection.patch_json(_path(name, status=True), operations)

        await edit(f"NodeAction/{name}", once, look_again=True)


def _uid(found: JsonObject) -> str:
    return str(found["metadata"]["uid"])


def _path(name: str, *, status: bool = False) -> str:
    return NODE_ACTIONS.path(name, namespace=NAMESPACE, subresource="status" if status else "")
