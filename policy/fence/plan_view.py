"""A configuration for people and programs, as `fence plan` prints it: of a credential its place, never its value (S12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policy.fence.config import CLUSTER, FenceConfig, FenceStep, Method, MethodAction
from policy.fence.plan import CredentialKind, CredentialRef

_DOES = dict.fromkeys((MethodAction.REBOOT, MethodAction.RESTART), "power off, prove off, power on")
_DOES |= {MethodAction.CORDON: "cordon", MethodAction.UNCORDON: "uncordon"}
"""What people call it; the others bear their own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMethod:
    """One method of a step. parameters: of a credential its place."""

    method: str
    template: str
    driver: str
    action: MethodAction
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownConfig:
    """Which configuration holds for a node, where it comes from, and what each step of it would do. An interface: fields are
    added, never renamed."""

    node: str
    config: str
    source: str
    steps: Mapping[FenceStep, tuple[ShownMethod, ...]]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]


def shown_config(config: FenceConfig) -> ShownConfig:
    """The whole."""
    return ShownConfig(
        node=config.node,
        config=config.name,
        source=config.source,
        steps={step: tuple(_method(method) for method in config.step(step)) for step in FenceStep},
        warnings=tuple(config.warnings),
        errors=tuple(config.errors),
    )


def does(method: Method | ShownMethod) -> str:
    """For people, and by what."""
    by = "(Kubernetes API)" if method.driver == CLUSTER else f"by {method.driver}"
    return f"{_DOES.get(method.action, method.action.value)} {by}"


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


def _method(method: Method) -> ShownMethod:
    return ShownMethod(
        method=method.name,
        template=method.template,
        driver=method.driver,
        action=method.action,
        parameters=shown_parameters(method),
    )
