"""S12, S40: to which devices others could listen, or answer in their place."""

from __future__ import annotations

import pytest

from policy.fence.plan import PowerDevice
from policy.fence.power import insecurity_of

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
