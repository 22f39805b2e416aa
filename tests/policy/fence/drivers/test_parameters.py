"""Parameters of fence agents, BMCs and EC2 instances: what their values may look like (S41), and what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.fence.drivers import parameters_of, problem_of_credential
from policy.fence.drivers.agent_parameters import canonical_parameters, problem_of
from policy.fence.drivers.bmc import ipmi_address, redfish_address
from policy.fence.drivers.contract import ParameterError, host_of
from policy.fence.drivers.ec2 import EC2, Ec2Parameters
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


def test_what_people_call_users_plugs_and_places_is_taken() -> None:
    assert [each for each in TAKEN if problem_of(*each, published=True) is not None] == []


def test_what_would_be_more_than_a_value_is_refused_and_not_shown() -> None:
    """S12, S41."""
    problems = {each: problem_of(*each, published=True) for each in REFUSED}
    assert [each for each, problem in problems.items() if problem is None] == []
    assert [each for each, problem in problems.items() if len(each[2]) >= 4 and each[2] in str(problem)] == []


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


# How a BMC is reached by IPMI and Redfish: what their parameters may say, and what it means.


@pytest.mark.parametrize(("written", "cipher"), [({}, None), ({"cipher": "3"}, 3), ({"cipher": "17"}, 17)])
def test_a_cipher_suite_is_the_one_that_is_written(written: dict[str, str], cipher: int | None) -> None:
    assert ipmi_address({"ip": "10.0.0.7", **written}).cipher == cipher


@pytest.mark.parametrize(
    "written",
    [
        {"colour": "red"},
        {"scheme": "ftp"},
        {"ca-file": "/a/../b"},
        {"ca-file": "a"},
        {"ca-file": "/a", "scheme": "http"},
        {"ca-file": "/a", "ssl-insecure": "true"},
    ],
    ids=str,
)
def test_what_a_redfish_service_is_not_told_is_refused_by_name(written: dict[str, str]) -> None:
    with pytest.raises(ParameterError) as refused:
        redfish_address({"ip": "10.0.0.7", **written})
    assert refused.value.parameter == next(iter(written))


def test_a_redfish_service_is_verified_unless_that_is_taken_back() -> None:
    plain = redfish_address({"ip": "10.0.0.7"})
    assert (plain.port, plain.scheme, plain.verify, plain.check_system) == (443, "https", True, True)
    assert redfish_address({"ip": "10.0.0.7", "ca-file": "/a"}).ca_file == "/a"
    assert redfish_address({"ip": "10.0.0.7", "ssl-insecure": "true", "scheme": "http"}).verify is False


@pytest.mark.parametrize("ip", ["10.0.0.010", "10.7", "167772167", "0x0a000007", "10.0.0.0x7", "7"])
@pytest.mark.parametrize("driver", ["ipmi", "redfish", "fence_ipmilan"])
def test_a_number_that_a_resolver_takes_for_another_address_is_none(driver: str, ip: str) -> None:
    """S9, S39: who pads octets with zeros means 10.0.0.10, and the C library connects to 10.0.0.8, another machine's BMC."""
    takes = parameters_of(driver)
    assert takes is not None
    with pytest.raises(ParameterError, match=r"ip: expected an IP address or a host name"):
        takes.endpoint({"ip": ip})
    assert takes.endpoint({"ip": "bmc-7.rack3x"})


@pytest.mark.parametrize("driver", ["ipmi", "redfish", "fence_ipmilan"])
def test_an_address_has_one_spelling_also_as_ipv6(driver: str) -> None:
    """S39: two nodes may name one BMC in two spellings, and neither is the other's victim."""
    takes = parameters_of(driver)
    assert takes is not None
    assert takes.endpoint({"ip": "::ffff:10.0.0.7"}) == takes.endpoint({"ip": "10.0.0.7"})


# Which EC2 instance a device means: its parameters, and a Node's providerID in all its spellings.

REGIONS = (
    "us-east-1",
    "us-west-2",
    "eu-central-1",
    "ap-southeast-7",
    "us-gov-west-1",
    "cn-northwest-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "eu-isoe-west-1",
    "eusc-de-east-1",
    "mx-central-1",
)
PLACES = ("a", "f", "-lax-1a", "-bos-1b", "-wl1-bos-wlz-1", "-wl1-ber-wlz1")


@pytest.mark.parametrize(
    ("url", "amazons"), [(None, True), ("https://ec2.us-east-1.amazonaws.com", True), ("https://collector.example.com", False)]
)
def test_its_api_is_named_by_its_url_and_by_default_it_is_amazons(url: str | None, *, amazons: bool) -> None:
    """S40: a worker's own identity goes there."""
    place = {"region": "us-east-1", "instance": "i-0123456789abcdef0"} | ({"endpoint-url": url} if url else {})
    assert Ec2Parameters.parse(place).api_is_amazons is amazons


def from_provider_id(text: str) -> dict[str, str]:
    assert EC2.from_provider_id is not None
    return dict(EC2.from_provider_id(text))


@pytest.mark.parametrize(
    ("provider_id", "expected"),
    [
        ("aws:///us-east-1-wl1-bos-wlz-1/i-0123456789abcdef0", ("us-east-1", "i-0123456789abcdef0")),
        ("aws:///us-east-1/i-0abc", None),  # a region is no zone
        ("aws:////i-0abc", None),
        ("i-0abc", None),
        ("", None),
        ("aws://us-east-1a/i-0abc", None),
        ("aws:///us-east-1a/i-0abc/", None),
        ("aws:///us-east-1a/i-0abc\n", None),
        ("aws:///us-east-1a/i-٠abc", None),
        ("aws:///us-east-1aa/i-0abc", None),
        ("aws:///us-east-1a/i-", None),
        ("aws:///us-east-1a/0123-abcd/fargate-ip-10-0-0-1.ec2.internal", None),  # EKS Fargate has no instance of ours
        ("eks-hybrid:///us-west-2/cluster/mi-0abc", None),
        ("gce://project/us-east1-b/i-0abc", None),
    ],
)
def test_a_provider_id_gives_region_and_instance_or_nothing(provider_id: str, expected: tuple[str, str] | None) -> None:
    """S10: what is not surely an EC2 instance identifies none."""
    assert from_provider_id(provider_id) == ({} if expected is None else dict(zip(("region", "instance"), expected, strict=True)))


@given(
    region=st.sampled_from(REGIONS),
    place=st.sampled_from(PLACES),
    instance=st.text("0123456789abcdef", min_size=8, max_size=17).map("i-{}".format),
)
def test_every_zone_leads_to_its_region_and_to_the_endpoint_that_is_pinned(region: str, place: str, instance: str) -> None:
    """S9: one spelling."""
    found = from_provider_id(f"aws:///{region}{place}/{instance}")
    assert found == {"region": region, "instance": instance}
    assert EC2.endpoint(found) == f"ec2://{region}/{instance}"


def test_a_plug_is_an_instance() -> None:
    assert EC2.endpoint({"region": "us-east-1", "plug": "i-0abc"}) == "ec2://us-east-1/i-0abc"
    assert EC2.endpoint({"region": "us-east-1", "plug": "i-0abc", "instance": "i-0abc"}) == "ec2://us-east-1/i-0abc"


def test_where_a_request_goes_and_what_cuts_off_do_not_change_which_instance_it_is() -> None:
    """S9: a plan with a private endpoint names the same device."""
    more = {"endpoint-url": "https://vpce-1.ec2.us-east-1.vpce.amazonaws.com", "quarantine-group": "sg-0abc"}
    assert EC2.endpoint({"region": "us-east-1", "instance": "i-0abc"} | more) == "ec2://us-east-1/i-0abc"
    assert not set(more) & EC2.identifying
    assert "region" not in EC2.identifying


@pytest.mark.parametrize(
    ("changed", "parameter", "says"),
    [
        ({"region": ""}, "region", "expected a region like us-east-1, got nothing"),
        ({"region": "us-east-1a"}, "region", "got 'us-east-1a'"),
        ({"region": "evil.example/us-east-1"}, "region", "expected a region"),
        ({"instance": ""}, "instance", "expected an instance id like i-0123456789abcdef0, got nothing"),
        ({"instance": "node-1"}, "instance", "got 'node-1'"),
        ({"instance": "i-0abc "}, "instance", "got 'i-0abc '"),
        ({"plug": "i-0def"}, "plug", "expected the same as 'instance' (i-0abc) or nothing, got 'i-0def'"),
        ({"quarantine-group": "quarantine"}, "quarantine-group", "expected the id of a security group"),
        ({"endpoint-url": "ec2.example"}, "endpoint-url", "expected a URL like https://host:port"),
        ({"endpoint-url": "http://10.0.0.1:5000"}, "endpoint-url", "http:// on the loopback"),
        ({"endpoint-url": "http://127.0.0.1.example"}, "endpoint-url", "http:// on the loopback"),
        ({"endpoint-url": "https://user:password@ec2.example"}, "endpoint-url", "expected a URL"),
        ({"endpoint-url": "https://ec2.example/?a=b"}, "endpoint-url", "expected a URL"),
        ({"zone": "us-east-1a"}, "zone", "is not known: expected one of region, instance, plug, endpoint-url, quarantine-group"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(changed: dict[str, str], parameter: str, says: str) -> None:
    with pytest.raises(ParameterError) as caught:
        EC2.endpoint({"region": "us-east-1", "instance": "i-0abc"} | changed)
    assert caught.value.parameter == parameter
    assert says in caught.value.problem


@pytest.mark.parametrize(
    "url",
    ["https://ec2.example", "https://ec2.example:8443/", "https://[2001:db8::1]:443", "http://127.0.0.1:5000", "http://[::1]:1"],
)
def test_an_endpoint_is_by_tls_or_on_the_loopback(url: str) -> None:
    """S12: a session token travels with every request."""
    parsed = Ec2Parameters.parse({"region": "us-east-1", "instance": "i-0abc", "endpoint-url": url})
    assert parsed.endpoint_url == url.rstrip("/")
