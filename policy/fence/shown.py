"""A configuration for people and programs, as `fence plan` prints it: of a credential its place, never its value (S12)."""

from __future__ import annotations

from typing import Any

from policy.fence.config import FenceConfig, FenceStep, Method
from policy.fence.plan import CredentialKind, CredentialRef


def as_json(config: FenceConfig) -> dict[str, Any]:
    """The whole, with every key always there. Pinned as an interface: keys are added, never renamed."""
    return {
        "node": config.node,
        "config": config.name,
        "source": config.source,
        "steps": {step.value: [_method(method) for method in config.step(step)] for step in FenceStep},
        "warnings": list(config.warnings),
        "errors": list(config.errors),
    }


def shown_parameters(method: Method) -> dict[str, str]:
    """Plain parameters as they are; where two references give the same one, the later, which is the one that is used."""
    shown = dict(method.parameters)
    for reference in method.device.credentials if method.device is not None else ():
        shown |= _shown(reference)
    return shown


def _shown(reference: CredentialRef) -> dict[str, str]:
    place = f"{reference.kind.value.lower()}:{reference.namespace}/{reference.name}"
    if not reference.keys:
        return {"*": place}
    match reference.kind:
        case CredentialKind.FILE | CredentialKind.ENVIRONMENT:
            return {name: f"{reference.kind.value}:{key}" for name, key in reference.keys.items()}
        case CredentialKind.CONFIG_MAP | CredentialKind.SECRET:
            within = f"{reference.properties}." if reference.properties else ""
            return {name: f"{place}#{within}{key}" for name, key in reference.keys.items()}


def _method(method: Method) -> dict[str, Any]:
    return {
        "method": method.name,
        "template": method.template,
        "driver": method.driver,
        "action": method.action.value,
        "parameters": shown_parameters(method),
    }
