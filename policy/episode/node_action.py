"""What a `NodeAction` says, the command of a person to nodewarden, and how the person's identity is verified (S42).

Kubernetes can attest a command: the person creates a `NodeAction` (deploy/crds), the API server compares its `requestedBy` with
the caller and asks its own authorizer whether the caller may (deploy/people.yaml), and the command names that object. No token
travels. Here is what the object has to say, and what the server has to enforce for it to count;
`activities/cluster/acts/node_actions.py` reads both live.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from policy.objects.marks import marked_boot
from policy.objects.nodes import NodeView
from policy.values.object_refs import LONGEST_NAME
from policy.values.times import format_duration, later, moment_of, parse_duration, written

NODE_ACTION_VALID_FOR = timedelta(minutes=5)
"""Since it was created. An older one does not count any more: what it was about may be over."""

SETTLED = timedelta(seconds=15)
"""So long an API server may take to enforce a new admission policy; objects that are created before then may be unchecked."""

NAMESPACE = "nodewarden"
"""NodeActions count in this namespace only."""

SENT_LABEL = "nodewarden.io/sent"
"""On NodeActions that the command line has created; it sends their command itself."""

CIRCUIT_BREAKER = "circuit-breaker"
"""What a person may override, for one node (S17): the open circuit breakers of health checks."""
DEVICE_READS_ON = "device-reads-on"
"""What an `ack-off` may override: that a device of the machine says on (S8)."""

LONGEST_REASON = 2000


class Verb(StrEnum):
    """The actions of people; RBAC gives them as verbs on `nodes.nodewarden.io`."""

    ABORT = "abort"
    ACK_OFF = "ack-off"
    HOLD = "hold"
    RESUME = "resume"
    RETURN_PATH = "return-path"
    RELEASE = "release"
    EXTEND = "extend"
    ISOLATE = "isolate"
    STOP_SCAN = "stop-scan"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SET_MODE = "set-mode"
    FENCE = "fence"
    PRESERVE = "preserve"
    REMEDIATE = "remediate"


ANSWERS = frozenset({Verb.RESUME, Verb.RETURN_PATH, Verb.ACK_OFF})
"""The commands that answer a question of an episode; each names its number (S48)."""

REPAIRS = frozenset({Verb.FENCE, Verb.REMEDIATE})
"""The commands that have a node repaired."""

OVERRIDES = {CIRCUIT_BREAKER: REPAIRS | {Verb.ACK_OFF}, DEVICE_READS_ON: frozenset({Verb.ACK_OFF})}
"""Which commands may override what."""

NOT_VERIFIED, VERIFIED = " (identity not verified)", ", verified by Kubernetes"
"""How a shown name ends. No name may contain the word "verified" itself (`name_problem`)."""


class Verified(StrEnum):
    """How a person's identity was verified. no: it was not; the name is what the person says."""

    NO = "no"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionName:
    """A NodeAction of our namespace. Its uid is no secret: a caller that names another person's NodeAction can only repeat what
    that person said."""

    name: str
    uid: str


def override_problem(override: str, verb: Verb) -> str:
    """What is wrong with the things that this command overrides, given with commas between them; "" for nothing."""
    known = [each for each, verbs in OVERRIDES.items() if verb in verbs]
    if all(each in known for each in override.split(",") if override):
        return ""
    return f"expected {' or '.join(known) or 'nothing'} with {verb.value}, got {override[:80]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActionSpec:
    """What a NodeAction says, except the person. node: "" if the command is not about one node. power_on, until, hold: for the
    actions that have them. question: the number of the question that it answers. of: the owner of the pause or hold that ends, ""
    for the person's own. shorten: for `extend`. isolate: for `preserve`. strategies, template: for `remediate` and `fence`.
    override: what it overrides, with commas between (`override_problem`). mode, nodes, selector: for `set-mode`."""

    action: Verb
    node: str
    reason: str
    power_on: bool = False
    question: int = 0
    of: str = ""
    until: datetime | None = None
    hold: timedelta | None = None
    shorten: bool = False
    isolate: bool = False
    strategies: tuple[str, ...] = ()
    skip_impossible: bool = False
    template: str = ""
    override: str = ""
    mode: str = ""
    nodes: tuple[str, ...] = ()
    selector: str = ""

    def to_dict(self, requested_by: str) -> dict[str, Any]:
        """The object's spec, without what is not given."""
        given = {
            "node": self.node,
            "powerOn": self.power_on,
            "question": self.question,
            "of": self.of,
            "until": written(self.until) if self.until is not None else "",
            "for": format_duration(self.hold) if self.hold is not None else "",
            "shorten": self.shorten,
            "isolate": self.isolate,
            "strategies": list(self.strategies),
            "skipImpossible": self.skip_impossible,
            "template": self.template,
            "override": self.override,
            "mode": self.mode,
            "nodes": list(self.nodes),
            "selector": self.selector,
        }
        said = {key: value for key, value in given.items() if value}
        return {"action": self.action.value, "requestedBy": requested_by, "reason": self.reason} | said


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedCommand:
    """A command that an episode accepts in its present state. command: as it is written on the command line. consequence: what
    follows from it."""

    verb: Verb
    command: str
    consequence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCommand:
    """A command as a cluster worker has verified it. action: the NodeAction's uid. node_uid, boot_id, ready_since: of the Node at
    that moment, the boot that it last showed if it is silent, and when its condition Ready took its value; "" and None without a
    Node. kind: of the episode that was told (`Kind`). seal: by it, cluster workers recognize the command."""

    spec: NodeActionSpec
    action: str
    speaker: str
    node_uid: str = ""
    boot_id: str = ""
    ready_since: datetime | None = None
    kind: str = ""
    seal: str = ""

    def outlived_by(self, node: NodeView | None, incident: str) -> str:
        """Why this command is not about the machine as it is now, "" where it is. node: as it was just read, None where there is
        none, which is as far down as can be. incident: of the episode to which it was said.

        What was off runs again, so that a word for off, or one that lets the machine go, ends with its boot. One for off ends
        also with each change of Ready: the kubelet has reported since, and a node that is silent again runs. A repair that a
        person asked for may restart the machine on its way, and goes on until it is Ready again, as long as the node carries the
        mark that it left in the boot of the word: with the mark the repair ends, and the word is used up."""
        same_boot = node is None or (node.uid, node.boot_id) == (self.node_uid, self.boot_id)
        if node is None or (same_boot and (self.spec.action is not Verb.ACK_OFF or node.ready_since == self.ready_since)):
            return ""
        under_way = bool(self.boot_id) and marked_boot(node, incident) == self.boot_id
        if node.uid == self.node_uid and self.spec.action in REPAIRS and not node.ready and under_way:
            return ""
        said = f"{self.speaker} has said {self.spec.action.value} of {self.spec.node}"
        if node.uid != self.node_uid:
            former = self.node_uid or "not there"
            return f"{said} when the Node's uid was {former}, and now it is {node.uid}: look at it, and say it again"
        if same_boot:
            at = written(node.ready_since) if node.ready_since is not None else "a time that is not known"
            return f"{said}, and its kubelet has reported, or has fallen silent, since (at {at}): look at it, and say it again"
        again = f"it has started again since (boot {node.boot_id or 'not known'}), and is {'' if node.ready else 'not '}Ready"
        return f"{said} as it was with boot {self.boot_id or 'not known'}; {again}: look at it, and say it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAuthor:
    """Who gave a command. who: the name that the person gives. speaker: the name by which Kubernetes knows the person, "" if that
    is not verified. sealed: what was verified. Of a caller's input only `who` is believed."""

    who: str
    verified: Verified = Verified.NO
    speaker: str = ""
    sealed: SealedCommand | None = None

    @property
    def by(self) -> str:
        """The name for people, with how it was verified."""
        named_too = self.verified is not Verified.NO and self.who not in {"", self.speaker}
        return f"{self.owner} (for {self.who})" if named_too else self.owner

    @property
    def owner(self) -> str:
        """The owner of a pause or a hold: the same for all verified commands of one person."""
        return f"{self.who}{NOT_VERIFIED}" if self.verified is Verified.NO else f"{self.speaker}{VERIFIED}"

    def belongs_to(self, name: str) -> bool:
        """Whether the name is the owner's, as it is shown or without how it was verified."""
        return name in {self.by, self.owner, bare_name(self.owner)}


def read_spec(spec: Mapping[str, Any]) -> NodeActionSpec:
    """What a NodeAction says. Raises ValueError that names the field."""
    until, hold = spec.get("until"), spec.get("for")
    if until and moment_of(until) is None:
        raise ValueError(f"until: expected a moment such as 2026-11-24T09:30:00Z, got {until!r}")
    return NodeActionSpec(
        action=Verb(spec.get("action", "")),
        node=str(spec.get("node", "")),
        reason=str(spec.get("reason", "")),
        power_on=spec.get("powerOn") is True,
        question=asked if type(asked := spec.get("question")) is int else 0,
        of=str(spec.get("of", "")),
        until=moment_of(until) if until else None,
        hold=parse_duration(str(hold)) if hold else None,
        shorten=spec.get("shorten") is True,
        isolate=spec.get("isolate") is True,
        strategies=tuple(str(each) for each in spec.get("strategies") or ()),
        skip_impossible=spec.get("skipImpossible") is True,
        template=str(spec.get("template", "")),
        override=str(spec.get("override", "")),
        mode=str(spec.get("mode", "")),
        nodes=tuple(str(each) for each in spec.get("nodes") or ()),
        selector=str(spec.get("selector", "")),
    )


def difference(command: NodeActionSpec, found: NodeActionSpec) -> str:
    """The first field in which a NodeAction differs from the command that names it, "" if they are equal."""
    there, wanted = found.to_dict(""), command.to_dict("")
    return next((name for name in sorted({*there, *wanted}) if there.get(name) != wanted.get(name)), "")


def name_problem(who: str) -> str:
    """Why that can't be a person's name, "" if it can. It is shown together with how it was verified, and must not claim that
    itself (S41)."""
    if not who.strip():
        return "expected a name, got nothing; it goes into the decision record"
    if len(who) > LONGEST_NAME or not who.isprintable():
        return f"expected one line of at most {LONGEST_NAME} characters"
    if "verified" in who.lower():
        return "expected a name; how it was verified is added to it by nodewarden alone"
    return ""


def reason_problem(reason: str) -> str:
    """What is wrong with the reason of a command, "" for nothing."""
    if not reason.strip():
        return "expected a name or a sentence, got nothing; it goes into the decision record"
    if len(reason) > LONGEST_REASON:
        return f"expected at most {LONGEST_REASON} characters, got {len(reason)}"
    return "" if reason.isprintable() else "expected one line"


def bare_name(owner: str) -> str:
    """The name without how it was verified."""
    return owner.removesuffix(NOT_VERIFIED).removesuffix(VERIFIED)


def one_line(text: str) -> str:
    """Foreign text for tables and records."""
    return "".join(each if each.isprintable() else " " for each in text)


# What an API server has to enforce for its NodeActions to name the right person: the admission policy of deploy/people.yaml.
#
# A right to change that policy, or the definition of the kind, is an administrator's right anyway. Each command checks that the
# policy is there, and as it was shipped: a cluster without it accepts any name from every creator of the object.

GROUP, VERSION, PLURAL = "nodewarden.io", "v1alpha1", "nodeactions"
POLICY = "nodewarden-node-actions"
"""Name of the policy, and of its binding."""
HOW_TO = "`nodewarden deploy people | kubectl apply -f -`"

_CREATED = "request.operation != 'CREATE' || "
_MAY = "authorizer.group('nodewarden.io').resource('nodes').name(has(object.spec.node) ? object.spec.node : '')"
VALIDATIONS = (
    _CREATED + "object.spec.requestedBy == request.userInfo.username",
    _CREATED + _MAY + ".check(object.spec.action).allowed()",
    _CREATED + "!has(object.spec.override) || " + _MAY + ".check('override').allowed()",
    "request.operation != 'UPDATE' || object.spec == oldObject.spec",
)

Object = Mapping[str, Any]


def doubt(policy: Object | None, binding: Object | None, created: datetime) -> str:
    """Why a NodeAction created at that moment may have any name, "" if the server has checked its name."""
    if policy is None or binding is None:
        return f"the API server does not check names: it has no ValidatingAdmissionPolicy {POLICY} with its binding ({HOW_TO})"
    if not (_checks(policy.get("spec") or {}) and _denies(binding.get("spec") or {})):
        return f"the ValidatingAdmissionPolicy {POLICY}, or its binding, is not as nodewarden ships it ({HOW_TO})"
    for each in (policy, binding):
        since = moment_of((each.get("metadata") or {}).get("creationTimestamp"))
        if since is None or created < later(since, SETTLED):
            return f"it was made before the ValidatingAdmissionPolicy {POLICY} was in force: give the command again"
    return ""


def _checks(spec: Object) -> bool:
    constraints = spec.get("matchConstraints") or {}
    narrowed = any(constraints.get(name) for name in ("excludeResourceRules", "namespaceSelector", "objectSelector"))
    said = {each.get("expression") for each in spec.get("validations") or ()}
    return (
        spec.get("failurePolicy", "Fail") == "Fail"
        and not spec.get("matchConditions")
        and not spec.get("paramKind")
        and not narrowed
        and any(_is_about_actions(rule) for rule in constraints.get("resourceRules") or ())
        and said >= set(VALIDATIONS)
    )


def _is_about_actions(rule: Object) -> bool:
    return (
        GROUP in rule.get("apiGroups", ())
        and VERSION in rule.get("apiVersions", ())
        and PLURAL in rule.get("resources", ())
        and {"CREATE", "UPDATE"} <= set(rule.get("operations", ()))
        and not rule.get("resourceNames")
        and rule.get("scope", "*") == "*"
    )


def _denies(spec: Object) -> bool:
    whole = not spec.get("matchResources") and not spec.get("paramRef")
    return spec.get("policyName") == POLICY and "Deny" in (spec.get("validationActions") or ()) and whole
