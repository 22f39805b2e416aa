"""Who may do what: tokens name users, and RBAC objects in the store give them rights.

The user `admin` may do everything. All others have exactly what ClusterRoles, Roles and their bindings grant to them or to
their groups, and kubelets what `kubelets.py` says; role aggregation and escalation of rights are not evaluated.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from simulator.api import moments
from simulator.api.access.kubelets import Kubelets, node_of
from simulator.api.storage.store import Document, Store

ADMIN = "admin"
_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One thing that a user wants to do."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Of what is no resource, such as /metrics."""

    @property
    def subject(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def refusal(self, user: str) -> str:
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user}" cannot {self.verb} resource "{self.subject}" in API group "{self.group}" {where}'


def groups_of(user: str) -> tuple[str, ...]:
    """Those that Kubernetes puts a user into by its name."""
    more: tuple[str, ...] = ()
    if node_of(user):
        more = ("system:nodes",)
    elif user.startswith("system:serviceaccount:"):
        more = ("system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}")
    return (*more, "system:authenticated")


class Authorization:
    """Tokens and the rights behind them."""

    def __init__(self, store: Store, tokens: Mapping[str, str]) -> None:
        self._store = store
        self.tokens = dict(tokens)
        self._kubelets = Kubelets(store)
        self._issued: dict[str, tuple[str, datetime]] = {}

    def user(self, header: str) -> str | None:
        """The user of an Authorization header, or None."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        user, ends = self._issued.get(token.strip(), (None, None))
        return user if ends is not None and moments.now() < ends else self.tokens.get(token.strip())

    def issue(self, user: str, lasts: timedelta) -> tuple[str, datetime]:
        """A new token of that user, and when it ends."""
        token, ends = secrets.token_urlsafe(32), moments.now() + lasts
        self._issued[token] = (user, ends)
        return token, ends

    def allows(self, user: str, access: Access) -> bool:
        if user == ADMIN or any(_grants(rule, access) for rule in self._rules(user, access.namespace)):
            return True
        node = node_of(user)
        return bool(node) and self._kubelets.allows(
            node, access.verb, (access.group, access.subject), access.namespace, access.name
        )

    def _rules(self, user: str, namespace: str) -> Iterator[dict[str, Any]]:
        for binding in self._store.documents("clusterrolebindings", _GROUP):
            if _names(binding, user):
                yield from self._role(binding, "")
        if namespace:
            for binding in self._store.documents("rolebindings", _GROUP, namespace):
                if _names(binding, user):
                    yield from self._role(binding, namespace)

    def _role(self, binding: Document, namespace: str) -> list[dict[str, Any]]:
        reference = binding["roleRef"]
        if reference.get("kind") == "Role":
            record = self._store.get((_GROUP, "roles"), namespace, reference.get("name", ""))
        else:
            record = self._store.get((_GROUP, "clusterroles"), "", reference.get("name", ""))
        rules: list[dict[str, Any]] = (record.document.get("rules") or []) if record else []
        return rules


def _names(binding: Document, user: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == user:
            return True
        if kind == "Group" and name in groups_of(user):
            return True
        if kind == "ServiceAccount" and user == f"system:serviceaccount:{subject.get('namespace')}:{name}":
            return True
    return False


def _grants(rule: Mapping[str, Any], access: Access) -> bool:
    if access.path:
        return _contains(rule.get("verbs"), access.verb) and _contains(rule.get("nonResourceURLs"), access.path)
    named = rule.get("resourceNames")
    return (
        _contains(rule.get("verbs"), access.verb)
        and _contains(rule.get("apiGroups"), access.group)
        and (_contains(rule.get("resources"), access.subject) or f"*/{access.subresource}" in (rule.get("resources") or ()))
        and (not named or access.name in named)
    )


def _contains(listed: Any, wanted: str) -> bool:
    return bool(listed) and (wanted in listed or "*" in listed)
