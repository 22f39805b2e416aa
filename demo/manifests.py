"""What the demo puts into its cluster: the objects a user would apply, with time-outs that a spectator can sit through.

Written for a person to copy: the README shows the same two objects with the durations one would use in production.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

NAMESPACE = "nodewarden"
TEMPLATE = "bmc"
CHECK = "workers"


def fencing_template(facts: Mapping[str, Any]) -> dict[str, Any]:
    """How each node's machine is switched. facts: what the simulated cluster says of itself (`python -m simulator state`)."""
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FencingTemplate",
        "metadata": {"name": TEMPLATE, "namespace": NAMESPACE},
        "spec": {
            "template": {
                "spec": {
                    "waitBeforePower": "8s",
                    "actDeadline": "10s",
                    "retryInterval": "2s",
                    "offTimeout": "30s",
                    "freeTimeout": "60s",
                    "bootTimeout": "60s",
                    "power": [power_device(facts)],
                }
            }
        },
    }


def power_device(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The device of a template: what all nodes share, what tells one node's from another's, and where the credentials are."""
    platform, nodes = facts["platform"], facts["nodes"]
    return {**_device(platform, nodes), "secretRef": {"name": facts["secret"].split("/")[1]}}


def _device(platform: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    match platform["name"]:
        case "redfish":
            # One service for all machines, each under its node's name. Its certificate is signed by an authority of its own.
            return {
                "driver": "redfish",
                "parameters": {
                    "ip": platform["address"],
                    "ipport": str(platform["port"]),
                    "system": "{{ .NodeName }}",
                    "ca-file": platform["authority"],
                },
            }
        case "aws":
            # Instance and region come from the node's providerID. On AWS itself there is no endpoint-url.
            return {"driver": "ec2", "parameters": {"endpoint-url": platform["endpointUrl"]}}
        case "gce":
            # Project, zone and instance come from the node's providerID. At Google there is no api-endpoint.
            return {"driver": "gce", "parameters": {"api-endpoint": platform["apiEndpoint"]}}
        case "pdu":
            return {
                "driver": "fence_apc_snmp",
                "parameters": {
                    "ip": platform["address"],
                    "ipport": str(platform["port"]),
                    "snmp_version": "3",
                    "snmp_auth_prot": "SHA",
                    "snmp_priv_prot": "AES",
                },
                "nodeParameters": {name: {"plug": str(node["outlet"])} for name, node in nodes.items()},
            }
        case _:
            # All simulated BMCs share an address, so the port tells them apart.
            return {
                "driver": "ipmi",
                "parameters": {"cipher": "3"},
                "nodeParameters": {
                    name: {"ip": node["bmc"]["address"], "ipport": str(node["bmc"]["port"])} for name, node in nodes.items()
                },
            }


def health_check() -> dict[str, Any]:
    """A NodeHealthCheck as the medik8s operator knows it; its remediation is our fencing."""
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": CHECK},
        "spec": {
            "minHealthy": "51%",
            "selector": {"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]},
            "unhealthyConditions": [
                {"type": "Ready", "status": "False", "duration": "5s"},
                {"type": "Ready", "status": "Unknown", "duration": "5s"},
            ],
            "remediationTemplate": {
                "apiVersion": "nodewarden.io/v1alpha1",
                "kind": "FencingTemplate",
                "namespace": NAMESPACE,
                "name": TEMPLATE,
            },
        },
    }


if __name__ == "__main__":
    # python -m demo.manifests state/day/simulator.json | kubectl apply -f -
    written = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(yaml.safe_dump_all([fencing_template(written), health_check()], sort_keys=False), end="")
