"""What `nodewarden deploy admission` prints, and deploy/admission.yaml holds: our admission policies, for our own patches of
Nodes, and for what a kubelet writes on its own. The one for people's commands is `policy/episode/node_action.py`.

Without them everything works, and a worker or a kubelet that was taken over can do more. They need Kubernetes 1.30.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from policy.checks.rules.medik8s import CONFIRMED_ANNOTATION
from policy.episode.gate import DELETION_TRIGGER_ANNOTATION, HOLD_ANNOTATION
from policy.fence.config import EFFECTS, ParameterKind
from policy.objects.machines import (
    CAPI_MACHINE_ANNOTATION,
    CLUSTER_NAME_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    OPENSHIFT_MACHINE_ANNOTATION,
)
from policy.objects.marks import TERMINATING_ANNOTATION, TERMINATING_LABEL
from policy.objects.nodes import EXCLUDE_LABEL, MARK_ANNOTATION, MARK_LABEL, OUR_TAINT, PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import (
    CONDITION,
    ENDED_ANNOTATION,
    EXPIRY_ANNOTATION,
    ISOLATION_ANNOTATION,
    SCALE_DOWN_BEFORE,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    SINCE_ANNOTATION,
    TAINT,
)
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION
from policy.values.errors import PolicyError
from starter.deploy.features import Process
from starter.deploy.manifests import WHY
from starter.deploy.rights import NAMESPACE

# What RBAC cannot say, said to the API server in CEL: the shape that all our admission policies have.

_VERSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """One ValidatingAdmissionPolicy, with a binding that denies.

    rule: which requests it is about, one of `resourceRules`. only: CEL by name, all of which hold for those requests. variables:
    CEL by name; each may use those before it. validations: what must hold, with what is said where it does not. fails: what
    follows where that can't be evaluated, `Fail` for a refusal.
    """

    name: str
    why: str
    rule: dict[str, list[str]]
    only: dict[str, str]
    variables: dict[str, str]
    validations: tuple[tuple[str, str], ...]
    fails: str = "Fail"

    def objects(self) -> list[dict[str, Any]]:
        spec = {
            "failurePolicy": self.fails,
            "matchConstraints": {"resourceRules": [self.rule]},
            "matchConditions": [{"name": name, "expression": text} for name, text in self.only.items()],
            "variables": [{"name": name, "expression": text} for name, text in self.variables.items()],
            "validations": [{"expression": text, "message": message} for text, message in self.validations],
        }
        metadata = {"name": self.name}
        binding = {"policyName": self.name, "validationActions": ["Deny"]}
        return [
            {WHY: self.why, "apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
            {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding},
        ]


# Our own patches of Nodes change our own fields and no others, also after a worker was taken over: no provider id, no label that
# places pods, no taint or condition of another owner.
#
# RBAC lets us patch a Node or not. Everything that the product writes on one is named here by the constant it is written by.

ANNOTATIONS = (
    MARK_ANNOTATION,
    TERMINATING_ANNOTATION,
    LAST_REMEDIATION_ANNOTATION,
    PRESERVE_ANNOTATION,
    PRESERVE_FOR_ANNOTATION,
    ISOLATE_ANNOTATION,
    EXPIRY_ANNOTATION,
    SINCE_ANNOTATION,
    ENDED_ANNOTATION,
    ISOLATION_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    SCALE_DOWN_BEFORE,
)
"""All that we write on a Node. What only people write, such as a hold, is not among them."""

OURS = {
    "spec": ("unschedulable", "taints"),
    "metadata": ("annotations", "labels", "managedFields", "resourceVersion"),
    "annotations": ANNOTATIONS,
    "labels": (MARK_LABEL, TERMINATING_LABEL),
    "status": ("conditions",),
}
"""What may change of each part: some of it is looked at further, or is the server's own bookkeeping."""


def node_patches(taints: Collection[str]) -> AdmissionPolicy:
    """See the module. taints: keys of further ones, with the effects that the method `taint` takes."""
    for key in taints:
        if not ParameterKind.KEY.takes(key):
            raise PolicyError("--taints", key, f"expected {ParameterKind.KEY}")
    return AdmissionPolicy(
        name="nodewarden-node-patches",
        why="What nodewarden may change of a Node, which RBAC cannot say: printed by `nodewarden deploy admission`. Its"
        " cordon, its taints, its annotations and labels, and the condition of what is preserved. Everything else of the"
        " Node stays as it was, or the patch is refused. The method `taint` of a fence configuration needs its key named:"
        " `nodewarden deploy admission --taints example.com/sick`. Needs Kubernetes 1.30.",
        rule={"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]},
        only={"nodewarden": f"request.userInfo.username in {_listed(map(_user, Process))}"},
        variables={
            "metadata": "dyn(object.metadata)",
            "oldMetadata": "dyn(oldObject.metadata)",
            **_both("spec", "spec"),
            **_both("status", "status"),
            **_both("annotations", "metadata.annotations"),
            **_both("labels", "metadata.labels"),
            **{f"our{name.capitalize()}": _listed(names) for name, names in OURS.items()},
        },
        validations=(
            *((_unchanged(name), f"nodewarden changes nothing of a Node's {name} but {_keys_named(name)}") for name in OURS),
            (
                _same_list("spec", "taints", f"t, !({_ours(taints)})"),
                "nodewarden changes only taints of its own; further ones are named by nodewarden deploy admission --taints KEY",
            ),
            (
                _same_list("status", "conditions", f"c, c.type != {CONDITION!r}"),
                f"nodewarden changes no condition of a Node but {CONDITION}",
            ),
        ),
    )


# By annotations of a Node people and pools keep its machine, and say until when; machine-controller-manager deletes it, medik8s'
# operators and Cluster API find it and end its remediation. A kubelet may write every annotation of its own Node, and so take
# that back, or have a machine deleted that is kept: which value holds is Gardener's rule, by which the Node's goes first.

_WHEN = (EXPIRY_ANNOTATION, SINCE_ANNOTATION, ENDED_ANNOTATION, ISOLATION_ANNOTATION)
_OF_PEOPLE = (HOLD_ANNOTATION, CONFIRMED_ANNOTATION, DELETION_TRIGGER_ANNOTATION)
_ITS_MACHINE = (OPENSHIFT_MACHINE_ANNOTATION, CAPI_MACHINE_ANNOTATION, CLUSTER_NAME_ANNOTATION, CLUSTER_NAMESPACE_ANNOTATION)
_SCALE_DOWN = (SCALE_DOWN_DISABLED_OURS, SCALE_DOWN_BEFORE)
KEPT_BY = (PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION, *_WHEN, *_OF_PEOPLE, *_ITS_MACHINE, *_SCALE_DOWN)
"""No kubelet writes these, nor, while the last but one stands there, `SCALE_DOWN_DISABLED`, which else is the node's own."""


def kept_nodes() -> AdmissionPolicy:
    """None of its expressions walks what a kubelet writes: the API server ends one that costs much, and lets all pass."""
    new, old = "variables.annotations", "variables.oldAnnotations"
    new_labels, old_labels = "variables.labels", "variables.oldLabels"
    excluded = repr(EXCLUDE_LABEL)
    unchanged = f"{excluded} in {new_labels} && {new_labels}[{excluded}] == {old_labels}[{excluded}]"
    same = f"(k in {new}) == (k in {old}) && (!(k in {new}) || {new}[k] == {old}[k])"
    return AdmissionPolicy(
        name="nodewarden-kept-nodes",
        why="By which annotations a Node's machine is kept, held, deleted or found, a kubelet may not say of its own: printed by"
        " `nodewarden deploy admission`. All else that kubelets write stays as it is, also where this can't be evaluated. Needs"
        " Kubernetes 1.30.",
        rule={
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["nodes", "nodes/status"],
        },
        only={"kubelet": "'system:nodes' in request.userInfo.groups"},
        variables={
            "annotations": "has(object.metadata.annotations) ? dyn(object.metadata.annotations) : dyn({})",
            "oldAnnotations": "request.operation == 'UPDATE' && has(oldObject.metadata.annotations) ?"
            " dyn(oldObject.metadata.annotations) : dyn({})",
            "labels": "has(object.metadata.labels) ? dyn(object.metadata.labels) : dyn({})",
            "oldLabels": "request.operation == 'UPDATE' && has(oldObject.metadata.labels) ?"
            " dyn(oldObject.metadata.labels) : dyn({})",
        },
        validations=(
            (f"{_listed(KEPT_BY).strip()}.all(k, {same})", "a kubelet says nothing of whether its machine is kept or goes"),
            (
                f"!({SCALE_DOWN_DISABLED_OURS!r} in {old}) || {_listed([SCALE_DOWN_DISABLED])}.all(k, {same})",
                "a kubelet says nothing of whether its machine is scaled down while it is kept",
            ),
            (
                f"!({excluded} in {old_labels}) || ({unchanged})",
                "a kubelet ends no exclusion of its machine from remediation",
            ),
        ),
        fails="Ignore",  # a kubelet that can't report loses its node: far worse than an annotation of its own
    )


def _keys_named(name: str) -> str:
    return "its own" if name in {"annotations", "labels"} else ", ".join(OURS[name])


def _user(process: Process) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{process.account}"


def _listed(texts: Iterable[str]) -> str:
    """In CEL, one to a line where they are many."""
    quoted = list(map(repr, texts))
    return (
        f"[{', '.join(quoted)}]"
        if len(quoted) < 3
        else "\n".join(("[", *(f"  {each}," for each in quoted[:-1]), f"  {quoted[-1]}", "]", ""))
    )


def _both(name: str, path: str) -> dict[str, str]:
    """A part as it is to be and as it was. `dyn`, because a type checker knows no way to walk the fields of an object."""
    return {
        each: f"has({of}.{path}) ? dyn({of}.{path}) : dyn({{}})"
        for each, of in ((name, "object"), (f"old{name.capitalize()}", "oldObject"))
    }


def _unchanged(name: str) -> str:
    """All entries of a part are as they were, but for ours."""
    new, old, ours = (f"variables.{each}" for each in (name, f"old{name.capitalize()}", f"our{name.capitalize()}"))
    return f"{new}.all(k, k in {ours} || (k in {old} && {new}[k] == {old}[k])) &&\n{old}.all(k, k in {ours} || k in {new})\n"


def _same_list(name: str, field: str, chosen: str) -> str:
    """Those of a list that are chosen are the same, in the same order."""
    new, old = f"variables.{name}", f"variables.old{name.capitalize()}"
    return " ==\n".join(f"({field!r} in {each} ? {each}.{field} : []).filter({chosen})" for each in (new, old)) + "\n"


def _ours(taints: Collection[str]) -> str:
    out = f"t.key == {OUR_TAINT.key!r} && t.effect == {OUR_TAINT.effect!r} && has(t.value) && t.value == {OUR_TAINT.value!r}"
    kept = f"t.key == {TAINT!r} && t.effect == 'NoSchedule'"
    plain = f"t.key in {_listed(taints)} && t.effect in {_listed(EFFECTS)}"
    return " ||\n".join(f"({each})" for each in (out, kept, plain))


def admission(*, taints: Collection[str] = ()) -> list[dict[str, Any]]:
    """taints: keys of those that fence configurations name with the method `taint`. Raises PolicyError for one that is none."""
    policies = (node_patches(taints), kept_nodes())
    return [each for policy in policies for each in policy.objects()]
