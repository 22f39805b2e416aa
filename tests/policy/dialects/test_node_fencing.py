"""fence-cluster-config and fence-policy ConfigMaps: read as a whole, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from policy.checks.fence_policies import FencePolicies, ScopeCap, StormRule
from policy.checks.rules import rules_of
from policy.checks.verdict import Health, JudgedTarget
from policy.dialects import is_health_check, parse
from policy.dialects.node_fencing import parse_cluster_config, parse_fence_policy, read_policies
from policy.remediation.ladder import remedy
from policy.remediation.strategy_rules import Action
from policy.values.errors import PolicyError
from policy.values.object_refs import Dialect, dialect_of
from tests.policy.builders import NOW, RACK, a_cluster_config, a_node, a_policy, config_map


def policies_of(*maps: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in maps}


def test_the_configuration_alone_is_a_health_check_of_every_node() -> None:
    """The proposal needs no other object: Ready False or Unknown for grace_timeout seconds is to be fenced."""
    obj = a_cluster_config(grace_timeout=30, giveup_retries=2)
    assert is_health_check(obj)
    check = parse(obj)
    assert (check.dialect, check.ref.key) == (Dialect.NODE_FENCING, "ConfigMap/nodewarden/fence-cluster-config")
    assert dialect_of(check.ref) is Dialect.NODE_FENCING
    assert not check.of_machines
    for ready, age, health in (
        ("False", 31, Health.UNHEALTHY),
        ("Unknown", 32, Health.UNHEALTHY),
        ("Unknown", 29, Health.SOON),
        ("True", 99, Health.HEALTHY),
    ):
        node = a_node(ready=ready, age=age, labels={})
        target = JudgedTarget(node.name, node=node)
        assert rules_of(check).covers(target)
        verdict = rules_of(check).judge(target, NOW)
        assert verdict.health is health, (ready, age)
        if health is Health.UNHEALTHY:
            assert remedy(check, target, verdict).action is Action.FENCE
    assert check.template is None


def test_what_is_not_written_has_the_proposals_defaults() -> None:
    config = parse_cluster_config(config_map("fence-cluster-config", "# nothing\nfencing=on"))
    assert (config.grace, config.names, config.own) == (timedelta(minutes=5), (), FencePolicies())


def test_other_config_maps_are_no_health_checks() -> None:
    assert not is_health_check(config_map("fence-cluster-configs", "grace_timeout=5"))
    assert not is_health_check({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fence-cluster-config"}})


def test_every_key_of_a_policy_is_read() -> None:
    written = a_policy(
        "all",
        percentage="40%",
        scope=RACK,
        cap=1,
        quiet_time="3m",
        max_attempts=4,
        attempts_pause=600,
        storage_percentage=50,
        storage_conditions="NoDisk NoPaths",
        storage_events="NoDisk multipathd/NoPaths",
        storage_event_age="2m",
        skip_if_host_lost_storage="true",
        pods_per_minute=60,
        **{"skip-if-host-renews-lease": "yes"},
    )
    assert parse_fence_policy(written) == FencePolicies(
        storms=(StormRule(name="all", percentage=40, scope=RACK),),
        caps=(ScopeCap(scope=RACK, cap=1),),
        quiet_time=timedelta(minutes=3),
        maximum_attempts=4,
        attempts_pause=timedelta(minutes=10),
        storage_percentage=50,
        storage_conditions=("NoDisk", "NoPaths"),
        storage_events=("NoDisk", "multipathd/NoPaths"),
        storage_event_age=timedelta(minutes=2),
        skip_lost_storage=True,
        skip_renewed_lease=True,
        pods_per_minute=60,
    )
    assert parse_fence_policy(a_policy("n", cap=3)) == FencePolicies(cap=3)


def test_the_named_policies_hold_together_and_no_others() -> None:
    config = a_cluster_config(policies="limit racks skip-if-host-lost-storage", fencing_off=f"{RACK}=r7")
    maps = policies_of(a_policy("limit", percentage=60), a_policy("racks", scope=RACK, cap=1), a_policy("unused", cap=1))
    assert read_policies(config, maps) == FencePolicies(
        storms=(StormRule(name="limit", percentage=60),),
        caps=(ScopeCap(scope=RACK, cap=1),),
        skip_lost_storage=True,
        off_groups=(f"{RACK}=r7",),
    )
    assert read_policies(None, maps) == FencePolicies()


def test_a_config_map_of_a_built_in_name_goes_before_the_built_in() -> None:
    own = a_policy("skip-if-host-lost-storage", skip_if_host_lost_storage="true", storage_conditions="NoDisk")
    found = read_policies(a_cluster_config(policies="skip-if-host-lost-storage"), policies_of(own))
    assert (found.skip_lost_storage, found.lost_storage_conditions) == (True, ("NoDisk",))


def test_the_switch_says_where_it_is() -> None:
    assert read_policies(a_cluster_config(fencing="off"), {}).switched_off == (
        "fencing=off in ConfigMap/nodewarden/fence-cluster-config",
    )


def named(*maps: dict[str, Any], policies: str = "one") -> None:
    read_policies(a_cluster_config(policies=policies), policies_of(*maps))


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (a_cluster_config(grace_timeout="5m"), "grace_timeout: expected a whole number from 1 to 604800, without a unit"),
        (a_cluster_config(grace_timeout=""), "grace_timeout"),
        (a_cluster_config(grace_timeout="٥"), "grace_timeout"),
        (a_cluster_config(grace_timeout="9" * 5000), "grace_timeout"),
        (a_cluster_config(giveup_retries=10), "giveup_retries: expected a whole number from 1 to 9"),
        (a_cluster_config(gracetimeout=5), "gracetimeout: is not a known key"),
        (a_cluster_config(fencing="of"), "fencing: expected on or off"),
        (a_cluster_config(fencing_off="r1"), "fencing_off: expected parts of the cluster such as rack=r1"),
        (a_cluster_config(fencing_off="cluster=x"), "fencing_off"),
        (config_map("fence-cluster-config", "grace_timeout"), "line 1: expected key=value"),
        (config_map("fence-cluster-config", "grace_timeout=5\ngrace_timeout=6"), "line 2: grace_timeout is written twice"),
        (config_map("fence-cluster-config", None), "config.properties: expected a non-empty string"),
        (config_map("fence-cluster-config", None, **{"config.propertis": "grace_timeout=5"}), "config.properties"),
    ],
)
def test_a_cluster_configuration_that_cannot_be_used_is_refused_as_a_whole(obj: dict[str, Any], problem: str) -> None:
    """S7, N08: never half of it, never a zero where a text was no number."""
    with pytest.raises(PolicyError) as refusal:
        parse(obj)
    assert "ConfigMap/nodewarden/fence-cluster-config: " in str(refusal.value)
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (a_policy("one"), "expected at least one of percentage, scope, cap"),
        (a_policy("one", scope="rack"), "expected at least one of"),
        (a_policy("one", percentage=0), "percentage: expected a whole number from 1 to 100"),
        (a_policy("one", percentage=101), "percentage"),
        (a_policy("one", percentage=60, precentage=60), "precentage: is written twice, in two spellings"),
        (a_policy("one", percentage=60, scope="a rack"), "scope: expected cluster, zone, pool or the key of a node label"),
        (a_policy("one", cap=0), "cap: expected a whole number from 1 to 1000"),
        (a_policy("one", quiet_time="soon"), "quiet_time: expected a duration"),
        (a_policy("one", pods_per_minute="0"), "pods_per_minute: expected a whole number from 1"),
        (a_policy("one", quiet_time="1000h"), "quiet_time: expected from 0 to 7 days"),
        (a_policy("one", max_attempts=0), "max_attempts"),
        (a_policy("one", storage_percentage="x"), "storage_percentage"),
        (a_policy("one", skip_if_host_lost_storage="perhaps"), "skip_if_host_lost_storage: expected true or false"),
        (a_policy("one", percentge=60), "percentge: is not a known key"),
        (
            config_map("fence-policy-one", "policy_name=two\npercentage=60"),
            "policy_name: expected one, as the ConfigMap is called",
        ),
        (config_map("fence-policy-two", "percentage=60"), "policies: there is no ConfigMap fence-policy-one"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_all_that_it_was_to_hold_with(obj: dict[str, Any], problem: str) -> None:
    """S7: the good policies beside it do not count either; a limit that people think they have is none."""
    with pytest.raises(PolicyError) as refusal:
        named(obj, a_policy("good", percentage=50), policies="good one")
    assert problem in str(refusal.value)


def test_more_scopes_than_can_be_counted_are_refused() -> None:
    maps = [a_policy(f"p{number}", scope=f"label-{number}", cap=1) for number in range(5)]
    with pytest.raises(PolicyError, match="at most 4 scopes"):
        read_policies(a_cluster_config(policies=" ".join(f"p{number}" for number in range(5))), policies_of(*maps))
    policies = read_policies(a_cluster_config(policies="p0 p1 p2 p3"), policies_of(*maps))
    assert len(policies.scopes) == 4
