"""Reads the annotations by which people ask for a preservation. The Node's annotation beats the Machine's.

Names and values are those of Gardener's machine-controller-manager and of its proposal; how a value that was removed while no
worker looked is noticed is the rule of `getEffectivePreservationAnnotations` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.values.times import parse_duration

LAST_APPLIED_ANNOTATION = "node.machine.sapcloud.io/last-applied-node-preserve-value"
"""On the Machine: the Node's value that was acted on last. Without it "never annotated" and "removed while we were down" look
the same."""

PRESERVE_FOR_ANNOTATION = "nodewarden.io/preserve-for"
"""How long until the first expiry, instead of the pool's time-out; on the Node or the Machine, the Node's value beats."""

ISOLATE_ANNOTATION = "nodewarden.io/preserve-isolate"
"""Whether a machine that has failed and is kept is to be isolated from its volumes and its network, `true` or `false`; on the
Node or the Machine, the Node's value beats, and either beats the pool."""

LONGEST_PRESERVATION = timedelta(days=365)


class Intent(StrEnum):
    """What a value of the annotation means."""

    NONE = ""
    NOW = "now"
    WHEN_FAILED = "when-failed"
    AUTOMATIC = "auto-preserved"
    FALSE = "false"


_SPELLINGS = {**{intent.value: intent for intent in Intent}, "true": Intent.NOW}
"""The proposal's spelling is `true`; the shipped system knows only `now`."""

ALLOWED = ("now", "true", "when-failed", "auto-preserved", "false")

KEEPING = frozenset({Intent.NOW, Intent.WHEN_FAILED, Intent.AUTOMATIC})
"""The intents that keep a machine that has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """The values on the objects; None where an object does not exist, or does not have the annotation.

    An empty string is a value that a person wrote, but not one with a meaning.
    """

    node: str | None = None
    machine: str | None = None
    last_applied: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The value in force. by_node: the Node decides, so the Machine's own value is removed and the Node's is recorded.

    unreadable: what is wrong with a meaningless value of the Node: nothing changes. ignored: the same for a value of the
    Machine, which then counts as not annotated.
    """

    intent: Intent
    by_node: bool = False
    unreadable: str = ""
    ignored: str = ""


def requested(values: Annotated, *, node_exists: bool = True) -> Request:
    """Which value holds, and what it means."""
    node, machine = values.node or "", values.machine or ""
    if not node_exists or (not node and not values.last_applied):
        intent = _SPELLINGS.get(machine)
        wrong = "" if intent is not None else _problem("Machine", machine)
        return Request(intent=intent or Intent.NONE, ignored=wrong)
    intent = _SPELLINGS.get(node)
    ignored = "" if machine in _SPELLINGS else _problem("Machine", machine)
    if intent is None:
        return Request(intent=Intent.NONE, unreadable=_problem("Node", node), ignored=ignored)
    return Request(intent=intent, by_node=True, ignored=ignored)


def parse_hold(text: str) -> timedelta | None:
    """How long a person wants something held: above 0, and at most `LONGEST_PRESERVATION`. None for any other text."""
    try:
        wanted = parse_duration(text)
    except ValueError:
        return None
    return wanted if timedelta(0) < wanted <= LONGEST_PRESERVATION else None


def asked_for(node: Mapping[str, str], machine: Mapping[str, str]) -> tuple[timedelta | None, str]:
    """How long a person wants it kept at first, from the annotations of both objects; with what is wrong with them, if
    anything."""
    for kind, written in (("Node", node), ("Machine", machine)):
        text = written.get(PRESERVE_FOR_ANNOTATION)
        if text is None:
            continue
        expected = f"{kind}: annotation {PRESERVE_FOR_ANNOTATION}: expected a duration above 0 such as 24h, got {text[:40]!r}"
        wanted = parse_hold(text)
        return wanted, "" if wanted is not None else f"{expected}; at most {LONGEST_PRESERVATION.days * 24}h"
    return None, ""


def isolation_asked(node: Mapping[str, str], machine: Mapping[str, str], *, pool: bool) -> tuple[bool, str]:
    """Whether it is to be isolated once it has failed, from the annotations of both objects; with what is wrong with them, if
    anything. pool: holds where neither object is annotated. An annotation that can't be read isolates no machine."""
    for kind, written in (("Node", node), ("Machine", machine)):
        text = written.get(ISOLATE_ANNOTATION)
        if text is None:
            continue
        if text in {"true", "false"}:
            return text == "true", ""
        return False, f"{kind}: annotation {ISOLATE_ANNOTATION}: expected true or false, got {text[:40]!r}; nothing is isolated"
    return pool, ""


def _problem(kind: str, value: str) -> str:
    expected = ", ".join(ALLOWED)
    return f"{kind}: annotation {PRESERVE_ANNOTATION}: expected one of {expected}, got {value[:40]!r}; it changes nothing"
