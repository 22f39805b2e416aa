"""The objects of the repository's YAML files, each file parsed once in a process; and where they are created, or judged offline.

Parsing the definition of a kind takes PyYAML fifty milliseconds, and hundreds of tests begin with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from activities.cluster.api.connection import JsonObject
from activities.cluster.watch.offline import ClusterSnapshot
from policy.checks.health_check import Overlap
from starter.output.encoding import to_json

ROOT = Path(__file__).resolve().parents[1]


def documents(*files: str) -> list[dict[str, Any]]:
    """The objects of these files, named from the root of the repository, in their order. They are the caller's own."""
    return [orjson.loads(each) for file in files for each in _read(file)]


def document(file: str) -> dict[str, Any]:
    """The only object of that file."""
    (found,) = documents(file)
    return found


@cache
def _read(file: str) -> list[bytes]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return [orjson.dumps(each) for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def every(text: str) -> list[dict[str, Any]]:
    """The objects of a text, read as quickly as those of files."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def validate(document: Any, schema: Any) -> None:
    """Raises what is wrong with it."""
    _validator(orjson.dumps(schema)).validate(document)


@cache
def _validator(schema: bytes) -> Any:
    """Each schema is held against its own once. The library's formats, which no schema of ours uses, build forty grammars as they
    are imported: that takes longer than most files of tests, and every process of the tests imports every file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        from jsonschema.validators import validator_for
    read = orjson.loads(schema)
    kind = validator_for(read)
    kind.check_schema(read)
    return kind(read)


# An answer as programs read it.


def encoded(answer: object) -> Any:
    return json.loads(to_json(answer))


# A cluster from the objects that a test has written down.


def load(objects: Iterable[tuple[JsonObject, str]], now: datetime, *, overlap: Overlap = Overlap.STRICTEST) -> ClusterSnapshot:
    """The one that these objects (each with its source) describe at that moment."""
    cluster = ClusterSnapshot(now, overlap=overlap)
    for obj, source in objects:
        cluster.put(obj, source)
    cluster.finish()
    return cluster


# Where `kubectl apply -f deploy/` would create the shipped manifests.

PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Secret": "secrets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "NetworkPolicy": "networkpolicies",
}


def path_of(document: dict[str, Any]) -> str:
    """The collection that an object is created in."""
    version, namespace = document["apiVersion"], document["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{PLURALS[document['kind']]}" if namespace else f"{root}/{PLURALS[document['kind']]}"
