"""Devices of methods: what identifies them (S9, S10), which driver an agent's name leads to, and where credentials are (S12)."""

from __future__ import annotations

import pytest

from policy.fence.config import FenceConfig, Method, shown_parameters
from policy.fence.plan import CredentialKind, CredentialRef
from tests.policy.fence.builders import PDU, config, ipmi, lines, node, of_node, only, read

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
    assert "nothing identifies the device of Node/n1: expected one of ip, ipport" in error


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
