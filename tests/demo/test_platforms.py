"""The pieces of `make demo PLATFORM=…`: the template that a spectator could copy, and what is said where a platform can't be had.

The templates are tried on whole systems by `tests/system/test_platforms.py`, which writes its own with the same words.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from demo import __main__ as demo
from demo.manifests import fencing_template
from demo.platforms import CHOICES, why_not
from demo.repair import Demo
from simulator.platforms import PLATFORMS
from tests.policy.builders import a_node, plan_of_template

AT = {"address": "127.0.0.1", "port": 4711}
FACTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ipmi": ({}, {"bmc": AT}, ""),
    "redfish": ({**AT, "authority": "/somewhere/authority.pem"}, {"system": "/redfish/v1/Systems/node-1"}, ""),
    "aws": ({"endpointUrl": "http://127.0.0.1:4711"}, {"instance": "i-0abc"}, "aws:///us-east-1a/i-0abc"),
    "gce": ({"apiEndpoint": "http://127.0.0.1:4711"}, {"instance": "node-1"}, "gce://a-project/us-central1-a/node-1"),
    "pdu": (AT, {"outlet": 3}, ""),
}
ENDPOINTS = {
    "ipmi": "ipmi://127.0.0.1:4711",
    "redfish": "redfish://127.0.0.1:4711/redfish/v1/Systems/node-1",
    "aws": "ec2://us-east-1/i-0abc",
    "gce": "gce://a-project/us-central1-a/node-1",
    "pdu": "fence_apc_snmp://127.0.0.1:4711/3",
}


def test_there_is_a_demo_for_each_platform_of_the_simulator() -> None:
    assert CHOICES.keys() == PLATFORMS.keys() == FACTS.keys()


@pytest.mark.parametrize("platform", FACTS)
def test_its_template_leads_to_the_machine_of_the_node_and_to_a_secret(platform: str) -> None:
    """S9, S10, S12: told apart by the node's name, by what was written for it, or by its providerID; credentials by reference."""
    shared, own, provider_id = FACTS[platform]
    facts = {"platform": {"name": platform, **shared}, "nodes": {"node-1": own}, "secret": "nodewarden/some-credentials"}
    plan = plan_of_template(fencing_template(facts), a_node("node-1", provider_id=provider_id))
    assert [device.endpoint for device in plan.devices] == [ENDPOINTS[platform]]
    assert [(each.namespace, each.name) for each in plan.devices[0].credentials] == [("nodewarden", "some-credentials")]
    assert not plan.warnings


def test_a_platform_that_there_is_not_ends_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--platform", "bogus"])
    assert demo.main() == 2
    assert capsys.readouterr().err == "there is no platform 'bogus': expected one of ipmi, redfish, aws, gce, pdu\n"


@pytest.mark.parametrize(
    ("keep", "lines"), [(True, ["  web UI   http://127.0.0.1:8233", "  kubectl  KUBECONFIG=kc"]), (False, [])]
)
def test_only_what_stays_up_is_said_to_be_looked_at(tmp_path: Path, *, keep: bool, lines: list[str]) -> None:
    assert Demo(tmp_path, keep=keep).addresses("http://127.0.0.1:8233", Path("kc")) == lines


def test_what_is_not_installed_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path: None)
    assert "fence_apc_snmp (Debian package fence-agents), snmpget (Debian package snmp)" in why_not("pdu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "moto[ec2,server] (in the development environment that `make` installs)" in why_not("aws")
    assert why_not("ipmi") == ""
