"""What RBAC cannot say, said to the API server in CEL: the shape that all our admission policies have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starter.deploy.commented import WHY

_VERSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """One ValidatingAdmissionPolicy, with a binding that denies.

    rule: which requests it is about, one of `resourceRules`. only: CEL by name, all of which hold for those requests. variables:
    CEL by name; each may use those before it. validations: what must hold, with what is said where it does not.
    """

    name: str
    why: str
    rule: dict[str, list[str]]
    only: dict[str, str]
    variables: dict[str, str]
    validations: tuple[tuple[str, str], ...]

    def objects(self) -> list[dict[str, Any]]:
        """As kubectl takes them."""
        spec = {
            "failurePolicy": "Fail",
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
