"""Whether the account of this connection has the rights of the one table (`starter/deploy/rights.py`), by asking the API server.

Each is asked for by itself (SelfSubjectAccessReview): the list that SelfSubjectRulesReview gives is incomplete where another
authorizer than RBAC decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from activities.cluster.api.connection import ClusterConnection
from policy.values.display_text import counted
from starter.deploy.features import SHIPPED
from starter.deploy.rights import RIGHTS, Right
from starter.doctor.findings import Finding, ok, problem, warning

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 20
PRINT = "`nodewarden deploy rbac | kubectl apply -f -` gives it to nodewarden's ServiceAccounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    right: Right
    attributes: dict[str, str]

    @property
    def words(self) -> str:
        at = self.attributes
        resource = ".".join(filter(None, (at["resource"], at["group"])))
        subresource = f"/{at['subresource']}" if at["subresource"] else ""
        name = f" {at['name']}" if at["name"] else ""
        return f"{at['verb']} {resource}{subresource}{name}" + (f" in {at['namespace']}" if at["namespace"] else "")


async def rights(connection: ClusterConnection) -> list[Finding]:
    """One line for each right that is missing; what needs it says how bad that is."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def allowed(question: _Question) -> bool:
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": question.attributes},
        }
        async with gate:
            answer = await connection.create(REVIEWS, review)
        return bool((answer.get("status") or {}).get("allowed"))

    questions = list(_questions())
    answers = await asyncio.gather(*(allowed(question) for question in questions))
    missing: dict[Right, list[str]] = {}
    for question, granted in zip(questions, answers, strict=True):
        if not granted:
            missing.setdefault(question.right, []).append(question.words)
    found = [_missing(right, words) for right, words in missing.items()]
    if not found:
        return [ok(f"this account has all {counted(len(questions), 'right')} that nodewarden asks for")]
    return [*found, warning(f"these are the rights of the account that doctor used at {connection.url}", OTHERS)]


OTHERS = "run doctor in a worker's pod (`kubectl exec -n nodewarden deploy/nodewarden -- nodewarden doctor`) for its account's"


def _missing(right: Right, words: list[str]) -> Finding:
    said = f"may not {', '.join(words)}"
    if not right.features:
        return problem(f"{said}: always needed", PRINT)
    return warning(f"{said}: needed by {', '.join(sorted(right.features))}", f"{PRINT}; or leave that feature unused")


def _questions() -> Iterator[_Question]:
    """Of everything that is shipped, each question once."""
    asked = set[tuple[str, ...]]()
    for right in RIGHTS:
        if right.features and right.features.isdisjoint(SHIPPED):
            continue
        for group in right.groups:
            for resource in right.resources:
                for verb in right.verbs:
                    for name in right.names or ("",):
                        plural, _, subresource = resource.partition("/")
                        attributes = {
                            "verb": verb,
                            "group": group,
                            "resource": plural,
                            "subresource": subresource,
                            "name": name,
                            "namespace": right.place.namespace if right.place is not None else "",
                        }
                        if (key := tuple(attributes.values())) not in asked:
                            asked.add(key)
                            yield _Question(right=right, attributes=attributes)
