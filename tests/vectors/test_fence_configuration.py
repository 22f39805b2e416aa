"""The fence configurations of the node-fencing proposal (seed 002), verbatim, and the cases of its published code that are about
configuration. `seeds/002-*.yaml` hold the proposal's YAML and nothing else; only what stands for a node is put in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.dialects.node_fencing import parse_cluster_config
from policy.fence.config import FenceConfig, shown_config
from policy.fence.plan_compiler import compile_config
from policy.values.errors import PolicyError
from policy.values.fields import parse_properties
from tests.encoded import encoded
from tests.policy.fence.builders import PDU, SWITCH, lines, node, read
from tests.policy.fencing_builders import a_cluster_config
from tests.vectors.fencing import VECTORS

SEEDS = Path(__file__).with_name("seeds")
NODE = "k8s-cluster-host1.usersys.redhat.com"
EC2 = "aws:///us-east-1a/i-0123456789abcdef0"

TEMPLATES = {"fence-method-template-fc-switch-brocade": SWITCH, "fence-method-template-eaton-pdu": PDU}
"""The proposal only names them."""


def written(name: str) -> dict[str, Any]:
    """The one ConfigMap of a file, by its name, with our node put in."""
    text = (SEEDS / f"002-{name}.yaml").read_text(encoding="utf-8").replace("[NODE_NAME]", NODE)
    (found,) = yaml.safe_load(text)
    return {found["metadata"]["name"]: found["data"]}


def steps(found: FenceConfig) -> dict[str, list[str]]:
    return {step: [each["method"] for each in methods] for step, methods in encoded(shown_config(found))["steps"].items()}


DEFAULT_STEPS = {"isolation": ["mark-unschedulable"], "power-management": ["restart-instance"], "recovery": ["mark-schedulable"]}


def test_the_default_written_out_means_what_it_means_when_it_is_not_written() -> None:
    """ "Given this configuration is default, it does not have to be specified at all." Its recovery is a slip."""
    said, unsaid = read(written("default"), of=node(NODE, provider_id=EC2)), read({}, of=node(NODE, provider_id=EC2))
    assert (said.name, said.source) == (f"fence-config-{NODE}", "node")
    assert (unsaid.name, unsaid.source) == ("default", "default")
    assert steps(said) == steps(unsaid) == DEFAULT_STEPS
    assert [len(said.warnings), len(unsaid.warnings)] == [1, 0]
    assert "mark-unschedulable is taken as mark-schedulable" in said.warnings[0]
    assert said.errors == unsaid.errors == ()


def test_bare_metal_as_the_proposal_writes_it() -> None:
    found = read(written("bare-metal") | TEMPLATES, of=node(NODE))
    assert encoded(shown_config(found)) == {
        "node": NODE,
        "config": f"fence-config-{NODE}",
        "source": "node",
        "steps": {
            "isolation": [method("fc-off", "fc-switch-brocade", "fence_brocade", "off", ipaddr="10.0.0.8", plug="2")],
            "power-management": [
                method("eaton-off", "eaton-pdu", "fence_eaton_snmp", "off", ip="10.0.0.9", plug="1", snmp_version="3"),
                method("eaton-on", "eaton-pdu", "fence_eaton_snmp", "on", ip="10.0.0.9", plug="1", snmp_version="3"),
            ],
            "recovery": [method("fc-on", "fc-switch-brocade", "fence_brocade", "on", ipaddr="10.0.0.8", plug="2")],
        },
        "warnings": [],
        "errors": [],
    }
    assert len(compile_config(found).devices) == 1


def method(name: str, template: str, driver: str, action: str, **parameters: str) -> dict[str, Any]:
    return {
        "method": name,
        "template": f"fence-method-template-{template}",
        "driver": driver,
        "action": action,
        "parameters": parameters,
    }


def test_the_configuration_of_a_type_overrides_the_default_unless_the_node_has_its_own() -> None:
    """ "overrides the default node fence configuration of all nodes with `type=compute` label unless more specific
    `fence-config-node-[NODE_NAME]` is available"."""
    (of_type,) = written("type-compute")
    lines = {"config.properties": "isolation=cordon\npower_management=restart-instance\nrecovery=uncordon"}
    own = {f"fence-config-node-{NODE}": {"config.properties": "power_management=restart-instance"}}
    compute = node(NODE, provider_id=EC2, type="compute")
    assert steps(read({of_type: lines}, of=compute)) == DEFAULT_STEPS | {"isolation": ["cordon"], "recovery": ["uncordon"]}
    assert read({of_type: lines}, of=node(NODE, provider_id=EC2, type="storage")).source == "default"
    more_specific = read({of_type: lines} | own, of=compute)
    assert (more_specific.name, more_specific.source) == (f"fence-config-node-{NODE}", "node")
    assert steps(more_specific) == {"isolation": [], "power-management": ["restart-instance"], "recovery": []}


def test_a_method_overrides_its_template() -> None:
    """N05: shipped the other way round, which switches the template's plug."""
    found = read(written("bare-metal") | TEMPLATES, of=node(NODE))
    assert "plug=1" not in PDU["template.properties"].replace("port", "plug")
    assert {each.parameters["plug"] for each in found.power_management} == {"1"}


def test_methods_are_a_sequence() -> None:
    """N06: off before on, whatever else; that the on waits for the off is `tests/workflows/test_fencing_vectors.py`."""
    objects = written("bare-metal")
    (data,) = objects.values()
    data["config.properties"] = data["config.properties"].replace("eaton-off eaton-on", "eaton-on eaton-off")
    errors = read(objects | TEMPLATES, of=node(NODE)).errors
    assert "eaton-on switches on what nothing before it has switched off" in errors[0]
    assert "eaton-off switches off what eaton-on has switched on" in errors[1]


def test_a_value_may_contain_equals_signs_and_bad_numbers_are_named() -> None:
    """N08, S7: shipped, what was no number became 0, and fencing was silently off. Here nothing of such a configuration holds: no
    node is fenced by it (`tests/policy/checks/test_fence_policies.py` has what becomes of the rest), and never by half of it."""
    vector = VECTORS["N08"]
    assert parse_properties(vector["method"], subject="s", field="f") == vector["parsed"]
    properties = lines(**vector["cluster"])
    found = read({"fence-cluster-config": {"config.properties": properties}}, of=node(NODE, provider_id=EC2))
    assert [next(key for key in vector["refused"] if key in error) for error in found.errors] == vector["refused"]
    with pytest.raises(PolicyError, match=".*".join(vector["refused"])):
        parse_cluster_config(a_cluster_config(**vector["cluster"]))
