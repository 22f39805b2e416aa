"""Admission of what users write: NodeRestriction for kubelets, and ValidatingAdmissionPolicies once there is an evaluator of CEL.

What the shipped policies need is known: rules by group, version, operation and resource, match conditions, variables,
validations, and the authorizer. Any other field is refused loudly when the policy is asked, not passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from simulator.api import errors
from simulator.api.access.authorization import Access, Authorization, groups_of
from simulator.api.access.kubelets import Kubelets, node_of
from simulator.api.storage.kinds import Resource
from simulator.api.storage.store import Document, Store

_GROUP = "admissionregistration.k8s.io"
_KNOWN_OF_POLICY = frozenset({"failurePolicy", "matchConstraints", "matchConditions", "variables", "validations"})
_KNOWN_OF_RULES = frozenset({"resourceRules", "matchPolicy"})


class Cel(Protocol):
    """The Common Expression Language. evaluate raises ValueError for what cannot be evaluated."""

    def value(self, document: Any) -> Any: ...

    def evaluate(self, expression: str, names: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorizer:
    """CEL's `authorizer`: a question that each method narrows down."""

    allows: Callable[[Access], bool]
    about: Access

    def asked(self, **about: str) -> Authorizer:
        return replace(self, about=replace(self.about, **about))

    def allowed(self) -> bool:
        return self.allows(self.about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request for a change. new: None for a deletion. old: None for a creation."""

    user: str
    groups: tuple[str, ...]
    operation: str
    resource: Resource
    subresource: str
    new: Document | None
    old: Document | None

    @property
    def metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = (self.new or self.old or {})["metadata"]
        return metadata


class Admission:
    """Asked by the registry for each write; what this process writes by itself has no user and is admitted. cel: None as long as
    no policy is enforced."""

    def __init__(self, store: Store, authorization: Authorization) -> None:
        self.cel: Cel | None = None
        self._store = store
        self._kubelets = Kubelets(store)
        self._allows = authorization.allows
        self._user = ""

    @contextmanager
    def asked_by(self, user: str) -> Iterator[None]:
        """Writes within are this user's; a write is one synchronous step."""
        self._user = user
        try:
            yield
        finally:
            self._user = ""

    def admit(self, resource: Resource, subresource: str, operation: str, new: Document | None, old: Document | None) -> None:
        """Raises for a write that is not the user's to make."""
        user = self._user
        if not user:
            return
        if node := node_of(user):
            self._kubelets.admit(node, resource, new, old)
        if self.cel is not None:
            groups = groups_of(user)
            write = Write(
                user=user, groups=groups, operation=operation, resource=resource, subresource=subresource, new=new, old=old
            )
            self._admit_by_policies(self.cel, write)

    def _admit_by_policies(self, cel: Cel, write: Write) -> None:
        for binding in self._store.documents("validatingadmissionpolicybindings", _GROUP):
            name = binding["spec"]["policyName"]
            policy = self._store.get((_GROUP, "validatingadmissionpolicies"), "", name)
            if policy is None or "Deny" not in binding["spec"]["validationActions"]:
                continue
            if binding["spec"].get("matchResources"):
                raise NotImplementedError(f"ValidatingAdmissionPolicyBinding {binding['metadata']['name']}: matchResources")
            for message in self._refusals(cel, policy.document, write):
                why = f"ValidatingAdmissionPolicy '{name}' with binding '{binding['metadata']['name']}' denied request: {message}"
                raise errors.denied(write.resource.group, write.resource.plural, write.metadata.get("name", ""), why)

    def _refusals(self, cel: Cel, policy: Document, write: Write) -> Iterator[str]:
        spec, name = policy["spec"], policy["metadata"]["name"]
        if unknown := {*spec} - _KNOWN_OF_POLICY or {*spec["matchConstraints"]} - _KNOWN_OF_RULES:
            raise NotImplementedError(f"ValidatingAdmissionPolicy {name}: {', '.join(sorted(unknown))}")
        if not any(_matches(rule, write) for rule in spec["matchConstraints"].get("resourceRules") or ()):
            return
        request = {
            "operation": write.operation,
            "userInfo": {"username": write.user, "groups": list(write.groups)},
            "namespace": write.metadata.get("namespace", ""),
            "name": write.metadata.get("name", ""),
        }
        names: dict[str, Any] = {
            "object": cel.value(write.new),
            "oldObject": cel.value(write.old),
            "request": cel.value(request),
            "authorizer": Authorizer(
                allows=lambda access: self._allows(write.user, access), about=Access(verb="", group="", resource="")
            ),
        }
        try:
            if not all(cel.evaluate(each["expression"], names) for each in spec.get("matchConditions") or ()):
                return
            names["variables"] = cel.value({})
            for each in spec.get("variables") or ():
                names["variables"][each["name"]] = cel.evaluate(each["expression"], names)
            for each in spec.get("validations") or ():
                if not cel.evaluate(each["expression"], names):
                    told = each.get("messageExpression")
                    yield str(cel.evaluate(told, names)) if told else each.get("message", each["expression"])
        except ValueError as error:
            if spec.get("failurePolicy", "Fail") == "Fail":
                yield f"expression resulted in error: {error}"


def _matches(rule: Mapping[str, Any], write: Write) -> bool:
    resource = write.resource
    subject = f"{resource.plural}/{write.subresource}" if write.subresource else resource.plural
    wanted = {"apiGroups": resource.group, "apiVersions": resource.version, "operations": write.operation, "resources": subject}
    if unknown := {*rule} - {*wanted, "scope"}:
        raise NotImplementedError(f"a resource rule with {', '.join(sorted(unknown))}")
    return all({value, "*"} & {*rule.get(key, ())} for key, value in wanted.items())
