"""`fence-cluster-config` and the `fence-policy-<name>` ConfigMaps of the node-fencing proposal.

The cluster's configuration is a health check as well, since the proposal needs no other object: every node that has not been
Ready (False or Unknown) for `grace_timeout` is to be fenced, by its own fence configuration. The policies that it names are read
here and hold for all fencing in the cluster. One unknown key or one missing policy makes all of it unusable
(`policy/scan/admission.py` then begins nothing new).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from policy.checks.fence_policies import (
    MOST_PER_MINUTE,
    MOST_SCOPES,
    NO_POLICIES,
    OFF,
    FencePolicies,
    ScopeCap,
    StormRule,
    stricter,
)
from policy.checks.health_check import HealthCheck, UnhealthyCondition
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.fence.config import LONGEST_WAIT, MOST_RESTARTS, MOST_TRIES
from policy.fence.configmaps import OF_POLICIES, SETTINGS, is_common_parameter
from policy.objects.scopes import CLUSTER, is_scope
from policy.objects.scopes import EXPECTED as EXPECTED_SCOPE
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields, parse_properties
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import Selector
from policy.values.times import parse_duration

VERSION = "v1"
KIND = "ConfigMap"
CLUSTER_CONFIG = "fence-cluster-config"
POLICY_PREFIX = "fence-policy-"
PROPERTIES = "config.properties"

GRACE_TIMEOUT = timedelta(minutes=5)
"""The proposal's wait; the published controller waited 5 s, and for ever if the text was no number."""

LONGEST_TIME = timedelta(days=7)
MOST_AT_ONCE = 1000

SKIP_LOST_STORAGE = "skip-if-host-lost-storage"
SKIP_RENEWED_LEASE = "skip-if-host-renews-lease"
BUILT_IN = {
    SKIP_LOST_STORAGE: FencePolicies(skip_lost_storage=True),
    SKIP_RENEWED_LEASE: FencePolicies(skip_renewed_lease=True),
}
"""Policies without an object of their own: the name is the whole policy."""

_CLUSTER_KEYS = (*SETTINGS, *OF_POLICIES)
_HOLDS_BACK = frozenset({"policies", *OF_POLICIES})
_POLICY_KEYS = (
    "policy_name",
    "percentage",
    "scope",
    "cap",
    "quiet_time",
    "max_attempts",
    "attempts_pause",
    "storage_percentage",
    "storage_conditions",
    "storage_events",
    "storage_event_age",
    "skip_if_host_lost_storage",
    "skip_if_host_renews_lease",
    "pods_per_minute",
)
_RENAMED = {"precentage": "percentage"}
"""The misspelling of the published demo."""

T = TypeVar("T")

_YES_AND_NO = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfigCheck:
    """`fence-cluster-config` as a health check. names: of the policies that it lists. own: policies in its own keys, which
    switch fencing off. Its keys about how a node is fenced are read in `policy/fence/configmaps.py`."""

    ref: ObjectRef
    uid: str
    generation: int
    grace: timedelta = GRACE_TIMEOUT
    names: tuple[str, ...] = ()
    own: FencePolicies = NO_POLICIES


def is_cluster_config(obj: Mapping[str, object]) -> bool:
    """Whether the object is a ConfigMap of that name, in any namespace."""
    return _name_of(obj) == CLUSTER_CONFIG


def holds_back_only(obj: Mapping[str, object]) -> bool:
    """Whether a cluster's configuration only holds fencing back: then it is no health check, so that a person who switches
    fencing off and on again does not start to fence nodes by it. Raises PolicyError for one that can't be read."""
    _, written = _written(obj)
    return bool(written) and written.keys() <= _HOLDS_BACK


def is_fence_policy(obj: Mapping[str, object]) -> bool:
    return _name_of(obj).startswith(POLICY_PREFIX)


def parse_cluster_config(obj: Mapping[str, object]) -> ClusterConfigCheck:
    """The cluster's fence configuration. Raises PolicyError naming every key that can't be used."""
    subject, written = _written(obj)
    keys = _Keys({key: value for key, value in written.items() if not is_common_parameter(key)}, _CLUSTER_KEYS)
    # The proposal's own two keys are whole numbers without units; a text is refused, never read as 0.
    grace = keys.read("grace_timeout", lambda text: timedelta(seconds=_whole(text, 1, int(LONGEST_TIME.total_seconds()))))
    keys.read("giveup_retries", lambda text: _whole(text, 1, MOST_TRIES - 1))
    keys.read("restarts", lambda text: _whole(text, 0, MOST_RESTARTS))
    keys.read("power_management_wait", lambda text: _whole(text, 0, int(LONGEST_WAIT.total_seconds())))
    names = keys.read("policies", lambda text: tuple(dict.fromkeys(text.split())))
    off = keys.read("fencing", _switch)
    groups = keys.read("fencing_off", _groups)
    metadata = Fields(obj, subject=subject).within("metadata")
    config = ClusterConfigCheck(
        ref=ObjectRef(
            api_version=VERSION,
            kind=KIND,
            name=metadata.text("name"),
            namespace=metadata.text("namespace", DEFAULT_NAMESPACE),
        ),
        uid=metadata.text("uid", ""),
        generation=metadata.whole("generation", 0, minimum=0),
        grace=grace if grace is not None else GRACE_TIMEOUT,
        names=names or (),
        own=FencePolicies(switched_off=(f"fencing={OFF} in {subject}",) if off else (), off_groups=groups or ()),
    )
    keys.refuse(subject)
    return config


def parse_node_fencing(obj: Mapping[str, object]) -> HealthCheck:
    """The cluster's fence configuration as a health check."""
    config = parse_cluster_config(obj)
    conditions = tuple(UnhealthyCondition(type="Ready", status=status, duration=config.grace) for status in ("False", "Unknown"))
    return HealthCheck(
        ref=config.ref,
        dialect=Dialect.NODE_FENCING,
        uid=config.uid,
        generation=config.generation,
        selector=Selector(),
        conditions=conditions,
    )


def parse_fence_policy(obj: Mapping[str, object]) -> FencePolicies:
    """One policy. Raises PolicyError naming every key that can't be used."""
    subject, written = _written(obj)
    keys = _Keys(written, _POLICY_KEYS)
    expected_name = _name_of(obj).removeprefix(POLICY_PREFIX)
    name = keys.read("policy_name", lambda text: _same(text, expected_name)) or expected_name
    scope = keys.read("scope", _scope) or CLUSTER
    percentage, cap = keys.read("percentage", _percentage), keys.read("cap", lambda text: _whole(text, 1, MOST_AT_ONCE))
    policies = FencePolicies(
        storms=(StormRule(name=name, percentage=percentage, scope=scope),) if percentage is not None else (),
        cap=cap if scope == CLUSTER else None,
        caps=(ScopeCap(scope=scope, cap=cap),) if cap is not None and scope != CLUSTER else (),
        quiet_time=keys.read("quiet_time", _time),
        maximum_attempts=keys.read("max_attempts", lambda text: _whole(text, 1, MOST_AT_ONCE)),
        attempts_pause=keys.read("attempts_pause", _time),
        storage_percentage=keys.read("storage_percentage", _percentage),
        storage_conditions=keys.read("storage_conditions", lambda text: tuple(text.split())) or (),
        storage_events=keys.read("storage_events", lambda text: tuple(text.split())) or (),
        storage_event_age=keys.read("storage_event_age", _time),
        skip_lost_storage=keys.read("skip_if_host_lost_storage", _yes_or_no) or False,
        skip_renewed_lease=keys.read("skip_if_host_renews_lease", _yes_or_no) or False,
        pods_per_minute=keys.read("pods_per_minute", lambda text: _whole(text, 1, MOST_PER_MINUTE)),
    )
    if not keys.problems and policies == NO_POLICIES:
        keys.problems.append(f"expected at least one of {', '.join(_POLICY_KEYS[1:])}")
    keys.refuse(subject)
    return policies


def read_policies(cluster: Mapping[str, object] | None, policies: Mapping[str, Mapping[str, object]]) -> FencePolicies:
    """The cluster's own policies and those that its configuration names, merged. policies: ConfigMaps by their name.

    Raises PolicyError for the first object that can't be used: of half applied policies people would believe that all apply.
    """
    if cluster is None:
        return NO_POLICIES
    config = parse_cluster_config(cluster)
    found = config.own
    for name in config.names:
        written = policies.get(f"{POLICY_PREFIX}{name}")
        if written is None and name not in BUILT_IN:
            problem = f"policies: there is no ConfigMap {POLICY_PREFIX}{name} in the namespace {config.ref.namespace}"
            raise PolicyError(config.ref.key, PROPERTIES, problem)
        found = stricter(found, parse_fence_policy(written) if written is not None else BUILT_IN[name])
    if len(found.scopes) > MOST_SCOPES + (CLUSTER in found.scopes):
        problem = f"policies: expected at most {MOST_SCOPES} scopes beside the cluster, got {', '.join(found.scopes)}"
        raise PolicyError(config.ref.key, PROPERTIES, problem)
    return found


class _Keys:
    """The keys of one text, read one by one; all their problems are raised together."""

    def __init__(self, written: Mapping[str, str], known: Iterable[str]) -> None:
        self.problems: list[str] = []
        self._values: dict[str, str] = {}
        known = tuple(known)
        for key, value in written.items():
            plain = key.replace("-", "_")
            name = _RENAMED.get(plain, plain)
            if name not in known:
                self.problems.append(f"{key}: is not a known key")
            elif name in self._values:
                self.problems.append(f"{key}: is written twice, in two spellings")
            else:
                self._values[name] = value
        self._known = known

    def read(self, name: str, reader: Callable[[str], T]) -> T | None:
        """The value of a key, None where it is not written or can't be used."""
        if name not in self._values:
            return None
        try:
            return reader(self._values[name])
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return None

    def refuse(self, subject: str) -> None:
        """Raise PolicyError with all problems, if there are any."""
        if self.problems:
            raise PolicyError(subject, PROPERTIES, "; ".join(self.problems))


def _name_of(obj: Mapping[str, object]) -> str:
    metadata = obj.get("metadata")
    if obj.get("apiVersion") != VERSION or obj.get("kind") != KIND or not isinstance(metadata, Mapping):
        return ""
    name = metadata.get("name")
    return name if isinstance(name, str) else ""


def _written(obj: Mapping[str, object]) -> tuple[str, dict[str, str]]:
    """The object's name for errors, and its properties."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    subject = f"{KIND}/{metadata.text('namespace', DEFAULT_NAMESPACE)}/{metadata.text('name')}"
    text = Fields(obj, subject=subject).within("data").text(PROPERTIES)
    return subject, parse_properties(text, subject=subject, field=PROPERTIES)


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise ValueError(f"expected a whole number from {least} to {most}, without a unit, got {shown(text)}")
    return int(text)


def _percentage(text: str) -> int:
    return _whole(text.removesuffix("%"), 1, 100)


def _time(text: str) -> timedelta:
    """A number without a unit is seconds."""
    found = timedelta(seconds=int(text)) if re.fullmatch(r"[0-9]{1,9}", text) else parse_duration(text)
    if not timedelta(0) <= found <= LONGEST_TIME:
        raise ValueError(f"expected from 0 to 7 days, got {shown(text)}")
    return found


def _scope(text: str) -> str:
    if not is_scope(text):
        raise ValueError(f"expected {EXPECTED_SCOPE}, got {shown(text)}")
    return text


def _groups(text: str) -> tuple[str, ...]:
    """`rack=r1 zone=b`: parts of the cluster."""
    groups = tuple(text.split())
    for group in groups:
        scope, separator, value = group.partition("=")
        if not separator or not value or not is_scope(scope) or scope == CLUSTER:
            raise ValueError(f"expected parts of the cluster such as rack=r1 zone=b, got {shown(group)}")
    return groups


def _same(text: str, expected: str) -> str:
    if text != expected:
        raise ValueError(f"expected {expected}, as the ConfigMap is called, got {shown(text)}")
    return text


def _switch(text: str) -> bool:
    if text not in {"on", OFF}:
        raise ValueError(f"expected on or {OFF}, got {shown(text)}")
    return text == OFF


def _yes_or_no(text: str) -> bool:
    found = _YES_AND_NO.get(text.lower())
    if found is None:
        raise ValueError(f"expected true or false, got {shown(text)}")
    return found
