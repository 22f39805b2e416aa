"""One Machine as JSON, whosever it is: OpenShift's, Cluster API's or machine-controller-manager's; what a remediation asks of it.

Judging goes by `machines_decoding.py`, which keeps only what verdicts need and knows the first two. Here is what is asked of one
object that was just read: whose it is, whether it goes and what holds that up, and whether it will ever work.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from activities.cluster.api.connection import JsonObject
from activities.cluster.objects.machines_decoding import NODE_LABEL
from policy.objects.machine_apis import MCM, machine_api
from policy.objects.machines import FAILED
from policy.values.moments import moment_of

DRAIN_CONDITIONS = ("Deleting", "DrainingSucceeded", "Drained", "VolumeDetachSucceeded")
"""Which conditions tell what a deletion waits for, the most telling first."""

HOOKS = ("pre-drain.delete.hook.machine.cluster.x-k8s.io", "pre-terminate.delete.hook.machine.cluster.x-k8s.io")
"""Cluster API: what begins so is an annotation that holds a deletion up."""

LONGEST_WAIT = 300


def uid_of(machine: JsonObject) -> str:
    """Its uid."""
    return str(machine["metadata"].get("uid", ""))


def annotations_of(machine: JsonObject) -> Mapping[str, str]:
    """All of them."""
    return machine["metadata"].get("annotations") or {}


def controller_of(machine: JsonObject) -> str:
    """Kind and name of what controls it, "" for nobody."""
    owners = machine["metadata"].get("ownerReferences") or ()
    return next((f"{each.get('kind')}/{each.get('name')}" for each in owners if each.get("controller")), "")


def created_of(machine: JsonObject) -> datetime | None:
    """When it was made."""
    return moment_of(machine["metadata"].get("creationTimestamp"))


def deleting_since(machine: JsonObject) -> datetime | None:
    """Since when it goes, None while it stays."""
    return moment_of(machine["metadata"].get("deletionTimestamp"))


def node_of(machine: JsonObject) -> str:
    """The name of its Node, "" before it has one."""
    name = str(((machine.get("status") or {}).get("nodeRef") or {}).get("name") or "")
    if not name and machine_api(str(machine.get("apiVersion", ""))) is MCM:
        name = str((machine["metadata"].get("labels") or {}).get(NODE_LABEL, ""))
    return name


def phase_of(machine: JsonObject) -> str:
    """Its phase in its own words."""
    status = machine.get("status") or {}
    return str((status.get("currentStatus") or {}).get("phase") or status.get("phase") or "")


def failure_of(machine: JsonObject) -> str:
    """Why it will never work, "" while it may."""
    status = machine.get("status") or {}
    reason = status.get("failureReason") or status.get("errorReason") or ""
    message = status.get("failureMessage") or status.get("errorMessage") or ""
    if reason or message:
        return ": ".join(str(each) for each in (reason, message) if each)[:LONGEST_WAIT]
    return f"its phase is {FAILED}" if phase_of(machine) == FAILED else ""


def condition_of_machine(machine: JsonObject, kind: str) -> Mapping[str, Any]:
    """A condition, of whichever generation has it, the newer one first; an empty one where neither does."""
    status = machine.get("status") or {}
    places = (
        (status.get("v1beta2") or {}).get("conditions"),
        status.get("conditions"),
        ((status.get("deprecated") or {}).get("v1beta1") or {}).get("conditions"),
    )
    found = (each for listed in places for each in listed or () if each.get("type") == kind)
    return next(found, {})


def waits_for(machine: JsonObject) -> str:
    """What holds its deletion up, in words; "" where nothing says."""
    for kind in DRAIN_CONDITIONS:
        condition = condition_of_machine(machine, kind)
        unfinished = condition.get("status") == ("True" if kind == "Deleting" else "False")
        if unfinished and (told := condition.get("message") or condition.get("reason")):
            return f"{kind}: {told}"[:LONGEST_WAIT]
    hooks = [key for key in annotations_of(machine) if key.startswith(HOOKS)]
    lifecycle = (machine.get("spec") or {}).get("lifecycleHooks") or {}
    hooks += [f"{stage} {each.get('name')}" for stage, listed in sorted(lifecycle.items()) for each in listed or ()]
    if hooks:
        return f"its hooks {', '.join(sorted(hooks))}"[:LONGEST_WAIT]
    finalizers = machine["metadata"].get("finalizers") or ()
    return f"its finalizers {', '.join(map(str, finalizers))}"[:LONGEST_WAIT] if finalizers else ""
