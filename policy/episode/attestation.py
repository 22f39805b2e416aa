"""What an API server has to enforce for its NodeActions to say who has spoken: the admission policy of deploy/people.yaml.

Whoever may change that policy, or the definition of the kind, is an administrator of the cluster anyway. That it is there, and as
it was shipped, is looked at with each word: a cluster without it takes any name from anybody who may create the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from policy.episode.operator_commands import SETTLED
from policy.values.times import later, moment_of

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
    """Why a NodeAction of that moment may bear any name, "" where the server has seen to it that it does not."""
    if policy is None or binding is None:
        return f"the API server does not check names: it has no ValidatingAdmissionPolicy {POLICY} with its binding ({HOW_TO})"
    if not (_checks(policy.get("spec") or {}) and _denies(binding.get("spec") or {})):
        return f"the ValidatingAdmissionPolicy {POLICY}, or its binding, is not as nodewarden ships it ({HOW_TO})"
    for each in (policy, binding):
        since = moment_of((each.get("metadata") or {}).get("creationTimestamp"))
        if since is None or created < later(since, SETTLED):
            return f"it was made before the ValidatingAdmissionPolicy {POLICY} was in force: say it once more"
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
