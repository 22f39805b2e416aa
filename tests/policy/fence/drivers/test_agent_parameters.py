"""S41: what a value may look like that a fence agent is told, by the kind of its parameter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.fence.drivers import problem_of_credential
from policy.fence.drivers.agent_parameters import canonical_parameters, problem_of
from policy.fence.drivers.contract import ParameterError, host_of
from policy.fence.drivers.fence_agents import PUBLISHED

AGENTS = ("fence_virsh", "fence_vmware_soap", "fence_rhevm", "fence_ipmilan", "fence_ours")
PROGRAM = "-oProxyCommand=touch${IFS}/tmp/x"

TAKEN = [
    *(("fence_virsh", "username", name) for name in ("root", "root@pam", "r2", "VSPHERE.LOCAL\\Administrator", "a@b.example")),
    *(("fence_pve", "username", name) for name in ("root@pam!fencing", "cn=fence,ou=bmc", "domain+user", "ADMIN", "_svc", "")),
    *(("fence_apc", "plug", plug) for plug in ("1", "2:5", ".AA1", "outlet-7", "A1")),
    ("fence_ifmib", "plug", "GigabitEthernet1/0/1"),
    ("fence_cisco_mds", "plug", "fc1/1"),
    ("fence_virsh", "plug", "web-1.example"),
    ("fence_virsh", "uuid", "564d3f2a-0000-4b1c-9e1f-3b1f9f2c0a11"),
    *(("fence_vmware_soap", "plug", plug) for plug in ("/Data Center/vm/web 1", "web (old)", "web [2]", "wéb")),
    ("fence_xenapi", "plug", "My machine"),
    ("fence_rhevm", "plug", "web-1.example_2"),
    ("fence_openstack", "project_name", "My Project (2)"),
    ("fence_openstack", "auth_url", "https://keystone.example:5000/v3"),
    ("fence_xenapi", "session_url", "http://[fe80::1]:80"),
    ("fence_ibm_vpc", "proxy", "http://proxy.example:3128"),
    ("fence_redfish", "systems_uri", "/redfish/v1/Systems/System.Embedded.1"),
    ("fence_rhevm", "api_path", "/ovirt-engine/api"),
    ("fence_eps", "hidden_page", "hidden.htm"),
    ("fence_cisco_ucs", "suborg", "org-one/org-two"),
    ("fence_ibm_powervs", "crn", "crn:v1:bluemix:public:power-iaas:us-south:a/6a::"),
    ("fence_vmware_rest", "filter", "filter.names=web 1&filter.clusters=domain-c8"),
    ("fence_apc", "command_prompt", "['\\n>', '\\nAPC>']"),
    ("fence_gce", "zone", "us-central1-a,us-central1-b"),
    ("fence_dummy", "status_file", "/var/run/fence_dummy.status"),
    ("fence_ipmilan", "target", "0x20"),
    *(("fence_ipmilan", "cipher", suite) for suite in ("3", "17")),
    *(("fence_idrac", "lanplus", flag) for flag in ("", "1", "Yes")),
    ("fence_ours", "auth", "none"),
    ("fence_ipmilan", "hexadecimal_kg", "0123456789abcdef"),
    ("fence_ipmilan", "ipport", "623"),
    ("fence_virsh", "password", "-oProxyCommand=x"),
    ("fence_virsh", "password", "p $(w) `x` ; \"'<&>\\ é"),
    ("fence_apc_snmp", "community", "-c"),
    ("fence_virsh", "identity_file", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"),
]

REFUSED = [
    *(("fence_virsh", "username", name) for name in (PROGRAM, "-l", "root -oProxyCommand=x", "root\t-o", "a'b", 'a"b', "a/../b")),
    *(
        ("fence_virsh", "username", name)
        for name in ("root\n", "root\nssh_options=-oX", "root\x00", "$(id)", "`id`", "a;b", "a\\")
    ),
    *(
        ("fence_virsh", "plug", plug)
        for plug in ("-p", "vm;reboot", "vm reboot", "$(reboot)", "`reboot`", "vm|sh", "vm>f", "vm'", "a&b")
    ),
    ("fence_lpar", "managed", "frame 1"),
    ("fence_lpar", "managed", "f; chsysstate"),
    *(("fence_rhevm", "plug", plug) for plug in ("*", "a or name=b", "a%20or", "a&max=9", "a/b", "..")),
    *(("fence_pve", "plug", plug) for plug in ("100/../../x", "../x", "100?x", "100#")),
    ("fence_pve", "node_name", "a/../b"),
    ("fence_kubevirt", "namespace", "a/b"),
    *(("fence_cisco_ucs", "plug", plug) for plug in ('a"/>', "a<b", "a&amp;")),
    ("fence_cisco_ucs", "suborg", '"/>'),
    ("fence_vmware_soap", "plug", "/dc/../vm"),
    ("fence_vmware_soap", "plug", "-vm"),
    ("fence_vmware_rest", "filter", "names=a#b"),
    ("fence_redfish", "systems_uri", "/redfish/v1/../x"),
    ("fence_redfish", "systems_uri", "/redfish/v1/Systems/1?x=y"),
    ("fence_openstack", "auth_url", "file:///etc/passwd"),
    ("fence_openstack", "auth_url", "https://a?b"),
    ("fence_xenapi", "session_url", "-x"),
    ("fence_rhevm", "api_path", "-x"),
    ("fence_apc", "command_prompt", "-x"),
    ("fence_apc", "command_prompt", "a\nssh=1"),
    *(("fence_ipmilan", "ipport", port) for port in ("0", "65536", "22 -oX", "-1", "٦")),
    ("fence_ipmilan", "ipmitool_timeout", "2 -f /etc/passwd"),
    ("fence_ipmilan", "privlvl", "-x"),
    *(("fence_ilo4", "cipher", suite) for suite in ("", "0", "1", "2", "03", "8", "15", "17 -o x")),
    *(("fence_ipmilan", "lanplus", flag) for flag in ("0", "off", "No", "false", "lan")),
    *(("fence_ipmilan", "auth", kind) for kind in ("none", "md5", "password")),
    ("fence_ipmilan", "ssl_insecure", "1\n"),
    ("fence_ipmilan", "target", "x" * 1025),
    ("fence_virsh", "password", "p\nssh_options=-oX"),
    ("fence_virsh", "password", "p\x00"),
    ("fence_apc_snmp", "community", "public\nw"),
    ("fence_virsh", "identity_file", "a\x00"),
    ("fence_ours", "anything", "a b"),
]


@pytest.mark.parametrize(("agent", "name", "value"), TAKEN)
def test_what_people_call_users_plugs_and_places_is_taken(agent: str, name: str, value: str) -> None:
    assert problem_of(agent, name, value, published=True) is None


@pytest.mark.parametrize(("agent", "name", "value"), REFUSED)
def test_what_would_be_more_than_a_value_is_refused_and_not_shown(agent: str, name: str, value: str) -> None:
    """S12, S41."""
    problem = problem_of(agent, name, value, published=True)
    assert problem is not None
    assert len(value) < 4 or value not in problem


@settings(max_examples=40)
@pytest.mark.parametrize("agent", AGENTS)
@given(
    name=st.sampled_from(("username", "ip", "ipport", "plug", "uuid", "managed", "auth_url", "page", "domain", "x")),
    text=st.text(),
)
def test_nothing_that_is_taken_begins_with_a_dash_or_has_a_second_line(agent: str, name: str, text: str) -> None:
    assert problem_of(agent, name, f"-{text}") is not None
    assert problem_of(agent, name, f"a{text}\nb") is not None
    if problem_of(agent, name, text) is None:
        assert len(text.splitlines()) <= 1
        assert not set(text) & set("\"'`$;|<>{}*?&#%" if name != "x" else "\"'`$;|<>{}*?&#%() ")


@pytest.mark.parametrize("agent", ["fence_vmware", "fence_ours"])
def test_a_password_that_may_become_an_argument_begins_with_no_dash(agent: str) -> None:
    """How an agent that is not published hands it on is not known, and fence_vmware does so in its tool's arguments."""
    problem = problem_of_credential(agent, "passwd", "-k3p")
    assert problem == f"begins with a dash, and {agent} may pass it on as an argument: expected another one"
    assert problem_of_credential(agent, "passwd", "k3p-") is None


def test_a_parameters_old_name_is_held_to_the_same_grammar_and_a_credential_is_not_shown() -> None:
    """S12."""
    assert {"fence_virsh", "fence_vmware_soap", "fence_rhevm", "fence_ipmilan"} <= PUBLISHED
    for name in ("login", "--username", "username"):
        with pytest.raises(ParameterError, match="expected a user name") as caught:
            canonical_parameters("fence_virsh", {name: PROGRAM})
        assert PROGRAM not in str(caught.value)
    with pytest.raises(ParameterError, match=r"port: expected a word .*, got '-p'"):
        canonical_parameters("fence_virsh", {"port": "-p"})


@pytest.mark.parametrize("host", ["fe80::1%eth0", "fe80::1%br-1.100", "10.0.0.7", "bmc-1.example", "PDU_7"])
def test_a_host_is_an_address_or_a_name(host: str) -> None:
    assert host_of({"ip": host}, "ip", what="BMC") == host.lower()


@pytest.mark.parametrize("host", ["010.0.0.7", "10.7", "167772167", "0x0a000007", "10.0.0.0x7", "10.0.0.256", "1.2.3.4.5"])
def test_a_number_that_only_resolvers_take_for_an_address_is_no_host(host: str) -> None:
    """S10, S39: of `010.0.0.7` they make 8.0.0.7, which gets the password; of the others a second spelling of one BMC."""
    with pytest.raises(ParameterError, match="expected an IP address or a host name"):
        host_of({"ip": host}, "ip", what="BMC")


@pytest.mark.parametrize(
    "host",
    ["fe80::1% -oProxyCommand=x", "fe80::1%;id", "fe80::1%$(id)", "fe80::1%a\nb", "fe80::1%", "-oX", "a b", "a/b", "a@b", "a\n"],
)
def test_whatever_python_takes_for_an_addresss_zone_is_no_host(host: str) -> None:
    with pytest.raises(ParameterError, match="expected an IP address or a host name"):
        host_of({"ip": host}, "ip", what="BMC")


@pytest.mark.parametrize(
    ("driver", "name", "value"),
    [
        ("ipmi", "password", "k3p\n"),
        ("ipmi", "username", "ad\x00min"),
        ("redfish", "password", "k3p\nX: y"),
        ("redfish", "username", "admin\r"),
        ("ec2", "access-key-id", "AKIA/../x"),
        ("ec2", "secret-access-key", "k3p k3p"),
        ("ec2", "session-token", "k3p\nX-Header: 1"),
    ],
)
def test_a_credential_of_our_own_drivers_is_one_value(driver: str, name: str, value: str) -> None:
    """S12."""
    problem = problem_of_credential(driver, name, value)
    assert problem is not None
    assert "k3p" not in problem
