"""What the demo puts into its cluster: the objects a user would apply, with time-outs that a spectator can sit through.

Written for a person to copy: the README shows the same two objects with the durations one would use in production.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMESPACE = "nodewarden"
TEMPLATE = "bmc"
CHECK = "workers"


def fencing_template(bmcs: Mapping[str, Mapping[str, Any]], *, secret: str) -> dict[str, Any]:
    """How each node's BMC is reached. All simulated BMCs share an address, so the port tells them apart."""
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
                    "power": [
                        {
                            "driver": "ipmi",
                            "parameters": {"cipher": "3"},
                            "nodeParameters": {
                                node: {"ip": bmc["address"], "ipport": str(bmc["port"])} for node, bmc in bmcs.items()
                            },
                            "secretRef": {"name": secret},
                        }
                    ],
                }
            }
        },
    }


def health_check() -> dict[str, Any]:
    """A NodeHealthCheck as the medik8s operator knows it, whose remediation is our fencing."""
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
