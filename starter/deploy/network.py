"""What `nodewarden deploy network` prints: what the workers' pods connect to, and what may connect to them.

Not committed as a file, since only you know your networks; the chart's templates/network.yaml says the same. A
NetworkPolicy is kept by the network plugin of the cluster, where it keeps any; kubelets reach the pods of their own node anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import ip_network
from typing import Any

from policy.values.errors import PolicyError
from policy.values.object_refs import is_object_name
from starter.deploy.manifests import WHY
from starter.deploy.rights import NAMESPACE

METRICS_PORT = 8443
"""Of the proxy in front of them (docs/security.md): the worker itself serves them on the loopback."""
TEMPORAL_PORT = 7233
METADATA = "169.254.169.254/32"
ANYWHERE = ("0.0.0.0/0", "::/0")
POD_LABELS = {"app.kubernetes.io/name": "nodewarden"}
_HEAD = "What nodewarden's workers connect to, and what connects to them: printed by `nodewarden deploy network`."


def network(
    *,
    bmc: Collection[str],
    api: Collection[str] = (),
    temporal: str = "temporal",
    metrics_from: Collection[str] = (),
    cloud: bool = False,
) -> list[dict[str, Any]]:
    """bmc, api: networks of the devices, and of the API servers (none named: wherever they listen on their ports). temporal: the
    namespace or the network of its frontend. metrics_from: namespaces that read metrics. cloud: EC2 or Compute Engine serves it.

    Raises PolicyError for what is neither.
    """
    egress = [
        _rule("Names. Caches on nodes have addresses of no pod.", [], udp=(53, 5353), tcp=(53, 5353)),
        _rule("API servers, before and behind their Service.", _networks("--api", api), tcp=(443, 6443)),
        _rule("Temporal's frontend.", [_place("--temporal", temporal)], tcp=(TEMPORAL_PORT,)),
    ]
    if bmc:
        egress.append(_rule("Power devices, each by the ports of its protocol.", _networks("--bmc", bmc)))
    if cloud:
        egress.append(_rule("A cloud's API.", _networks("", ANYWHERE), tcp=(443,)))
        egress.append(_rule("Where the worker's own identity in it comes from.", _networks("", (METADATA,)), tcp=(80,)))
    ingress = []
    if metrics_from:
        readers = [_namespace("--metrics-from", each) for each in metrics_from]
        ingress.append(_rule("Metrics.", readers, tcp=(METRICS_PORT,), towards="from"))
    spec = {
        "podSelector": {"matchLabels": POD_LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }
    metadata = {"name": "nodewarden", "namespace": NAMESPACE}
    return [{WHY: _HEAD, "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}]


def _rule(
    why: str, peers: list[dict[str, Any]], *, udp: Iterable[int] = (), tcp: Iterable[int] = (), towards: str = "to"
) -> dict[str, Any]:
    """No peers: anywhere. No ports: any."""
    ports = [{"protocol": name, "port": port} for name, numbers in (("UDP", udp), ("TCP", tcp)) for port in numbers]
    return {WHY: why} | ({towards: peers} if peers else {}) | ({"ports": ports} if ports else {})


def _networks(option: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    return [_network(option, text) for text in texts]


def _network(option: str, text: str) -> dict[str, Any]:
    try:
        return {"ipBlock": {"cidr": str(ip_network(text))}}
    except ValueError as error:
        raise PolicyError(option, text, f"expected a network such as 10.20.0.0/16 ({error})") from error


def _namespace(option: str, text: str) -> dict[str, Any]:
    if not is_object_name(text):
        raise PolicyError(option, text, "expected the name of a namespace")
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": text}}}


def _place(option: str, text: str) -> dict[str, Any]:
    return _network(option, text) if "/" in text else _namespace(option, text)
