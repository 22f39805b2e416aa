"""Which endpoints lead to one device, by whichever drivers (S4, S39)."""

from __future__ import annotations

import pytest

from policy.fence.drivers import device_behind, same_device

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
