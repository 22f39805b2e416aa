"""Objects of other systems that ask for a node to be fenced: whether one still asks, the plan that it becomes, its answer.

A `FenceAgentsRemediation` (fence-agents-remediation.medik8s.io/v1alpha1) is created by an operator that goes on running
(NodeHealthCheck of medik8s), and which reads from its conditions how its request fares. Which node may be fenced now is
`policy/scan/admission.py`; `activities/cluster/objects/fencing_requests.py` writes the answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from policy.episode.messages import Outcome
from policy.fence.config import LONGEST_ACT, LONGEST_OFF, LONGEST_RETRY_INTERVAL, MOST_TRIES
from policy.fence.drivers import canonical_driver, parameters_of, same_device, unknown_driver
from policy.fence.drivers.agent_parameters import canonical_name, refusal
from policy.fence.drivers.contract import DriverParameters, ParameterError, names_a_credential, unidentified
from policy.fence.plan import FencingPlan, Freeing, PowerDevice
from policy.objects.remediations import GIVEN_UP_ANNOTATION, NODE_NAME_ANNOTATION
from policy.values.errors import PolicyError
from policy.values.fields import Fields, mapping, mappings
from policy.values.object_refs import LONGEST_NAME, ObjectRef
from policy.values.times import format_duration, moment_of

FINALIZER = "fence-agents-remediation.medik8s.io/far-finalizer"
"""Fence-agents-remediation puts it on an object before any agent runs: an object that has it belongs to that controller."""

PROCESSING = "Processing"
ACTION_SUCCEEDED = "FenceAgentActionSucceeded"
SUCCEEDED = "Succeeded"

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


class Stage(StrEnum):
    """How far a request has come. The values are the reasons in its conditions; all but `RemediationHeldBack` are those of
    fence-agents-remediation, so that readers of its objects can read ours."""

    STARTED = "RemediationStarted"
    FENCED = "FenceAgentSucceeded"
    """Off is proven."""
    FINISHED = "RemediationFinishedSuccessfully"
    """The node's workloads are free, and the machine is on again, or off if that was asked for."""
    FAILED = "FenceAgentFailed"
    """Tries and restarts are used up, or another try can't succeed: the operator may try something else at once."""
    INTERRUPTED = "RemediationInterruptedByNHC"
    NODE_NOT_FOUND = "RemediationFinishedNodeNotFound"
    HELD_BACK = "RemediationHeldBack"
    """Stopped without having failed (a veto, a person's abort): the operator waits for its usual time."""


_CONDITIONS: Mapping[Stage, tuple[str, str, str]] = {
    Stage.STARTED: (TRUE, UNKNOWN, UNKNOWN),
    Stage.FENCED: ("", TRUE, ""),
    Stage.FINISHED: (FALSE, TRUE, TRUE),
    Stage.FAILED: (FALSE, FALSE, FALSE),
    Stage.INTERRUPTED: (FALSE, FALSE, FALSE),
    Stage.NODE_NOT_FOUND: (FALSE, FALSE, FALSE),
    Stage.HELD_BACK: (FALSE, UNKNOWN, UNKNOWN),
}
"""Processing, FenceAgentActionSucceeded, Succeeded; "" leaves the present status."""


def conditions_of(stage: Stage, status: Mapping[str, Any]) -> dict[str, str]:
    """The status of each condition to write. That the agent has succeeded once stays true until a new start, and a request that
    has succeeded is not interrupted any more."""
    if stage is Stage.INTERRUPTED and _condition(status, SUCCEEDED) == TRUE:
        return {}
    wanted = dict(zip((PROCESSING, ACTION_SUCCEEDED, SUCCEEDED), _CONDITIONS[stage], strict=True))
    if stage is not Stage.STARTED and _condition(status, ACTION_SUCCEEDED) == TRUE:
        wanted[ACTION_SUCCEEDED] = TRUE
    return {kind: value for kind, value in wanted.items() if value}


def last_stage(outcome: Outcome, before: Stage | None) -> Stage:
    """The stage of a request at the end of its episode. before: the stage that its object shows; a final one stays."""
    if before in {Stage.FINISHED, Stage.FAILED}:
        return before
    match outcome:
        case Outcome.FENCED_OFF:
            return Stage.FINISHED
        case Outcome.RECOVERED:
            return Stage.INTERRUPTED  # recovered without a success only because the request was withdrawn
        case Outcome.REPLACED:
            return Stage.FAILED
        case Outcome.RELEASED | Outcome.ABORTED | Outcome.REFUSED:
            return Stage.HELD_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingRequest:
    """One such object as last seen. node: the name of the node that it is about.

    delegate: the holder name that its owning operator uses on the node's lease; "" without an owner. ended: why it does not ask
    any more, "" while it does. withdrawn: the same if its creator ended it, and not an answer of ours. taken_up: the controller
    that it was made for acts on it. problem: why it can't be carried out as it is written. uncounted: why objects of its
    namespace are not obeyed, "" if they are; nothing else is read of such an object (S46).
    """

    ref: ObjectRef
    uid: str
    node: str
    created: datetime | None = None
    requester: str = ""
    delegate: str = ""
    ended: str = ""
    withdrawn: str = ""
    taken_up: bool = False
    problem: str = ""
    uncounted: str = ""

    @property
    def asks(self) -> bool:
        return not self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """The stage of a request, to be written to its object. uid: an object of that name with another uid is not written."""

    about: ObjectRef
    uid: str
    stage: Stage
    message: str


def why_ended(obj: Mapping[str, Any]) -> str:
    """Why the object does not ask any more, "" while it does; for an object from the API, which has complete metadata."""
    metadata: Mapping[str, Any] = obj["metadata"]
    if withdrawn := why_withdrawn(obj):
        return withdrawn
    said = _condition(obj.get("status"), SUCCEEDED)
    return f"{metadata['name']} has its answer: {SUCCEEDED} is {said}" if said in {TRUE, FALSE} else ""


def uncounted(ref: ObjectRef, namespaces: Collection[str]) -> str:
    """Why an object of that namespace is not obeyed, "" if it is (S46): the right to create objects in a namespace is no right to
    any node."""
    if ref.namespace in namespaces:
        return ""
    counting = ", ".join(namespaces) or "no namespace"
    return f"{ref.key} is not obeyed: requests count in {counting} (setting request_namespaces)"


def is_another(found: Mapping[str, Any], uid: str) -> bool:
    """Whether the object has the name of the one with that uid, and is another object."""
    return bool(uid) and found["metadata"].get("uid") != uid


def why_withdrawn(obj: Mapping[str, Any]) -> str:
    """Why the creator of the object does not want it any more, "" while it does. An answer of ours withdraws nothing."""
    metadata: Mapping[str, Any] = obj["metadata"]
    if metadata.get("deletionTimestamp"):
        return f"{metadata['name']} is being deleted"
    if GIVEN_UP_ANNOTATION in mapping(metadata.get("annotations")):
        return f"{metadata['name']} has timed out: {GIVEN_UP_ANNOTATION} says that something else is tried"
    return ""


def is_taken_up(obj: Mapping[str, Any]) -> bool:
    """Whether fence-agents-remediation acts on the object."""
    finalizers = obj["metadata"].get("finalizers")
    return isinstance(finalizers, list) and FINALIZER in finalizers


def _condition(status: object, kind: str) -> str:
    listed = mappings(mapping(status).get("conditions"))
    return next((str(each.get("status", "")) for each in listed if each.get("type") == kind), "")


# The plan. The object names one agent, parameters that all nodes share, parameters by node, and Secrets. The action `reboot` is
# an off half and an on half, each proven. This is stricter than the controller that the object was made for where that one would
# fence the wrong machine or none: at least one try (A05), a parameter that other nodes have must be there for this one (A06),
# something must identify the node's own device (S10), and that device must be the one of the operator's own configuration, which
# then acts with its own parameters and Secrets (S46).

GROUP = "fence-agents-remediation.medik8s.io"
VERSION = "v1alpha1"
KIND = "FenceAgentsRemediation"

OPERATORS = ("NodeHealthCheck", "MachineHealthCheck")
"""Kinds of owners for which their operator holds a node's lease under the name `<kind>-<name>`."""

_SPEC_FIELDS = (
    "agent",
    "nodeSecretNames",
    "nodeparameters",
    "remediationStrategy",
    "retrycount",
    "retryinterval",
    "sharedSecretName",
    "sharedparameters",
    "timeout",
)
_FREEING = {"ResourceDeletion": Freeing.DELETION, "OutOfServiceTaint": Freeing.OUT_OF_SERVICE_TAINT}
_REBOOT, _OFF = "reboot", "off"
_DEFAULT_RETRIES = 5
_DEFAULT_INTERVAL, _DEFAULT_TIMEOUT = timedelta(seconds=5), timedelta(seconds=60)
_SECOND = timedelta(seconds=1)
_NODE_NAME = re.compile(r"\{\{-?\s*\.NodeName\s*-?\}\}")


def read_request(obj: Mapping[str, object], *, uncounted: str = "") -> FencingRequest:
    """The object as a scan keeps it, with what is wrong with it. Raises PolicyError if it has no name. uncounted: why it is not
    obeyed, "" if it is."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    name, namespace = metadata.text("name"), metadata.text("namespace", "")
    ref = ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)
    uid, node = metadata.value("uid"), node_of(obj)
    kind, owner = _operator(metadata)
    request = FencingRequest(
        ref=ref,
        uid=uid if isinstance(uid, str) else "",
        node=node,
        created=moment_of(metadata.value("creationTimestamp")),
        requester=f"{kind}/{owner}" if kind else "",
        delegate=f"{kind}-{owner}" if kind else "",
        ended=why_ended(obj),
        withdrawn=why_withdrawn(obj),
        taken_up=is_taken_up(obj),
        uncounted=uncounted,
    )
    if uncounted:
        return request
    try:
        plan_of(obj, node)
    except PolicyError as error:
        return replace(request, problem=str(error))
    return request


def node_of(obj: Mapping[str, object]) -> str:
    """The node that it is about: the annotation counts before the object's own name."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    annotations = metadata.value("annotations")
    named = annotations.get(NODE_NAME_ANNOTATION) if isinstance(annotations, Mapping) else None
    return named[:LONGEST_NAME] if isinstance(named, str) else metadata.text("name")


def plan_of(obj: Mapping[str, object], node: str, *, taint_honoured: bool = True) -> FencingPlan:
    """The plan for this node. Raises PolicyError naming the object, the field and what was expected.

    taint_honoured: whether this cluster's controllers act on the out-of-service taint (Kubernetes 1.26 and newer). That a
    parameter stands both in the object and in a Secret can't be known here, where no Secret is read: the power worker refuses it.
    """
    metadata = Fields(obj, subject=KIND).within("metadata")
    namespace = metadata.text("namespace", "")
    subject = f"{KIND}/{namespace}/{metadata.text('name')}"
    fields = Fields(obj, subject=subject)
    if (about := node_of(obj)) != node:
        raise fields.refuse("metadata", f"expected an object about node {node}, this one is about {about}")
    spec, warnings = fields.within("spec"), list[str]()
    if ignored := [name for name in spec.names() if name not in _SPEC_FIELDS]:
        warnings.append(f"{subject}: spec.{', spec.'.join(sorted(ignored))}: not known, and ignored")
    reader = _Reader(spec, node)
    device, action = reader.device()
    if unread := [name for name in ("sharedSecretName", "nodeSecretNames") if spec.has(name)]:
        warnings.append(f"{subject}: spec.{', spec.'.join(unread)}: not read; the node's fence configuration names its Secret")
    timeout = spec.duration("timeout", _DEFAULT_TIMEOUT, minimum=_SECOND)
    # S7, A05: no run at all is no success. More than ten tries would only keep the operator from trying something else.
    tries = spec.whole("retrycount", _DEFAULT_RETRIES, minimum=1)
    interval = spec.duration("retryinterval", _DEFAULT_INTERVAL)
    if tries > MOST_TRIES:
        warnings.append(f"{spec.at('retrycount')}: {tries} is more than is ever done, taken as {MOST_TRIES}")
    if interval > LONGEST_RETRY_INTERVAL:
        longest = format_duration(LONGEST_RETRY_INTERVAL)
        warnings.append(
            f"{spec.at('retryinterval')}: {format_duration(interval)} is more than is ever waited, taken as {longest}"
        )
    return FencingPlan(
        source=subject,
        levels=((device,),),
        wait_before_power=timedelta(0),  # the creator of the object has waited already
        tries=min(tries, MOST_TRIES),
        restarts=0,
        retry_interval=min(interval, LONGEST_RETRY_INTERVAL),
        act_deadline=min(timeout, LONGEST_ACT),
        off_timeout=min(timeout, LONGEST_OFF),
        freeing=_freeing(spec, taint_honoured=taint_honoured),
        taint_honoured=taint_honoured,
        power_on=action == _REBOOT,
        warnings=tuple(warnings),
    )


def by_devices_of(asked: FencingPlan, own: FencingPlan) -> FencingPlan:
    """The requested plan, carried out by the operator's own configuration of the node: by each of its levels that has the device
    which the object names (S46, S4). Raises PolicyError if none has.

    The object's device is compared and never used: a device of another machine would report the node as off, and the right device
    with other parameters (a proxy, less proof) would be believed too easily.
    """
    levels = tuple(
        level for level in own.levels if any(same_device(named, each.endpoint) for named in asked.endpoints for each in level)
    )
    if not levels:
        theirs = ", ".join(each.endpoint for each in own.devices) or "no device"
        problem = f"{', '.join(asked.endpoints)} is not the node's device by {own.source}, which names {theirs}"
        raise PolicyError(asked.source, "spec", f"{problem}: expected the same one in both")
    return replace(asked, levels=levels)


class _Reader:
    """The one device of a node, from the parameters of its agent."""

    def __init__(self, spec: Fields, node: str) -> None:
        self._spec = spec
        self._node = node
        self._agent = canonical_driver(spec.text("agent"))

    def device(self) -> tuple[PowerDevice, str]:
        takes = self._takes()
        shared, own = dict[str, str](), self._by_node(self._node)
        for name in (fields := self._spec.within_or_empty("sharedparameters")).names():
            _put(shared, name, fields, name)
        self._refuse_missing(own)
        written = {**shared, **own}
        places = {name: f"nodeparameters.{name}.{self._node}" if name in own else f"sharedparameters.{name}" for name in written}
        action = self._action(written, places)
        for name, place in places.items():
            self._refuse_unfit(name, place)
        identifying = {canonical_name(name) for name in takes.identifying}
        if not any(name in identifying and (name in own or _NODE_NAME.search(value)) for name, value in written.items()):
            raise self._spec.refuse(
                "nodeparameters",
                unidentified(
                    self._node,
                    identifying,
                    "here for this node, or one in sharedparameters with {{.NodeName}} in its value; "
                    "no Secret identifies anything",
                ),
            )
        parameters = {name: self._rendered(value, places[name], self._node) for name, value in written.items()}
        endpoint = self._endpoint(takes, parameters, places)
        self._refuse_a_neighbours(takes, endpoint, shared)
        return PowerDevice(driver=self._agent, endpoint=endpoint, parameters=parameters), action

    def _takes(self) -> DriverParameters:
        takes = parameters_of(self._agent)
        if takes is None or not takes.any_name:
            raise self._spec.refuse("agent", unknown_driver(self._agent))
        if takes.fabric:
            raise self._spec.refuse("agent", f"{self._agent} cuts a path and leaves the machine running: expected a power device")
        return takes

    def _by_node(self, node: str) -> dict[str, str]:
        values: dict[str, str] = {}
        by_parameter = self._spec.within_or_empty("nodeparameters")
        for written in by_parameter.names():
            if (by_node := by_parameter.within(written)).has(node):
                _put(values, written, by_node, node)
        return values

    def _refuse_missing(self, own: Mapping[str, str]) -> None:
        """A06: a parameter that only other nodes have would be the agent's default here, or another node's plug."""
        by_parameter = self._spec.within_or_empty("nodeparameters")
        for written in by_parameter.names():
            if canonical_name(written) not in own and by_parameter.within(written).names():
                raise self._spec.refuse(
                    f"nodeparameters.{written}", f"expected a value for node {self._node}, as there is one for other nodes"
                )

    def _action(self, written: dict[str, str], places: dict[str, str]) -> str:
        """Takes the action out of the parameters; nodewarden carries it out itself, half by half (S5)."""
        place = places.pop("action", "sharedparameters")
        action = written.pop("action", "") or _REBOOT
        if action not in {_REBOOT, _OFF}:
            raise self._spec.refuse(place, f"expected the action {_REBOOT} or {_OFF}, got {action!r}")
        return action

    def _refuse_unfit(self, name: str, place: str) -> None:
        """The user name for the login may stand in the object, any other credential may not (S12)."""
        if name != "username" and names_a_credential(name):
            raise self._spec.refuse(
                place, "is a credential: expected it in a Secret, named by sharedSecretName or nodeSecretNames"
            )
        if (problem := refusal(name)) is not None:
            raise self._spec.refuse(place, problem)

    def _rendered(self, value: str, place: str, node: str) -> str:
        rendered = _for_node(value, node)
        if "{{" in rendered or "}}" in rendered:
            raise self._spec.refuse(place, "expected no other variable than {{.NodeName}}, got " + repr(value))
        return rendered

    def _endpoint(self, takes: DriverParameters, parameters: Mapping[str, str], places: Mapping[str, str]) -> str:
        try:
            return takes.endpoint(parameters)
        except ParameterError as error:
            place = places.get(canonical_name(error.parameter), f"sharedparameters.{error.parameter}")
            raise self._spec.refuse(place, error.problem) from error

    def _refuse_a_neighbours(self, takes: DriverParameters, endpoint: str, shared: Mapping[str, str]) -> None:
        """The same plug under two nodes is a copying mistake that would switch off the wrong machine (S9, S10)."""
        by_parameter = self._spec.within_or_empty("nodeparameters")
        others = {node for name in by_parameter.names() for node in by_parameter.within(name).names()} - {self._node}
        for other in sorted(others):
            theirs = {**shared, **self._by_node(other)}
            theirs.pop("action", None)
            try:
                found = takes.endpoint({name: _for_node(value, other) for name, value in theirs.items()})
            except ParameterError:
                continue  # refused when that node is read; it can't be this device
            if same_device(found, endpoint):
                raise self._spec.refuse("nodeparameters", f"{endpoint} is the device of both {self._node} and {other}")


def _for_node(value: str, node: str) -> str:
    return _NODE_NAME.sub(lambda _: node, value)


def _put(values: dict[str, str], written: str, fields: Fields, field: str) -> None:
    """A parameter under its one spelling: `--ip` and `ipaddr` are `ip`. A flag without a value is bare, and stays empty here."""
    value, name = fields.value(field), canonical_name(written)
    if not isinstance(value, str):
        raise fields.refuse(field, "expected a string (quote it)")
    if values.setdefault(name, value) != value:
        raise fields.refuse(field, f"{name} is given twice, under different names and with different values")


def _freeing(spec: Fields, *, taint_honoured: bool) -> Freeing:
    written = spec.text("remediationStrategy", "") or "ResourceDeletion"
    if written not in _FREEING:
        raise spec.refuse("remediationStrategy", f"expected one of {', '.join(_FREEING)}, got {written!r}")
    if _FREEING[written] is Freeing.OUT_OF_SERVICE_TAINT and not taint_honoured:
        problem = "this cluster's controllers do not act on the out-of-service taint; expected ResourceDeletion"
        raise spec.refuse("remediationStrategy", problem)
    return _FREEING[written]


def _operator(metadata: Fields) -> tuple[str, str]:
    """Kind and name of the health check that has created the object, "" if none has."""
    for owner in metadata.each("ownerReferences"):
        kind, name = owner.value("kind"), owner.value("name")
        if kind in OPERATORS and isinstance(name, str) and name:
            return str(kind), name[:LONGEST_NAME]
    return "", ""
