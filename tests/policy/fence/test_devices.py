"""Devices of methods: what identifies them (S9, S10), which driver an agent's name leads to, and where credentials are (S12)."""

from __future__ import annotations

from typing import Any

import pytest

from policy.episode.messages import Pinned
from policy.fence.config import FenceConfig, Method, shown_parameters
from policy.fence.credential_hosts import hosts_of, hosts_written, not_for
from policy.fence.device_check import named_beside
from policy.fence.drivers import device_behind, same_device
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice
from policy.fence.power import another_machine, host_of, insecurity_of, instance_of, system_of
from tests.policy.builders import PDU, config, ipmi, lines, node, of_node, only, read

GCE = "gce://my-project/us-central1-b/n1"
EC2 = "aws:///us-east-1a/i-0123456789abcdef0"


def power(found: FenceConfig) -> Method:
    assert found.errors == ()
    return only(found.power_management)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("fence-config-type-compute", ipmi(action="reboot")),
        ("fence-config-type-compute", lines(template="bmc", action="reboot")),
        ("fence-config-type-compute", lines(template="bmc", cipher="17", action="reboot")),
        ("fence-config-node-n1", lines(template="bmc", action="reboot")),
    ],
)
def test_no_device_is_touched_that_only_a_shared_object_names(name: str, method: str) -> None:
    """S10: the address of a type's object or of a template is everybody's, whichever object names the template."""
    template = {"fence-method-template-bmc": {"template.properties": ipmi()}}
    found = read({name: config("", "bmc", bmc=method)} | template, of=node(type="compute"))
    assert found.power_management == ()
    (error,) = found.errors
    assert "nothing identifies the device of node n1: expected one of ip, ipport" in error


def test_what_stands_for_something_is_never_taken_for_it() -> None:
    """The proposal's own placeholder, copied: switching off the host `[NODE_NAME]` is nobody's wish."""
    found = read(
        {"fence-config-type-compute": config("", "bmc", bmc=ipmi(ip="[NODE_NAME]", action="off"))}, of=node(type="compute")
    )
    assert "[NODE_NAME] stands for something: write the value itself, or a variable" in only_error(found)


def test_a_node_name_that_is_another_nodes_is_refused() -> None:
    """S9: a copy in which not everything was changed."""
    written = {"config.properties": "node_name=n2\npower_management=off", "fence-method-off": ipmi(action="off")}
    assert "node_name: contradicts Node/n1, for which it was found: got 'n2'" in only_error(read({"fence-config-n1": written}))
    method = config("", "bmc", bmc=ipmi(action="reboot", node_name="n2"))
    assert "data[fence-method-bmc].node_name: contradicts Node/n1" in only_error(read({"fence-config-n1": method}))


def test_a_plug_that_contradicts_the_provider_id_is_refused() -> None:
    """S9: as in the published demo, whose node 48dw has the plug of rsh1."""
    method = lines(agent_name="fence-gce", project="my-project", zone="us-central1-b", plug="other", action="reboot")
    found = read({"fence-config-n1": config("", "gce", gce=method)}, of=node(provider_id=GCE))
    assert "data[fence-method-gce].plug: contradicts the providerID of Node/n1, which says 'n1': got 'other'" in only_error(found)


@pytest.mark.parametrize("agent", ["fence-gce", "fence_gce", "gce"])
def test_googles_agent_is_our_own_driver(agent: str) -> None:
    method = lines(agent_name=agent, project="my-project", zone="us-central1-b", plug="n1", action="reboot")
    found = of_node("", "gce", gce=method)
    device = power(found).device
    assert device is not None
    assert (device.driver, device.endpoint, found.warnings) == ("gce", GCE, ())


def test_options_of_an_agent_say_nothing_to_our_own_driver_and_a_warning_says_so() -> None:
    method = lines(agent_name="fence_gce", project="p-1", zone="us-central1-b", plug="n1", action="reboot")
    found = of_node("", "gce", gce=f"{method}\npower-wait=30\npower_timeout=180")
    assert found.errors == ()
    assert [each.partition("data")[2] for each in found.warnings] == [
        "[fence-method-gce].power-wait: is not used: gce has time limits of its own",
        "[fence-method-gce].power_timeout: is not used: gce has time limits of its own",
    ]


def test_amazons_agent_is_our_own_driver_and_takes_the_instance_from_the_provider_id() -> None:
    found = read({"fence-config-n1": config("", "aws", aws="agent_name=fence_aws\naction=reboot")}, of=node(provider_id=EC2))
    method = power(found)
    assert method.device is not None
    assert (method.driver, method.device.endpoint) == ("ec2", "ec2://us-east-1/i-0123456789abcdef0")
    assert shown_parameters(method) == {"region": "us-east-1", "instance": "i-0123456789abcdef0"}


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        ("ssh", "ssh asks the node itself"),
        ("fence_kdump", "switches nothing off"),
        ("fence_scsi", "the machine runs on"),
        ("bmc", "expected one of ec2, gce, ipmi"),
    ],
)
def test_what_proves_no_off_or_is_unknown_is_refused(agent: str, problem: str) -> None:
    """S2, S3."""
    found = of_node("", "m", m=lines(agent_name=agent, action="off", ip="10.0.0.1"))
    assert problem in only_error(found)
    assert found.power_management == ()


@pytest.mark.parametrize(
    ("provider_id", "driver", "endpoint"), [(EC2, "ec2", "ec2://us-east-1/i-0123456789abcdef0"), (GCE, "gce", GCE)]
)
def test_without_any_configuration_the_instance_of_the_provider_id_is_restarted(
    provider_id: str, driver: str, endpoint: str
) -> None:
    found = read({}, of=node(provider_id=provider_id))
    restart = power(found)
    assert (found.name, found.source, found.warnings) == ("default", "default", ())
    assert [each.name for each in (*found.isolation, restart, *found.recovery)] == [
        "mark-unschedulable",
        "restart-instance",
        "mark-schedulable",
    ]
    assert restart.device is not None
    assert (restart.driver, restart.action.value, restart.device.endpoint) == (driver, "restart", endpoint)


@pytest.mark.parametrize(
    ("provider_id", "problem"),
    [
        ("", "Node/n1 has no providerID, so nothing says which instance it is"),
        ("kind://docker/kind/n1", "no driver knows the platform of its providerID (kind)"),
        ("aws:///us-east-1a/fargate-ip-10-0-0-1", "no driver knows the platform of its providerID (aws)"),
    ],
)
def test_a_node_in_no_known_cloud_is_refused_with_what_to_write(provider_id: str, problem: str) -> None:
    """S10: a name alone is nobody's instance."""
    error = only_error(read({}, of=node(provider_id=provider_id)))
    assert problem in error
    assert "write a FencingTemplate, a FenceConfig or ConfigMap fence-config-node-n1" in error


def test_where_project_and_zone_are_configured_the_nodes_name_is_its_instance() -> None:
    objects = {"fence-cluster-config": {"config.properties": "project=my-project\nzone=us-central1-b"}}
    device = power(read(objects)).device
    assert device is not None
    assert device.endpoint == GCE


def test_credentials_written_inline_become_references_to_their_object() -> None:
    """S12."""
    template = {"template.properties": "agent_name=ipmi\nusername=admin\npassword=hunter2"}
    method = lines(template="bmc", ip="10.0.0.1", action="reboot")
    found = read({"fence-config-n1": config("", "bmc", bmc=method), "fence-template-bmc": template})
    device = power(found).device
    assert device is not None
    assert device.credentials == (
        CredentialRef(
            kind=CredentialKind.CONFIG_MAP,
            name="fence-template-bmc",
            namespace="default",
            properties="template.properties",
            keys={"username": "username", "password": "password"},
        ),
    )
    assert shown_parameters(power(found))["password"] == "configmap:default/fence-template-bmc#template.properties.password"
    assert "hunter2" not in repr(found)
    assert sum("move it into a Secret" in warning for warning in found.warnings) == 2


def test_a_secret_of_the_method_and_node_is_found_by_its_name_and_beats_what_is_inline() -> None:
    method = ipmi(action="reboot", password="hunter2")
    secrets = {"secret-fence-method-bmc-n1": ("password",)}
    found = read({"fence-config-n1": config("", "bmc", bmc=method)}, secrets)
    device = power(found).device
    assert device is not None
    assert device.credentials[-1] == CredentialRef(
        name="secret-fence-method-bmc-n1", namespace="default", keys={"password": "password"}
    )
    assert not any("hunter2" in str(reference) for reference in device.credentials)
    assert any("password: is not used: the method's Secret has it, too" in warning for warning in found.warnings)
    assert shown_parameters(power(found))["password"] == "secret:default/secret-fence-method-bmc-n1#password"


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (lines(agent_name="ipmi", ip="10.0.0.1", action="off"), "ipmi needs password, username: expected them in Secret/default"),
        (lines(agent_name="ipmi", ip="file:ip", action="off"), ".ip: is no secret: expected the value itself"),
        (
            lines(template="pdu", plug="3", action="off", missing_as_off="1"),
            "missing_as_off: a plug that is missing is never off",
        ),
        (lines(template="pdu", plug="3", port="4", action="off"), ".port: is the same parameter as plug"),
        (ipmi(action="off", colour="red"), ".colour: is not a parameter of ipmi; expected one of ip, ipport, cipher, privilege"),
        (ipmi(action="off", ip=""), ".ip: expected a value, got nothing"),
        (ipmi(action="off", ip="{{ .Rack }}"), ".ip: {{ .Rack }} can't be filled in: expected one of InstanceID, NodeName"),
        (ipmi(action="off", ip="{{ .ProviderID }}"), ".ip: {{ .ProviderID }} can't be filled in: the node has none"),
        (ipmi(action="off", ip="no host"), ".ip: expected an IP address or a host name"),
    ],
)
def test_whatever_is_doubtful_about_a_device_is_refused(method: str, problem: str) -> None:
    found = read({"fence-config-n1": config("", "m", m=method), "fence-method-template-pdu": PDU})
    assert problem in only_error(found)
    assert found.power_management == ()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (("ip",), "data[ip]: is no credential"),
        (("token",), "data[token]: expected one of password, username"),
        ((), "data: expected one of password, username, got nothing"),
    ],
)
def test_a_secret_holds_credentials_and_nothing_else(keys: tuple[str, ...], problem: str) -> None:
    """S9: what is pinned must be readable where it is pinned."""
    found = read({"fence-config-n1": config("", "bmc", bmc=ipmi(action="off"))}, {"secret-fence-method-bmc-n1": keys})
    assert problem in only_error(found)


def only_error(found: FenceConfig) -> str:
    (error,) = found.errors
    return error


# Which nodes fence configuration names beside a device (S39).

OURS = ("ipmi://10.0.0.7:623",)
PLAIN = {"driver": "ipmi", "parameters": {"ip": "10.0.0.7"}}


def by_node(name: str, **values: Any) -> dict[str, Any]:
    return {"driver": "ipmi", "nodeParameters": {name: values}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"template": {"spec": {"power": by_node("b", ip="10.0.0.7")}}}, {"b"}),
        ({"template": {"spec": {"powerLevels": [[by_node("b", ip="10.0.0.8")], [by_node("c", ip="10.0.0.7")]]}}}, {"c"}),
        ({"power": [{**PLAIN, "nodeParameters": {"b": {"ipport": 623}, "c": {"ipport": 624}}}]}, {"b"}),
        ({"nodeName": "b", "power": [PLAIN]}, {"b"}),
        ({"power": by_node("b", ip="10.0.0.7") | {"driver": "fence_ipmilan"}}, {"b"}),
        ({"power": by_node("b", ip="10.0.0.7") | {"driver": "fence-idrac"}}, {"b"}),
        ({"power": by_node("b", ip="10.0.0.7", target="0x24") | {"driver": "fence_ipmilan"}}, set()),
        ({"nodeName": "a", "power": [PLAIN]}, set()),
        ({"power": [PLAIN]}, set()),
        ({"power": by_node("a", ip="10.0.0.7")}, set()),
        ({"power": by_node("b", ip="no address!")}, set()),
        ({"power": by_node("b", ip="10.0.0.7") | {"driver": "unknown"}}, set()),
        ({"power": {"driver": "ipmi", "parameters": "text", "nodeParameters": ["b"]}}, set()),
        ("text", set()),
    ],
)
def test_which_node_an_object_names_for_the_device(spec: Any, found: set[str]) -> None:
    assert set(named_beside([{"spec": spec}], OURS, "a")) == found


# Which endpoints lead to one device, by whichever drivers (S4, S39).

SYSTEM = "redfish://10.0.0.7:443/redfish/v1/Systems/1"
IN_PLUG = "fence_redfish://10.0.0.7:443?systems_uri=%2Fredfish%2Fv1%2FSystems%2F1"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ipmi://10.0.0.7:623", "fence_ipmilan://10.0.0.7:623", True),
        ("ipmi://10.0.0.7:623", "redfish://10.0.0.7:443", True),
        ("ipmi://10.0.0.7:623", SYSTEM, True),
        ("ipmi://[fd00::7]:623", "redfish://[fd00::7]:443", True),
        ("fence_ilo4://10.0.0.7:623", "fence_ilo4_ssh://10.0.0.7:22", True),
        ("fence_idrac://10.0.0.7:623", "fence_drac5://10.0.0.7:22", True),
        (SYSTEM, IN_PLUG, True),
        (SYSTEM, SYSTEM.replace("/1", "/2"), False),
        (IN_PLUG, IN_PLUG.replace("F1", "F2"), False),
        ("ipmi://10.0.0.7:623", "ipmi://10.0.0.8:623", False),
        # One host that plays many BMCs, as those of a laboratory do.
        ("ipmi://10.0.0.7:6231", "ipmi://10.0.0.7:6232", False),
        ("ipmi://10.0.0.7:623", "fence_ipmilan://10.0.0.7:623?target=0x24", False),
        ("fence_apc://pdu:23/3", "fence_apc_snmp://pdu:161/3", True),
        ("fence_apc://pdu:22/3", "fence_apc://pdu:23/3", True),
        ("fence_apc://pdu:23/3", "fence_apc_snmp://pdu:161/12", False),
        ("fence_apc://pdu:23/3", "fence_apc_snmp://pdu-b:161/3", False),
        ("fence_vmware_soap://vc:443/vm-1", "fence_vmware_rest://vc:443/vm-1", True),
        ("gce://p/zone-a/n1", "fence_gce:///n1?project=p&zone=zone-a", True),
        ("gce://p/zone-a/n1", "fence_gce:///n1?project=p&zone=zone-b", False),
        ("ec2://eu-west-1/i-1", "ec2://eu-west-1/i-2", False),
        ("fence_aliyun:///i-1?region=a", "fence_aliyun:///i-2?region=a", False),
        ("ipmi://10.0.0.7:623", "", False),
        # One outlet, one machine of a cloud, each in two spellings.
        ("fence_apc://pdu:23/3", "fence_apc_snmp://pdu:161/03", True),
        ("fence_apc://pdu:23/2:3", "fence_apc_snmp://pdu:161/02:03", True),
        ("fence_apc://pdu:23/3", "fence_apc_snmp://pdu:161/30", False),
        ("fence_azure_arm:///Vm-1?resourceGroup=g", "fence_azure_arm:///vm-1?resourceGroup=G", True),
    ],
)
def test_one_outlet_or_bmc_is_one_device_by_whichever_driver(one: str, other: str, *, same: bool) -> None:
    assert (same_device(one, other), same_device(other, one)) == (same, same)


@pytest.mark.parametrize("endpoint", ["ipmi://h:623", SYSTEM, IN_PLUG, "fence_apc://pdu:23/3", "gce://p/z/n", ""])
def test_a_device_is_the_same_as_itself(endpoint: str) -> None:
    assert device_behind(device_behind(endpoint)) == device_behind(endpoint)


# S12, S40: to which devices others could listen, or answer in their place.

PIN = "ab" * 32
VERIFIED = ""


@pytest.mark.parametrize(
    ("driver", "parameters", "says"),
    [
        ("redfish", {}, VERIFIED),
        ("redfish", {"scheme": "http"}, "plain HTTP (scheme)"),
        ("redfish", {"ssl-insecure": "yes"}, "without verifying its certificate (ssl-insecure)"),
        ("redfish", {"ssl-insecure": "false"}, VERIFIED),
        ("redfish", {"tls-fingerprint": PIN}, VERIFIED),
        ("ipmi", {}, VERIFIED),
        ("ec2", {"region": "us-east-1", "instance": "i-0123456789abcdef0"}, VERIFIED),
        ("fence_redfish", {}, VERIFIED),
        ("fence_redfish", {"--ssl-insecure": ""}, "(ssl_insecure)"),
        ("fence_redfish", {"ssl_insecure": "0"}, VERIFIED),
        ("fence_redfish", {"ssl": "0"}, "plain HTTP"),
        ("fence_ilo", {"ssl": "1", "notls": "true"}, "(notls)"),
        ("fence_rhevm", {"plug": "vm"}, "plain HTTP"),
        ("fence_rhevm", {"plug": "vm", "ssl_secure": "1"}, VERIFIED),
        ("fence_rhevm", {"plug": "vm", "ssl_secure": "1", "ssl_insecure": "1"}, "(ssl_insecure)"),
        ("fence_eps", {"plug": "1", "ssl": "1"}, "plain HTTP"),
        ("fence_openstack", {"plug": "vm", "auth_url": "http://cloud:5000/v3"}, "plain HTTP (auth_url)"),
        ("fence_aliyun", {"plug": "vm", "proxy": "http://proxy:3128"}, VERIFIED),
        ("fence_apc", {"plug": "1"}, "telnet"),
        ("fence_apc", {"plug": "1", "secure": "1"}, "SSH that takes any host key"),
        ("fence_virsh", {"plug": "vm"}, "SSH that takes any host key"),
        ("fence_virsh", {"plug": "vm", "ssh": "0"}, "SSH that takes any host key"),
        ("fence_ilo4_ssh", {"ssh": "1"}, "SSH that takes any host key"),
        ("fence_amt_ws", {}, "plain HTTP"),
        ("fence_amt_ws", {"ssl": "1"}, "plain HTTP"),
        ("fence_shelly_gen2", {"plug": "0"}, "plain HTTP"),
        ("fence_shelly_gen2", {"plug": "0", "ssl": "1"}, VERIFIED),
        ("fence_powerman", {"plug": "n1"}, "not encrypted"),
        ("fence_ipmilan", {}, VERIFIED),
        ("fence_apc_snmp", {"plug": "1"}, "SNMP that shows its password"),
        ("fence_apc_snmp", {"plug": "1", "snmp_version": "3"}, VERIFIED),
        ("fence_ipdu", {"plug": "1"}, VERIFIED),
        ("fence_ipdu", {"plug": "1", "snmp_sec_level": "noAuthNoPriv"}, "without a password"),
        ("fence_ours", {"ssl_insecure": "1"}, "(ssl_insecure)"),
        ("fence_ours", {}, "a way that is not known of this agent"),
        ("fence_ours", {"ssh": "1"}, "SSH that takes any host key"),
        ("fence_ours", {"ssl": "1"}, VERIFIED),
        ("redfish", {"scheme": "gopher"}, VERIFIED),  # its driver refuses it, with or without a word of ours
        ("no-driver", {}, VERIFIED),
    ],
)
def test_how_others_could_listen(driver: str, parameters: dict[str, str], says: str) -> None:
    found = insecurity_of(PowerDevice(driver=driver, endpoint="x", parameters={"ip": "10.0.0.7"} | parameters))
    assert (says in found, bool(found)) == (True, bool(says)), found


# Where a device's credentials go, and whom they are for (S40).


@pytest.mark.parametrize(
    ("driver", "parameters", "hosts"),
    [
        ("ipmi", {"ip": "10.0.0.7", "ipport": "623"}, {"10.0.0.7"}),
        ("redfish", {"ip": "BMC-7.example.com."}, {"bmc-7.example.com"}),
        ("fence_ipmilan", {"ipaddr": "fd00::7"}, {"fd00::7"}),
        ("fence_openstack", {"plug": "a", "auth-url": "https://keystone.example.com:5000/v3"}, {"keystone.example.com"}),
        ("fence_apc", {"ip": "10.0.0.7", "api": "http://elsewhere/"}, {"10.0.0.7", "elsewhere"}),
        ("fence_vmware_soap", {"ip": "10.0.0.7", "--proxyhost": "elsewhere", "proxyport": "1"}, {"10.0.0.7", "elsewhere"}),
        ("fence_x", {"ip": "10.0.0.7", "crosscableip": "10.9.0.7"}, {"10.0.0.7", "10.9.0.7"}),
        ("gce", {"instance": "a"}, {"compute.googleapis.com"}),
        ("gce", {"instance": "a", "api-endpoint": "elsewhere:8443"}, {"elsewhere"}),
        ("ec2", {"region": "eu-west-1"}, {"ec2.eu-west-1.amazonaws.com"}),
        ("ec2", {"region": "eu-west-1", "endpoint-url": "https://elsewhere/"}, {"elsewhere"}),
        ("ec2", {"region": "eu-west-1", "endpoint-url": "https://[::1]:8443"}, {"::1"}),
        ("fence_x", {"url": "https://10.0.0.7@elsewhere/"}, {"https://10.0.0.7@elsewhere/"}),
        ("fence_dummy", {"plug": "1"}, set()),
    ],
)
def test_every_host_that_the_parameters_name_is_seen(driver: str, parameters: dict[str, str], hosts: set[str]) -> None:
    assert hosts_of(PowerDevice(driver=driver, endpoint="x", parameters=parameters)) == hosts


@pytest.mark.parametrize(
    ("hosts", "allowed", "fits"),
    [
        (["10.0.0.7"], "10.0.0.0/24", True),
        (["10.0.1.7"], "10.0.0.0/24", False),
        (["fd00::7"], "10.0.0.0/8,fd00::/8", True),
        (["a.bmc.example.com"], "*.bmc.example.com", True),
        (["bmc.example.com"], "*.bmc.example.com", False),
        (["a.bmc.example.com.evil"], "*.bmc.example.com", False),
        (["evilbmc.example.com"], "*.bmc.example.com", False),
        (["10.0.0.7", "elsewhere"], "10.0.0.7", False),
        (["10.0.0.7", "elsewhere"], "10.0.0.7 elsewhere", True),
        (["anything"], "*", True),
        ([], "10.0.0.7", False),
        ([], "*", True),
    ],
    ids=str,
)
def test_credentials_are_for_all_of_a_devices_hosts_or_for_none(hosts: list[str], allowed: str, fits: bool) -> None:
    assert (not_for(hosts, hosts_written(allowed)) == "") is fits


@pytest.mark.parametrize("written", ["a/b", "10.0.0.0/99", "*bmc", "a.*.b", "http://a", "user@host", "-a"])
def test_what_is_no_host_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="expected names"):
        hosts_written(written)


# Whether what a device says of its machine is the pinned one's word (S39).

UUID = "4c4c4544-0042-3510-8051-b4c04f4d3132"
SWAPPED = "44454c4c-4200-1035-8051-b4c04f4d3132"
REVERSED = "32314d4f-c0b4-5180-1035-420044454c4c"
PINNED = Pinned(
    node="ip-10-0-0-7.ec2.internal",
    uid="uid-1",
    provider_id="aws:///us-east-1a/i-0123456789abcdef0",
    system_uuid=UUID,
    instance_id="7146341255239083172",
)


@pytest.mark.parametrize("told", [UUID, UUID.upper(), SWAPPED, REVERSED, UUID.replace("-", "")])
def test_firmwares_disagree_on_the_byte_order_of_one_system_uuid(told: str) -> None:
    assert another_machine((system_of(told),), PINNED) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (system_of("4c4c4544-0042-3510-8051-b4c04f4d3133"), UUID),
        (instance_of("i-0fedcba9876543210"), "i-0123456789abcdef0"),
        (instance_of("1"), "7146341255239083172"),
        (host_of("ip-10-0-0-8.ec2.internal"), "ip-10-0-0-7"),
    ],
)
def test_another_machines_word_is_told_with_both(said: str, words: str) -> None:
    told = another_machine((said,), PINNED)
    assert words in told
    assert said.partition("/")[2] in told


@pytest.mark.parametrize(
    ("said", "pinned"),
    [
        ((), PINNED),
        ((system_of("12345678-1234-5678-90ab-cddeefaabbcc"),), PINNED),
        ((system_of("78563412-3412-7856-90ab-cddeefaabbcc"),), PINNED),
        ((system_of("not a UUID"),), PINNED),
        ((system_of(UUID),), Pinned(node="n", uid="u", system_uuid="")),
        ((system_of(UUID),), Pinned(node="n", uid="u", system_uuid="ffffffff-ffff-ffff-ffff-ffffffffffff")),
        ((system_of(UUID),), Pinned(node="n", uid="u", system_uuid="03000200-0400-0500-0006-000700080009")),
        ((instance_of("1"), instance_of("i-0123456789abcdef0")), Pinned(node="n", uid="u", provider_id="metal://7")),
        ((host_of("ip-10-0-0-7.eu-central-1.compute.internal"),), PINNED),
        ((host_of("i-0123456789abcdef0.ec2.internal"), host_of("rack-3")), PINNED),
        ((host_of("ip-10-0-0-8.ec2.internal"),), Pinned(node="worker-8", uid="u")),
    ],
    ids=str,
)
def test_what_is_not_told_or_not_comparable_is_no_difference(said: tuple[str, ...], pinned: Pinned) -> None:
    assert another_machine(said, pinned) == ""
