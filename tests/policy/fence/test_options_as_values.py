"""S41: whatever objects and nodes say becomes no option, shell word or path, in each of the ways in which a device is written.

A kubelet chooses its node's providerID when it registers, so what that fills in is held to the same grammar, after filling in.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.episode.fencing_requests import read_request
from policy.fence.config import shown_config
from policy.fence.plan_compiler import compile_config
from policy.values.errors import PolicyError
from tests.policy.builders import NODE, a_node, config, lines, node, plan_of_template, read
from tests.policy.episode.test_fence_agents_remediations import remediation
from tests.policy.fence.test_templates import template

OPTION = "-oProxyCommand=touch${IFS}x"
VIRSH = {"agent_name": "fence_virsh", "ip": "10.0.0.1", "plug": NODE, "action": "reboot"}
HOSTILE = [OPTION, "vm; reboot", "$(reboot)", "vm' -x", "a/../x;"]


def in_config_map(**more: str) -> list[str]:
    """What is refused of the method `bmc` of a ConfigMap for one node."""
    return list(read({f"fence-config-node-{NODE}": config("", "bmc", bmc=lines(**(VIRSH | more)))}).errors)


@pytest.mark.parametrize("key", ["username", "login", "plug", "ipport", "switch", "uuid"])
def test_a_line_of_a_config_map_is_no_option(key: str) -> None:
    found = in_config_map(**{key: OPTION})
    (error,) = found
    assert error.startswith(f"ConfigMap/default/fence-config-node-{NODE}: data[fence-method-bmc].{key}: expected ")
    assert key not in {"username", "login"} or OPTION not in error  # S12


def test_a_line_that_says_where_a_credential_is_leads_into_the_workers_folder_only() -> None:
    assert in_config_map(password="file:default/bmc/n1/password", username="env:NODEWARDEN_CREDENTIAL_USER") == []
    for place in (
        "file:../../etc/shadow",
        "file:/etc/shadow",
        "file:a//b",
        "file:",
        "env:A B",
        "env:-x",
        "file:fleet/bmc/password",
    ):
        (error,) = in_config_map(password=place)
        assert "data[fence-method-bmc].password: expected " in error


@pytest.mark.parametrize("variable", ["ProviderID", "InstanceID", "Zone", "Region"])
@pytest.mark.parametrize("said", HOSTILE)
def test_what_a_node_says_of_itself_is_no_option_once_it_is_filled_in(variable: str, said: str) -> None:
    labels = {"topology.kubernetes.io/region": said, "topology.kubernetes.io/zone": said}
    about = a_node(NODE, provider_id=said, labels=labels)
    method = lines(**(VIRSH | {"plug": f"{{{{ .{variable} }}}}"}))
    (error,) = read({f"fence-config-node-{NODE}": config("", "bmc", bmc=method)}, of=about).errors
    assert "data[fence-method-bmc].plug: expected a word" in error


@pytest.mark.parametrize("said", ["-c", "vm\naction=on", "vm\n", "\tvm", "vm x"])
def test_a_provider_id_in_a_template_has_one_line_and_is_one_word(said: str) -> None:
    power = {"driver": "fence_virsh", "parameters": {"ip": "10.0.0.1", "plug": "{{ .ProviderID }}"}}
    with pytest.raises(PolicyError, match=r"parameters\.plug: expected a word|parameters\.plug: expected a single line"):
        plan_of_template(template([power]), node(provider_id=said))
    assert plan_of_template(template([power]), node(provider_id="sim:///vm-1")).endpoints == (
        "fence_virsh://10.0.0.1:22/sim:%2F%2F%2Fvm-1",
    )


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"parameters": {"ip": "10.0.0.1", "plug": "{{ .NodeName }}", "command-prompt": "-x"}}, "parameters.command-prompt"),
        ({"parameters": {"ip": "fe80::1% -oProxyCommand=x", "plug": "{{ .NodeName }}"}}, "parameters.ip"),
        ({"secretRef": {"name": "{{ .ProviderID }}"}}, "secretRef.name"),
        ({"secretRef": {"name": "../configmaps/x"}}, "secretRef.name"),
        ({"credentials": [{"name": "a/b"}]}, "credentials[0].name"),
        ({"credentials": [{"kind": "file", "keys": {"password": "bmc/{{ .ProviderID }}"}}]}, "credentials[0].keys.password"),
        ({"credentials": [{"kind": "env", "keys": {"password": "a b"}}]}, "credentials[0].keys.password"),
    ],
)
def test_a_field_of_a_template_is_no_option_and_no_path(more: dict[str, Any], field: str) -> None:
    power = {"driver": "fence_virsh", "parameters": {"ip": "10.0.0.1", "plug": "{{ .NodeName }}"}} | more
    with pytest.raises(PolicyError) as caught:
        plan_of_template(template([power]), node(provider_id="x/../../other/password"))
    assert field in caught.value.field
    assert caught.value.problem.startswith("expected ")


@pytest.mark.parametrize("name", ["username", "--username", "login", "plug", "--port", "ipport"])
def test_a_parameter_of_a_remediation_is_no_option(name: str) -> None:
    own = {"--ip": {"node-7": "10.0.0.7"}, "--plug": {"node-7": "vm-7"}}
    spec: dict[str, Any] = {"agent": "fence_virsh", "nodeparameters": own, "sharedparameters": {}}
    if name in {"plug", "--port"}:
        spec["nodeparameters"] = {"--ip": own["--ip"], name: {"node-7": OPTION}}
    else:
        spec["sharedparameters"] = {name: OPTION}
    problem = read_request(remediation(spec)).problem
    assert problem.startswith("FenceAgentsRemediation/medik8s/node-7: spec.")
    assert ": expected " in problem
    assert "username" not in name or OPTION not in problem  # S12


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"ip": "10.0.0.1", "ca-file": "/etc/../etc/shadow"}, "ca-file"),
        ({"ip": "10.0.0.1", "ca-file": "/etc/ca.pem\nx"}, "ca-file"),
        ({"ip": "10.0.0.1", "system": "/redfish/v1/../x"}, "system"),
        ({"ip": "10.0.0.1", "system": "1?x=y"}, "system"),
        ({"ip": "10.0.0.1", "system": "{{ .ProviderID }}"}, "system"),
        ({"ip": "{{ .ProviderID }}"}, "ip"),
        ({"ip": "fe80::1%x@evil.example"}, "ip"),
    ],
)
def test_a_redfish_device_is_a_host_and_a_path(parameters: dict[str, str], field: str) -> None:
    power = {"driver": "redfish", "nodeParameters": {NODE: parameters}, "secretRef": {"name": "bmc"}}
    with pytest.raises(PolicyError, match=f"{NODE}.{field}"):
        plan_of_template(template([power]), node(provider_id="user@evil.example/x"))


# S12: whatever is written where, no secret comes out of a configuration again. Not in what is shown, nor in what is refused.

CANARY = "c4n4ry"

SECRET_KEYS = (
    *("password", "passwd", "username", "login", "snmp-priv-passwd", "snmp_priv_passwd", "secret-access-key", "session_token"),
    *("password_script", "api_token", "community", "identity_file", "service-account-json"),
)
AGENTS = (
    "ipmi",
    "redfish",
    "ec2",
    "gce",
    "fence_gce",
    "fence_ipmilan",
    "fence_brocade",
    "fence_eaton_snmp",
    "fence_aws",
    "ssh",
    "cordon",
)
PLAIN_KEYS = ("ip", "plug", "port", "action", "delay", "zone", "project", "region", "power-wait", "node_name", "script_path")
PLAIN_VALUES = ("10.0.0.1", "7", "off", "reboot", "n1", "us-central1-b", "{{ .NodeName }}", "[NODE_NAME]", "", "file:x", "env:X")

SECRET_VALUES = st.builds(
    lambda before, after: f"{before}{CANARY}{after}",
    st.sampled_from(("", "a=", "=", "{{ .NodeName }}", "{{", "file", "file:", "env:", "[NODE_NAME]", '"', "#")),
    st.sampled_from(("", "=b=", "}}", '"', " x")),
)
SECRETS = st.dictionaries(st.sampled_from(SECRET_KEYS), SECRET_VALUES, max_size=3)
PLAIN = st.dictionaries(st.sampled_from(PLAIN_KEYS), st.sampled_from(PLAIN_VALUES), max_size=5)
HEAD = st.fixed_dictionaries(
    {}, optional={"agent_name": st.sampled_from(AGENTS), "template": st.sampled_from(("bmc", "nowhere"))}
)
USABLE = st.sampled_from(
    (
        {"agent_name": "ipmi", "ip": "10.0.0.1", "action": "reboot", "password": CANARY, "username": f"{CANARY}=x"},
        {"agent_name": "fence_eaton_snmp", "ip": "10.0.0.1", "plug": "7", "action": "reboot", "snmp-priv-passwd": CANARY},
        {"agent_name": "fence-gce", "zone": "zone-1", "project": "p-1", "action": "reboot", "service-account-json": CANARY},
        {"template": "bmc", "ip": "10.0.0.1", "action": "reboot"},
    )
)
"""Methods that can be read wholly, so that what a plan carries is looked through, too."""
METHOD = st.one_of(
    st.builds(lambda parts: lines(**parts), USABLE),
    st.builds(lambda *parts: lines(**{k: v for part in parts for k, v in part.items()}), HEAD, PLAIN, SECRETS),
)
BROKEN = st.sampled_from(("", "\nnonsense", "\npassword", "\n=x", f"\npassword={CANARY}\npassword={CANARY}"))


@settings(max_examples=120, deadline=None)
@given(
    text=METHOD,
    template=METHOD,
    common=SECRETS,
    broken=BROKEN,
    keys=st.sets(st.sampled_from(("password", "username", "ip", "token")), max_size=2),
    step=st.sampled_from(("isolation", "power", "recovery")),
)
def test_no_value_of_a_credential_is_ever_shown(
    *, text: str, template: str, common: dict[str, str], broken: str, keys: set[str], step: str
) -> None:
    """S12. Files and variables of a worker are named, which is what they are for: their names hold no canary but where the value
    itself is one."""
    listed = {"isolation": "", "power": "off on", "recovery": ""} | {step: "m"}
    objects = {
        "fence-config-n1": config(listed["isolation"], listed["power"], listed["recovery"], m=text + broken),
        "fence-template-bmc": {"template.properties": template},
        "fence-cluster-config": {"config.properties": lines(**common)},
    }
    found = read(objects, {"secret-fence-method-m-n1": tuple(sorted(keys))}, of=node(provider_id="gce://p-1/zone-1/n1"))
    shown = repr(shown_config(found)) + repr(found)
    try:
        shown += repr(compile_config(found))
    except PolicyError as error:
        shown += str(error)
    references = ("file:", "env:")
    if not any(prefix + CANARY in text + template + lines(**common) for prefix in references):
        assert CANARY not in shown
