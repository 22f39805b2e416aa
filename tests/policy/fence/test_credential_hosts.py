"""Where a device's credentials go, and whom they are for (S40)."""

from __future__ import annotations

import pytest

from policy.fence.credential_hosts import hosts_of, hosts_written, not_for
from policy.fence.plan import PowerDevice


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
