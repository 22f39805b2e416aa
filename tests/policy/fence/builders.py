"""ConfigMaps as people write them, and the reader run on them."""

from __future__ import annotations

from collections.abc import Mapping

from policy.fence.config import FenceConfig, Method
from policy.fence.configmap_methods import ConfigMap, Found, LookupKind, ObjectLookup, ObjectName
from policy.fence.configmaps import read_config_maps
from policy.objects.nodes import NodeView
from tests.policy.builders import a_node

NODE = "n1"

PDU = {"template.properties": "agent_name=fence_eaton_snmp\nip=10.0.0.9\nport=7\nsnmp_version=3"}
SWITCH = {"template.properties": "agent_name=fence_brocade\nipaddr=10.0.0.8"}
SECRETS: Mapping[str, tuple[str, ...]] = {}


def lines(**values: str) -> str:
    return "\n".join(f"{key}={value}" for key, value in values.items())


def node(name: str = NODE, *, provider_id: str = "", **labels: str) -> NodeView:
    return a_node(name, provider_id=provider_id, labels=labels)


def lookup(
    objects: Mapping[str, Mapping[str, object]], secrets: Mapping[str, tuple[str, ...]] = SECRETS, *, complete: bool = True
) -> ObjectLookup:
    """Every object of the namespace `default`, by name."""
    found: dict[ObjectName, Found] = {
        ObjectName(kind=LookupKind.CONFIG_MAP, name=name): ConfigMap(name=name, namespace="default", data=data)
        for name, data in objects.items()
    }
    found |= {ObjectName(kind=LookupKind.SECRET, name=name): keys for name, keys in secrets.items()}
    return ObjectLookup("default", found, complete=complete)


def read(
    objects: Mapping[str, Mapping[str, object]], secrets: Mapping[str, tuple[str, ...]] = SECRETS, *, of: NodeView | None = None
) -> FenceConfig:
    return read_config_maps(of or node(), lookup(objects, secrets))


def ipmi(**more: str) -> str:
    """A method that names a BMC of its own, with credentials that are elsewhere."""
    elsewhere = {"username": "env:NODEWARDEN_CREDENTIAL_USER", "password": "env:NODEWARDEN_CREDENTIAL_PASS"}
    return lines(**({"agent_name": "ipmi", "ip": "10.0.0.1", **elsewhere} | more))


def config(isolation: str = "", power: str = "off on", recovery: str = "", **methods: str) -> dict[str, object]:
    """The data of a fence-config ConfigMap; `off` and `on` switch the node's BMC unless they are given."""
    defined = {"off": ipmi(action="off"), "on": ipmi(action="on")} | methods
    listed = {*isolation.split(), *power.split(), *recovery.split()}
    text = lines(isolation=isolation, power_management=power, recovery=recovery)
    return {"config.properties": text, **{f"fence-method-{name}": text for name, text in defined.items() if name in listed}}


def of_node(*args: str, **methods: str) -> FenceConfig:
    """What is read from a node's own configuration."""
    return read({f"fence-config-node-{NODE}": config(*args, **methods)})


def only(methods: tuple[Method, ...]) -> Method:
    (method,) = methods
    return method
