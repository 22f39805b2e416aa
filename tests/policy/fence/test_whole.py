"""A configuration is judged as a whole: nothing comes before its proof (S1), and nothing done is no success (S7)."""

from __future__ import annotations

import pytest

from tests.policy.builders import PDU, SWITCH, config, ipmi, lines, node, of_node, read

EC2 = "aws:///us-east-1a/i-0123456789abcdef0"

OFF_A, ON_A, OFF_B, ON_B = (lines(template="pdu", plug=plug, action=action) for plug in ("1", "2") for action in ("off", "on"))
CUT, MEND = (lines(template="switch", plug="2", action=action) for action in ("off", "on"))
TEMPLATES = {"fence-method-template-pdu": PDU, "fence-method-template-switch": SWITCH}
METHODS = {
    "off-a": OFF_A,
    "on-a": ON_A,
    "off-b": OFF_B,
    "on-b": ON_B,
    "cut": CUT,
    "mend": MEND,
    "bmc": ipmi(action="reboot"),
    "again": ipmi(action="off"),
    "by-agent": ipmi(action="off", agent_name="fence_ipmilan"),
    "quarantine": "quarantine_group=sg-0123456789abcdef0",
}


def judged(isolation: str, power: str, recovery: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is refused and what is warned about, without the object they are about."""
    data = config(isolation, power, recovery, **METHODS)
    found = read({"fence-config-n1": data} | TEMPLATES, of=node(provider_id=EC2))
    plain = "ConfigMap/default/fence-config-n1: "
    return (
        tuple(error.removeprefix(plain) for error in found.errors),
        tuple(warning.removeprefix(plain) for warning in found.warnings),
    )


@pytest.mark.parametrize(
    ("isolation", "power", "recovery"),
    [
        ("cordon", "off on", "uncordon"),
        ("cordon drain", "bmc clean-pods", "uncordon"),
        ("cut", "off-a on-a", "mend"),
        ("cordon cut free-pods", "off-a off-b on-a on-b out-of-service-taint", "mend uncordon"),
        ("kdump", "bmc", ""),
        ("", "kdump off-a on-a", ""),
        ("quarantine", "restart-instance", "lift-quarantine"),
        ("", "bmc release-volumes delete-node", ""),
    ],
)
def test_what_is_right_is_taken_as_it_is(isolation: str, power: str, recovery: str) -> None:
    errors, warnings = judged(isolation, power, recovery)
    assert errors == ()
    assert all("is done before the on" in warning or "free-pods frees nothing" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("isolation", "power", "recovery", "expected"),
    [
        ("", "", "", "power-management: is empty, and isolation cuts no path that can be read back: nothing executed is never"),
        ("cordon drain", "", "uncordon", "power-management: is empty"),
        ("quarantine", "", "lift-quarantine", "power-management: is empty"),
        ("", "kdump", "", "power-management: kdump: nothing is switched off before"),
        ("", "on", "", "power-management: on: nothing is switched off before"),
        ("", "on off", "", "power-management: on switches on what nothing before it has switched off"),
        ("", "off-a on-a on-b", "", "power-management: on-b switches on what nothing before it has switched off"),
        ("", "off-a off-b on-a", "", "power-management: off-b: expected an on for every device, or for none"),
        ("", "off on again", "", "power-management: again switches off what on has switched on"),
        ("", "bmc on", "", "power-management: on switches on what bmc has switched on"),
        ("", "off by-agent on", "", "power-management: by-agent switches off the device of off by another driver"),
        ("", "clean-pods bmc", "", "power-management: clean-pods comes before an off that could be proven"),
        ("", "out-of-service-taint off on", "", "power-management: out-of-service-taint comes before an off"),
        ("", "terminate-instance", "", "power-management: terminate-instance: nothing is switched off before"),
        ("", "restart-instance terminate-instance", "", "terminate-instance: what is given up can't be switched on again"),
        ("", "off terminate-instance", "", "terminate-instance is about another machine than is switched off before"),
        ("", "off kdump on", "", "power-management: kdump comes behind an off"),
        ("free-pods", "off on", "", "isolation: free-pods frees pods before anything is proven"),
        ("free-pods cut", "off on", "mend", "isolation: free-pods frees pods before anything is proven"),
        ("off", "bmc", "", "isolation: off takes the power: expected that in power-management"),
        ("mend", "bmc", "", "isolation: mend switches on: expected that in recovery"),
        ("", "cut mend", "", "power-management: cut switches a path, which proves nothing about power"),
        ("", "bmc", "mend", "recovery: mend switches on what isolation has not switched off"),
        ("", "off", "on", "recovery: on switches power, but a node without it never gets here"),
        ("cut", "bmc", "cut", "recovery: cut cuts a path: expected that in isolation"),
        ("", "bmc", "lift-quarantine", "recovery: lift-quarantine undoes what isolation has not done"),
        ("cut", "bmc delete-node", "mend", "power-management: delete-node would take the mark that tells of cut"),
        ("quarantine", "bmc delete-node", "lift-quarantine", "delete-node would take the mark that tells of quarantine"),
        ("cordon mark-unschedulable", "bmc", "uncordon", "isolation: mark-unschedulable does the same as cordon"),
    ],
)
def test_what_is_wrong_as_a_whole_is_refused(isolation: str, power: str, recovery: str, expected: str) -> None:
    """S1, S7."""
    errors, _ = judged(isolation, power, recovery)
    assert any(expected in error for error in errors), errors


@pytest.mark.parametrize(
    ("isolation", "power", "recovery", "expected"),
    [
        ("", "off", "", "power-management: off: there is no on, so the node is left off"),
        ("", "off again on", "", "power-management: again and off are the same plug: it is switched off once"),
        ("", "off-a on-a off-b on-b", "", "power-management: off-b comes before any on: first all devices are off"),
        ("", "off on clean-pods", "", "power-management: clean-pods is done before the on"),
        ("cut", "bmc", "", "recovery: nothing undoes cut: the path stays cut"),
        ("cordon", "bmc", "", "recovery: nothing undoes cordon: the node stays unschedulable"),
        ("quarantine", "bmc", "", "recovery: nothing undoes quarantine: the instance stays in quarantine"),
        ("detach-volumes", "bmc", "", "isolation: detach-volumes is forced on a running machine"),
        ("cordon", "bmc", "mark-unschedulable", "mark-unschedulable is taken as mark-schedulable"),
        ("cut free-pods", "bmc", "mend", "isolation: free-pods frees nothing: no method says which volumes lie behind its path"),
    ],
)
def test_what_is_doubtful_as_a_whole_is_warned_about(isolation: str, power: str, recovery: str, expected: str) -> None:
    errors, warnings = judged(isolation, power, recovery)
    assert errors == ()
    assert any(expected in warning for warning in warnings), warnings


@pytest.mark.parametrize(
    ("properties", "more", "expected"),
    [
        (None, {}, "data[config.properties]: expected lines key=value here; the object has nothing"),
        (7, {}, "data[config.properties]: expected a text, got int"),
        ("isolation", {}, "data[config.properties]: line 1: expected key=value"),
        ("power_management=a\npower_management=b", {}, "line 2: power_management is written twice"),
        ("power_managment=off", {}, "data[config.properties].power_managment: is not known here; expected one of"),
        ("power_management=a\npower-management=b", {}, "power-management: this step is written twice"),
        ("power_management=a a", {}, "data[config.properties].power_management: a is listed twice"),
        ("power_management=../x", {}, "power_management: expected names of methods"),
        ("power_management=[NODE_NAME]", {}, "power_management: [NODE_NAME] stands for something"),
        ("power_management=" + " ".join(f"m{i}" for i in range(33)), {}, "expected at most 32 methods, got 33"),
        ("power_management=bmc", {"fence-method-bmc": "ip=10.0.0.1"}, "expected agent_name= here or a template="),
        ("power_management=bmc", {"method-bmc": "x=y"}, "data[method-bmc]: is not known here"),
        ("power_management=bmc", {}, "bmc is not defined: looked for data[fence-method-bmc] of fence-config-n1, ConfigMap"),
        ("isolation=uncordon", {}, "isolation: uncordon does not belong into isolation: expected it in recovery"),
        ("recovery=clean-pods", {}, "clean-pods does not belong into recovery: expected it in isolation or power"),
        ("isolation=taint", {}, "isolation: taint needs key, effect"),
    ],
)
def test_a_bad_line_names_object_field_and_what_was_expected(properties: object, more: dict[str, object], expected: str) -> None:
    data = more if properties is None else {"config.properties": properties, **more}
    errors = read({"fence-config-n1": data}).errors
    assert any(expected in error and error.startswith("ConfigMap/default/fence-config-n1: ") for error in errors), errors


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (ipmi(action="status"), ".action: status only looks: nothing executed is never success"),
        (ipmi(action="cycle"), ".action: after a cycle no off can be read"),
        (ipmi(action="shoot"), ".action: expected off, on or reboot"),
        (ipmi(action="off", tries="0"), ".tries: how often power management is tried is giveup_retries in fence-cluster-config"),
        (ipmi(action="off", delay="5m"), ".delay: expected whole seconds from 0 to 600, without a unit"),
        (ipmi(action="off", timeout="0"), ".timeout: expected whole seconds from 1 to 600, got 0"),
        (ipmi(action="off", level="0"), ".level: expected a whole number from 1 to 9, got 0"),
        (ipmi(action="off", csi_drivers="x"), ".csi_drivers: says what lies behind a path: expected it with a device that"),
        (ipmi(action="off", site="Rack 4"), ".site: expected lower-case letters, digits and dashes"),
        (
            ipmi(action="off", script_path="/x.sh"),
            ".script_path: scripts are not run: name an agent or a method of ours",
        ),
        (
            lines(agent_name="clean-pods", script_path="/x.sh"),
            ".script_path: scripts are not run: clean-pods is a method of ours",
        ),
        (lines(agent_name="clean-pods", action="on"), ".action: clean-pods is an action of its own: leave it out"),
        (lines(agent_name="clean-pods", force="yes"), ".force: is not a parameter of clean-pods; it takes none"),
        (lines(template="nowhere", ip="10.0.0.1"), ".template: there is no such template: looked for ConfigMap/default/nowhere"),
        (lines(template="No Where"), ".template: expected the name of a ConfigMap"),
        (lines(agent_name="kdump", window="5m"), ".window: expected whole seconds from 1 to 3600, without a unit, got '5m'"),
        (lines(agent_name="kdump", trusted="perhaps"), ".trusted: expected yes or no, got 'perhaps'"),
    ],
)
def test_a_bad_line_of_a_method_names_it_and_what_was_expected(method: str, expected: str) -> None:
    """S5, S7."""
    errors = of_node("", "m", m=method).errors
    assert any(f"ConfigMap/default/fence-config-node-n1: data[fence-method-m]{expected}" in error for error in errors), errors


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"method.properties": "agent_name=ipmi", "template.properties": "agent_name=ipmi"},
            "is written as method.properties, too",
        ),
        (
            {"config.properties": "agent_name=ipmi"},
            "data[template.properties]: expected lines key=value here; the object has config",
        ),
        ({"template.properties": "template=other"}, ".template: a template of a template is not read"),
        ({"template.properties": "ip=10.0.0.1"}, "expected agent_name= here in the template fence-template-bmc"),
    ],
)
def test_a_bad_template_is_refused(data: dict[str, object], expected: str) -> None:
    objects = {"fence-config-n1": config("", "m", m=lines(template="fence-template-bmc")), "fence-template-bmc": data}
    (error,) = read(objects).errors
    assert expected in error


def test_a_hint_names_the_template_of_the_other_prefix() -> None:
    """The published demo asks for fence-method-template-eaton-pdu and ships fence-template-eaton-pdu."""
    method = lines(template="fence-method-template-pdu", plug="1", action="off")
    (error,) = read({"fence-config-n1": config("", "m", m=method), "fence-template-pdu": PDU}).errors
    assert "looked for ConfigMap/default/fence-method-template-pdu; there is fence-template-pdu" in error


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("grace_timeout=5m", ["grace_timeout: expected whole seconds from 0 to 86400, without a unit"]),
        ("giveup_retries=0", ["giveup_retries: expected a whole number from 1 to 9, got 0"]),
        ("restarts=6", ["restarts: expected a whole number from 0 to 5, got 6"]),
        ("grace_timeuot=10", ["grace_timeuot: is neither a setting (grace_timeout, giveup_retries"]),
        ("grace_timeout=5m\ngiveup_retries=x", ["grace_timeout: expected whole", "giveup_retries: expected a whole"]),
    ],
)
def test_each_bad_key_of_the_clusters_configuration_is_named(written: str, expected: list[str]) -> None:
    """S7: shipped, a bad number became 0 and fencing was silently off. A count below 1 is refused (A05)."""
    found = read({"fence-cluster-config": {"config.properties": written}}, of=node(provider_id=EC2))
    assert len(found.errors) == len(expected)
    for error, words in zip(found.errors, expected, strict=True):
        assert f"ConfigMap/default/fence-cluster-config: data[config.properties].{words}" in error
