"""Kubernetes Events (core/v1), so that `kubectl describe` and `kubectl get events` show the story.

One object, reason and message is one Event with a count: its name is derived from them, so that a retry, another worker or the
next process counts on instead of adding a line. Events are for people and vanish after an hour; nothing of ours ever reads one of
them (others' are read by `events_on_node`). What happened to an episode is in its decision record, whether a circuit breaker is
open in the check's status (`objects/check_statuses.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import EVENTS
from activities.cluster.api.refusals import ObjectExists, edit
from activities.errors import ErrorType, failure
from policy.episode.proofs import CLOCK_TOLERANCE
from policy.objects.nodes import NodeEvent
from policy.values.display_text import in_a_line
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of

COMPONENT = "nodewarden"
CLUSTER_SCOPED_NAMESPACE = "default"
"""Where Events about objects without a namespace live; every controller of Kubernetes does the same."""

LONGEST_MESSAGE, LONGEST_READ = 1024, 8 * 1024
"""Characters of an Event's message, as we write it, and as that of another author is read."""
MOST_COUNTED = 2**31 - 1
"""The API server takes no larger count, and refuses the whole Event for one."""
REPEAT_SECONDS = 600.0
"""How long the same Event is not counted again by this process: a scanner says every scan what still holds."""

REMEMBERED = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What to publish, and about which object. `uid` "" where it is not known (describe then finds the Event by name only).

    identity: what tells it from others of that reason, where the message varies for one and the same; "": the message does. One
    that is signed (`Licences.identity_of`) gives the Event a name that only workers of this deployment know beforehand.
    """

    about: ObjectRef
    uid: str
    reason: str
    message: str
    warning: bool = False
    identity: str = ""

    @property
    def name(self) -> str:
        """The Event's name; equal happenings have equal names."""
        identity = "\0".join((self.about.key, self.uid, self.reason, self.identity or self.message))
        return f"{self.about.name[:200]}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


class EventRecorder:
    """Writes Events of one cluster. Raises what the API refuses; whether that matters is the caller's to say."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        instance: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._instance = instance
        self._clock = clock
        self._published: OrderedDict[str, float] = OrderedDict()

    async def publish_unless_recent(self, happening: Happening) -> bool:
        """Publish what still holds, but not again within `REPEAT_SECONDS`. Whether an Event was written."""
        now = asyncio.get_running_loop().time()
        if now - self._published.get(happening.name, float("-inf")) < REPEAT_SECONDS:
            return False
        await self.publish(happening)
        return True

    async def publish_unless_kept(self, happening: Happening) -> bool:
        """Publish it unless any worker has, as long as the server keeps that Event. Whether one was written."""
        return await self.publish(happening, quiet=timedelta.max)

    async def publish(self, happening: Happening, *, quiet: timedelta = timedelta(0)) -> bool:
        """Create the Event, or count it once more. quiet: not if any worker has so shortly ago. Whether it was written.

        Kubelets, and others who may write Events, know what most names are made of. So an Event of that name that says something
        else silences nothing, and says what we say once it is counted (S41). A moment that is yet to come is no worker's: it
        would silence us until then.
        """
        namespace = happening.about.namespace or CLUSTER_SCOPED_NAMESPACE
        collection = EVENTS.path(namespace=namespace)
        path = EVENTS.path(happening.name, namespace=namespace)

        async def once() -> bool:
            now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
            try:
                await self._connection.create(collection, self._document(happening, namespace, now))
            except ObjectExists:
                event = await self._connection.get(path)
                said, last = self._said(happening), moment_of(event.get("lastTimestamp"))
                is_ours = bool(happening.identity) or {**event, **said} == event
                if is_ours and last is not None and -CLOCK_TOLERANCE <= self._clock() - last < quiet:
                    return False
                counted = said | {
                    "metadata": {"resourceVersion": event["metadata"]["resourceVersion"]},
                    "count": min(int(event.get("count") or 1) + 1, MOST_COUNTED),
                    "lastTimestamp": now,
                }
                await self._connection.patch_merge(path, counted)
            self._remember(happening)
            return True

        return await edit(f"Event/{happening.name}", once, may_vanish=True)  # another worker counts it, or it expires just now

    def _document(self, happening: Happening, namespace: str, now: str) -> JsonObject:
        return self._said(happening) | {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": happening.name, "namespace": namespace},
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    @staticmethod
    def _said(happening: Happening) -> JsonObject:
        """What is the same each time."""
        about = happening.about
        reference = {"kind": about.kind, "namespace": about.namespace, "name": about.name, "uid": happening.uid}
        return {
            "involvedObject": {"apiVersion": about.api_version} | {key: value for key, value in reference.items() if value},
            "reason": happening.reason,
            "message": in_a_line(happening.message, LONGEST_MESSAGE),
            "type": "Warning" if happening.warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
        }

    def _remember(self, happening: Happening) -> None:
        self._published[happening.name] = asyncio.get_running_loop().time()
        self._published.move_to_end(happening.name)
        while len(self._published) > REMEMBERED:
            self._published.popitem(last=False)


# Events on one Node, live: for a last look under a policy that asks what was published on it lately. Our own are written above.
#
# Kubelets and problem detectors give a Node's name for its uid, so they are found by name; they expire after an hour.


async def events_on_node(connection: ClusterConnection, node: str) -> tuple[NodeEvent, ...]:
    """All that there are, of every source. Of one no more than is used is held: any kubelet may write thousands (S41)."""
    query = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={node}"}
    found: list[NodeEvent] = []
    async for page in connection.list_pages(EVENTS.path(namespace=CLUSTER_SCOPED_NAMESPACE), query=query):
        try:
            documents = map(_document.decode, _listed.decode(page.body).items or ())
            found += [event for each in documents if (event := _event(each)) is not None]
        except msgspec.DecodeError as error:
            raise failure(ErrorType.TRANSIENT, f"the API server's list of Events cannot be read: {error}") from error
    return tuple(found)


class _Events(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


_listed, _document = msgspec.json.Decoder(_Events), msgspec.json.Decoder(dict[str, Any])


def _event(document: JsonObject) -> NodeEvent | None:
    """None for one that does not say when it happened. Old and new ways of writing it, as both are in use."""
    series: dict[str, Any] = document.get("series") or {}
    moments_of = [
        series.get("lastObservedTime"),
        *(document.get(each) for each in ("lastTimestamp", "eventTime", "firstTimestamp")),
    ]
    moments = [moment for each in moments_of if (moment := moment_of(each)) is not None]
    if not moments:
        return None
    source = (document.get("source") or {}).get("component") or document.get("reportingComponent") or ""
    return NodeEvent(
        reason=str(document.get("reason") or "")[:LONGEST_MESSAGE],
        source=str(source)[:LONGEST_MESSAGE],
        at=max(moments),
        message=str(document.get("message") or "")[:LONGEST_READ],
    )
