"""`FenceAgentsRemediation` (fence-agents-remediation.medik8s.io/v1alpha1): whom it wants fenced, and the plan that it becomes.

It names one agent, parameters that all nodes share, parameters by node, and Secrets. The result is a `FencingPlan`; the action
`reboot` is its off half and its on half, each proven. Stricter than the controller that the object was made for where that one
shoots the wrong machine or none: a try is the least (A05), a parameter that other nodes have must be there for this one (A06),
something must identify the node's own device (S10), and that device must be the one of the operator's own configuration, which
then acts with its own parameters and Secrets (S46). Whether the object still asks is `policy/episode/fencing_requests.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from policy.episode.fencing_requests import FencingRequest, is_taken_up, why_ended, why_withdrawn
from policy.fence.config import LONGEST_ACT, LONGEST_OFF, LONGEST_RETRY_INTERVAL, MOST_TRIES
from policy.fence.drivers import canonical_driver, parameters_of, same_device, unknown_driver
from policy.fence.drivers.agent_parameters import canonical_name, refusal
from policy.fence.drivers.contract import DriverParameters, ParameterError, names_a_credential
from policy.fence.plan import FencingPlan, Freeing, PowerDevice
from policy.objects.remediations import NODE_NAME_ANNOTATION
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from policy.values.object_refs import ObjectRef
from policy.values.times import format_duration, moment_of

GROUP = "fence-agents-remediation.medik8s.io"
VERSION = "v1alpha1"
KIND = "FenceAgentsRemediation"

OPERATORS = ("NodeHealthCheck", "MachineHealthCheck")
"""Kinds of owners whose operator calls itself `<kind>-<name>` on the lease of a node."""

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
    """The object as a scan keeps it, with what is wrong with it. Raises PolicyError where it has no name. uncounted: why it is
    not obeyed, whatever it says."""
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
    """Whom it is about: the annotation goes before the object's own name."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    annotations = metadata.value("annotations")
    named = annotations.get(NODE_NAME_ANNOTATION) if isinstance(annotations, Mapping) else None
    return named if isinstance(named, str) else metadata.text("name")


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
        wait_before_power=timedelta(0),  # whoever made the object has waited already
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
    """The plan that was asked for, carried out by the operator's own configuration of the node: by each of its levels that has
    the device which the object names (S46, S4). Raises PolicyError where none has.

    The object's device is compared and never spoken to: one that is somebody else's would call the node off, and the very device
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
    """The one device of a node, out of what its agent is told."""

    def __init__(self, spec: Fields, node: str) -> None:
        self._spec = spec
        self._node = node
        self._agent = canonical_driver(spec.text("agent"))

    def device(self) -> tuple[PowerDevice, str]:
        """The device and the action that is asked for."""
        takes = self._takes()
        shared, own = self._shared(), self._by_node(self._node)
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
                f"nothing identifies the device of node {self._node}: expected one of {', '.join(sorted(identifying))} here for "
                "this node, or one in sharedparameters with {{.NodeName}} in its value; no Secret identifies anything",
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

    def _shared(self) -> dict[str, str]:
        values: dict[str, str] = {}
        shared = self._spec.within_or_empty("sharedparameters")
        for written in shared.names():
            _put(values, written, shared, written)
        return values

    def _by_node(self, node: str) -> dict[str, str]:
        values: dict[str, str] = {}
        by_parameter = self._spec.within_or_empty("nodeparameters")
        for written in by_parameter.names():
            if (by_node := by_parameter.within(written)).has(node):
                _put(values, written, by_node, node)
        return values

    def _refuse_missing(self, own: Mapping[str, str]) -> None:
        """A06: what other nodes are told and this one is not would be the agent's default, or another node's plug."""
        by_parameter = self._spec.within_or_empty("nodeparameters")
        for written in by_parameter.names():
            if canonical_name(written) not in own and by_parameter.within(written).names():
                raise self._spec.refuse(
                    f"nodeparameters.{written}", f"expected a value for node {self._node}, as there is one for other nodes"
                )

    def _action(self, written: dict[str, str], places: dict[str, str]) -> str:
        """Takes the action out of the parameters; it is carried out by us, half by half (S5)."""
        place = places.pop("action", "sharedparameters")
        action = written.pop("action", "") or _REBOOT
        if action not in {_REBOOT, _OFF}:
            raise self._spec.refuse(place, f"expected the action {_REBOOT} or {_OFF}, got {action!r}")
        return action

    def _refuse_unfit(self, name: str, place: str) -> None:
        """The name under which somebody logs in may stand in the object, all else that is a credential may not (S12)."""
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
        """The same plug under two nodes is a copying mistake that would switch off the wrong one (S9, S10)."""
        by_parameter = self._spec.within_or_empty("nodeparameters")
        others = {node for name in by_parameter.names() for node in by_parameter.within(name).names()} - {self._node}
        for other in sorted(others):
            theirs = {**shared, **self._by_node(other)}
            theirs.pop("action", None)
            try:
                found = takes.endpoint({name: _for_node(value, other) for name, value in theirs.items()})
            except ParameterError:
                continue  # refused when it is that node's turn; whatever it means, it is not this device
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
    """Kind and name of the health check that has made the object, "" where none has."""
    for owner in metadata.each("ownerReferences"):
        kind, name = owner.value("kind"), owner.value("name")
        if kind in OPERATORS and isinstance(name, str) and name:
            return str(kind), name
    return "", ""
