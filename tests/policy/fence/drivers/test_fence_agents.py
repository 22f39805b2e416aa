"""What a plan may say of a fence agent: which agents, which parameters, and one spelling for one plug."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.fence.drivers import canonical_driver, fence_agents, parameters_of
from policy.fence.drivers.agent_parameters import FALSE, TRUE, AgentMetadata, AgentParameter, fitted
from policy.fence.drivers.contract import ParameterError
from policy.fence.drivers.fence_agents import PUBLISHED, SINGLE_MACHINE_AGENTS
from policy.fence.template_reader import DeviceReader
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from tests.policy.builders import a_node
from tests.vectors.objects import VECTORS


def endpoint(agent: str, **parameters: str) -> str:
    takes = parameters_of(agent)
    assert takes is not None
    return takes.endpoint({name.replace("__", "-"): value for name, value in parameters.items()})


def test_which_agents_tell_machines_apart_by_plugs() -> None:
    """S4, S10: the plug of one that does is never taken for its address."""
    assert [fence_agents.has_plugs(agent) for agent in ("fence_apc", "fence_ipmilan")] == [True, False]


def described(required: list[str], boolean: list[str]) -> AgentMetadata:
    parameters = {name: AgentParameter(required=True) for name in required}
    parameters |= {name: AgentParameter(kind="boolean") for name in boolean}
    parameters["action"] = AgentParameter(required=True, default="reboot")
    return AgentMetadata(agent="fence_vector", parameters=parameters)


@pytest.mark.parametrize("case", VECTORS["N09"]["cases"], ids=lambda case: "-".join(case["given"]) or "nothing")
def test_n09_parameters_are_held_against_an_agents_description(case: dict[str, Any]) -> None:
    metadata = described(VECTORS["N09"]["required"], VECTORS["N09"]["boolean"])
    if case["taken"] is None:
        with pytest.raises(ParameterError):
            fitted(metadata, case["given"])
        return
    fitting = fitted(metadata, case["given"])
    assert fitting.values == case["taken"]
    for unknown in case.get("unknown", ()):
        assert fitting.warnings == (f"fence_vector knows no {unknown}: left out",)


def test_n09_the_words_for_true_and_false() -> None:
    assert set(VECTORS["N09"]["true"]) == TRUE
    assert set(VECTORS["N09"]["false"]) == FALSE


def test_an_explicit_no_is_said_only_where_the_agent_would_take_yes() -> None:
    """Many agents only look whether a boolean was said at all, so an unneeded `no` would mean yes."""
    metadata = AgentMetadata(
        agent="fence_x",
        parameters={"lanplus": AgentParameter(kind="boolean", default="1"), "ssl": AgentParameter(kind="boolean")},
    )
    assert fitted(metadata, {"lanplus": "no", "ssl": "no"}).values == {"lanplus": "0"}


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (AgentParameter(kind="select", choices=("1", "2c", "3")), "4", "expected one of 1, 2c, 3, got '4'"),
        (AgentParameter(kind="second"), "-1", "expected a whole number, got '-1'"),
        (AgentParameter(kind="integer"), "x", "expected a whole number, got 'x'"),
        (AgentParameter(kind="boolean"), "maybe", "got 'maybe'"),
    ],
)
def test_a_value_that_the_agent_would_not_take_is_refused_with_what_was_expected(
    parameter: AgentParameter, value: str, expected: str
) -> None:
    with pytest.raises(ParameterError, match=expected):
        fitted(AgentMetadata(agent="fence_x", parameters={"snmp_version": parameter}), {"snmp-version": value})


def test_a_refusal_shows_no_credential() -> None:
    """S12."""
    metadata = AgentMetadata(agent="fence_x", parameters={"token": AgentParameter(kind="integer")})
    with pytest.raises(ParameterError) as caught:
        fitted(metadata, {"token": "k3p"})
    assert "k3p" not in str(caught.value)


@pytest.mark.parametrize(
    ("agent", "parameters", "expected"),
    [
        ("fence_apc_snmp", {"ip": "10.0.0.7", "plug": "1"}, "fence_apc_snmp://10.0.0.7:161/1"),
        ("fence-apc-snmp", {"ipaddr": "10.0.0.7", "port": "1", "ipport": "161"}, "fence_apc_snmp://10.0.0.7:161/1"),
        ("fence_apc_snmp", {"--ip": "10.0.0.7", "--plug": "1:1"}, "fence_apc_snmp://10.0.0.7:161/1"),
        ("fence_apc", {"ip": "PDU-7", "plug": "5", "switch": "2"}, "fence_apc://pdu-7:23/2:5"),
        ("fence_apc", {"ip": "pdu-7", "plug": "2:5", "ssh": "yes"}, "fence_apc://pdu-7:22/2:5"),
        ("fence_vmware_rest", {"ip": "vc", "plug": "web 1/é", "ssl": "1"}, "fence_vmware_rest://vc:443/web%201%2F%C3%A9"),
        ("fence_ipmilan", {"ip": "FE80:0::1"}, "fence_ipmilan://[fe80::1]:623"),
        ("fence_redfish", {"ip": "bmc", "systems-uri": "/redfish/v1/Systems/2"},
         "fence_redfish://bmc:443?systems_uri=%2Fredfish%2Fv1%2FSystems%2F2"),
        ("fence_lpar", {"ip": "hmc", "plug": "lpar1", "managed": "frame-1"}, "fence_lpar://hmc:22/lpar1?managed=frame-1"),
        ("fence_openstack", {"uuid": "abc", "project-name": "p"}, "fence_openstack:///abc?project_name=p"),
        ("fence_azure_arm", {"plug": "vm-7", "resourceGroup": "prod"}, "fence_azure_arm:///vm-7?resourceGroup=prod"),
        ("fence_lindypdu", {"ip": "pdu", "plug": "1", "switch": "2"}, "fence_lindypdu://pdu:161/1?switch=2"),
        ("fence_ours", {"ip": "box"}, "fence_ours://box"),
        ("fence_ours", {"ip": "box", "ipport": "99", "plug": "1"}, "fence_ours://box:99/1"),
    ],
)  # fmt: skip
def test_one_plug_has_one_spelling(agent: str, parameters: dict[str, str], expected: str) -> None:
    """S9."""
    takes = parameters_of(agent)
    assert takes is not None
    assert takes.endpoint(parameters) == expected
    assert canonical_driver(agent) == expected.partition(":")[0]


PARAMETER = st.sampled_from(["ip", "ipaddr", "--ip", "plug", "port", "ipport", "switch", "ssh", "region", "target", "bogus"])
VALUE = st.one_of(st.sampled_from(["1", "2", "161", "10.0.0.7", "host", "1:1", "a,b", ""]), st.text(max_size=4))


@example(agent="fence_drac5", parameters={"ip": "1"})
@example(agent="fence_drac5", parameters={"ip": "1", "port": "server-2"})
@given(agent=st.sampled_from(sorted(PUBLISHED)), parameters=st.dictionaries(PARAMETER, VALUE, max_size=4))
def test_an_endpoint_is_made_or_refused_and_never_two_in_one(agent: str, parameters: dict[str, str]) -> None:
    """S9: what reaches a task queue, a table and a URL holds nothing but what may stand there."""
    takes = parameters_of(agent)
    assert takes is not None
    with suppress(ParameterError):
        made = takes.endpoint(parameters)
        assert made.startswith(f"{agent}://")
        assert made.isascii()
        assert made.isprintable()
        assert " " not in made
        has_plug = "/" in made.partition("://")[2].partition("?")[0]
        # A DRAC/MC has a plug for each of its blades, a DRAC 5 none: only what is said of that agent's device tells which it is.
        says_plug = agent != "fence_drac5" or bool(parameters.get("plug") or parameters.get("port"))
        assert has_plug == (agent not in SINGLE_MACHINE_AGENTS and says_plug)


@pytest.mark.parametrize(
    ("agent", "parameters", "problem"),
    [
        ("fence_apc", {"ip": "a"}, "plug: expected the plug"),
        ("fence_apc", {"plug": "1"}, "ip: expected the address"),
        ("fence_apc", {"ip": "a", "plug": "1,2"}, "each plug that feeds the node is a device of its own"),
        ("fence_apc", {"ip": "a", "plug": "1", "port": "2"}, "given twice"),
        ("fence_apc", {"ip": "a", "plug": "1\naction=on"}, "a single line"),
        ("fence_apc", {"ip": "a", "plug": "1", "delay": "5"}, "the device's own delay"),
        ("fence_apc", {"ip": "a", "plug": "1", "password-script": "/x"}, "run or write"),
        ("fence_apc", {"ip": "a", "plug": "1", "identity-file": "/etc/shadow"}, "its content as a credential"),
        ("fence_apc_snmp", {"ip": "a", "plug": "1", "snmpset_path": "/x"}, "names a program"),
        ("fence_apc", {"ip": "a", "plug": "1", "debug": "/x"}, "password to a file"),
        ("fence_azure_arm", {"plug": "vm", "network-fencing": "1"}, "leaves the machine running"),
        ("fence_virsh", {"ip": "a", "plug": "vm", "missing_as_off": "1"}, "never off"),
        ("fence_ipmilan", {"ip": "a", "plug": "1"}, "has no plugs"),
        ("fence_ipmilan", {"ip": "a", "retry_on": "0"}, "set by nodewarden itself"),
        ("fence_xenapi", {"plug": "vm", "session_url": "https://root:pw@xen"}, "credentials in a Secret"),
        ("fence_ours", {}, "ip or plug"),
    ],
)
def test_what_is_not_for_a_configuration_to_set_is_refused(agent: str, parameters: dict[str, str], problem: str) -> None:
    """S3, S4, S12."""
    takes = parameters_of(agent)
    assert takes is not None
    with pytest.raises(ParameterError, match=problem):
        takes.endpoint(parameters)


def read(power: dict[str, Any]) -> Any:
    reader = DeviceReader(node=a_node("node-1"), namespace="ns")
    return reader.read(Fields({"power": [power]}, subject="template"), "power")


@pytest.mark.parametrize(
    ("power", "problem"),
    [
        ({"driver": "fence_apc", "parameters": {"ip": "pdu", "plug": "1"}}, "nothing identifies the device"),
        ({"driver": "fence_apc", "parameters": {"plug": "1"}, "nodeParameters": {"node-1": {"ip": "a"}}}, "nothing identifies"),
        (
            {"driver": "fence_ipmilan", "parameters": {"ip": "c"}, "nodeParameters": {"node-1": {"plug": "1"}}},
            "nothing identifies",
        ),
        ({"driver": "fence_apc", "nodeParameters": {"node-1": {"ip": "a", "plug": "1", "community": "x"}}}, "is a credential"),
        ({"driver": "fence_kdump", "nodeParameters": {"node-1": {"plug": "1"}}}, "can't be used: it waits for a crash dump"),
        ({"driver": "fence_ifmib", "nodeParameters": {"node-1": {"ip": "a", "plug": "1"}}}, "leaves the machine running"),
        ({"driver": "fenced", "nodeParameters": {"node-1": {"ip": "a"}}}, "an agent of fence-agents by its name"),
        (
            {
                "driver": "fence_apc",
                "parameters": {"ip": "p"},
                "nodeParameters": {"node-1": {"plug": "1"}, "node-2": {"port": "1:1"}},
            },
            "is the device of node node-1 too",
        ),
    ],
)
def test_a_plan_refuses_a_device_that_is_not_the_nodes_own_or_no_power_device(power: dict[str, Any], problem: str) -> None:
    """S1, S9, S10, S12."""
    with pytest.raises(PolicyError, match=problem):
        read(power)
