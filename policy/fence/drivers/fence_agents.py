"""The agents of ClusterLabs' fence-agents package, each a driver under its own name: the rules that need no run of an agent.

Its parameters are in its metadata, which only a worker can read (`agent_parameters.py` judges by them). The rules here: which
agents may be used at all, which parameters distinguish the devices of nodes (S10), and the one spelling of an endpoint (S9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial

from policy.fence.drivers.agent_parameters import IPMI_AGENTS, agents_named, canonical_parameters
from policy.fence.drivers.contract import DriverParameters, ParameterError, authority, host_of, port_of

_AGENT = re.compile(r"fence_[a-z0-9]+(_[a-z0-9]+)*")


FABRIC_AGENTS = agents_named("brocade cisco_mds ifmib sanbox2")
"""Their off switches a port off: a path is cut, and the machine runs on."""

SINGLE_MACHINE_AGENTS = agents_named(
    "alom amt amt_ws drac idrac ilo ilo2 ilo3 ilo3_ssh ilo4 ilo4_ssh ilo5 ilo5_ssh ilo_mp ilo_ssh imm ipmilan ipmilanplus "
    "redfish rsa rsb"
)
"""Their device belongs to one machine: its address identifies it, and there is no plug."""

_PLUG_AGENTS = agents_named(
    "aliyun apc apc_snmp azure_arm bladecenter cdu cisco_ucs cyberpower_ssh docker drac5 eaton_snmp eaton_ssh ecloud "
    "emerson eps epsr2 gce hds_cb hetzner_cloud hpblade ibm_powervs ibm_vpc ibmblade ibmz ilo_moonshot intelmodular ipdu ironic "
    "kubevirt ldom lindypdu lpar netio nutanix_ahv openstack ovm powerman pve raritan raritan_px3 rhevm shelly_gen2 skalar "
    "tripplite_snmp vbox virsh virt vmware vmware_rest vmware_soap vmware_vcloud wti xenapi zvm zvmip"
)

NOT_BY_DEFAULT: Mapping[str, str] = {
    "fence_amt": "it puts the password into the environment of its tool; fence_amt_ws does not",
    "fence_dummy": "it has no device and only pretends; a file that is missing it calls off",
    "fence_ibmz": "it calls every partition off that is not active, also one that is degraded, or stops still",
    "fence_ironic": "it puts the password into the environment of its tool",
    "fence_lpar": "it calls every partition off that does not run where it is, also one that is moved to another host",
    "fence_vmware": "it puts the password into the arguments of its tool; fence_vmware_rest and fence_vmware_soap do not",
}
"""Agents that a worker runs only if its setting names them."""

_SUSPENDS = agents_named("cisco_ucs pve rhevm vbox virsh vmware_rest vmware_soap vmware_vcloud")
"""They report a suspended machine as off, too, and then send no command: switched on, it goes on in the middle of a write. Two
of them report off also if they get no state (rhevm), or if another blade was expected in the slot (cisco_ucs)."""
TRUST_OFF = "trust_off"
"""Our own parameter of any agent: the author of the configuration vouches that a machine is off if the agent says off."""

_NEVER: Mapping[str, str] = {
    "fence_ack_manual": "a person's word is given to nodewarden itself (acknowledge)",
    "fence_manual": "a person's word is given to nodewarden itself (acknowledge)",
    "fence_aws": "it refuses to work outside of EC2; the driver ec2 does the same from anywhere",
    "fence_aws_vpc_net": "it cuts the network and leaves the machine running",
    "fence_crosslink": "it calls a machine off that does not answer a ping, and switches nothing",
    "fence_compute": "it tells OpenStack that a host is down and switches nothing off",
    "fence_evacuate": "it tells OpenStack that a host is down and switches nothing off",
    "fence_heuristics_ping": "it is a question to ask before fencing, and no device",
    "fence_kdump": "it waits for a crash dump and switches nothing off",
    "fence_mpath": "it takes a node's reservation away, and the machine runs on",
    "fence_ovh": "its device's state can't be read, so nothing it does could be proven",
    "fence_rcd_serial": "its device's state can't be read, so nothing it does could be proven",
    "fence_sbd": "it leaves a message for the machine, and its state is that message",
    "fence_scsi": "it takes a node's reservation away, and the machine runs on",
}

PUBLISHED = (SINGLE_MACHINE_AGENTS | _PLUG_AGENTS | FABRIC_AGENTS) - frozenset(NOT_BY_DEFAULT)
"""The agents that a worker may run without a setting: the published ones that switch a device and can read it."""

_PORTS: Mapping[int, str] = {
    22: "alom ilo_moonshot ldom lpar vbox virsh",
    23: "apc bladecenter brocade cdu drac drac5 hds_cb hpblade ilo3_ssh ilo4_ssh ilo5_ssh ilo_mp ilo_ssh raritan raritan_px3 rsa "
    "sanbox2 wti",
    80: "cisco_ucs eps rhevm skalar vmware_rest vmware_soap vmware_vcloud",
    161: "apc_snmp cisco_mds eaton_snmp emerson ibmblade ifmib intelmodular ipdu lindypdu tripplite_snmp",
    443: "docker ilo ilo2 redfish",
    623: "idrac ilo3 ilo4 ilo5 imm ipmilan ipmilanplus",
    1234: "netio",
    3172: "rsb",
    6794: "ibmz",
    8006: "pve",
    10101: "powerman",
    44444: "zvmip",
}
"""The agents' own default ports, so that an omitted port and the same port in the configuration are one spelling."""
_DEFAULT_PORT = {agent: port for port, names in _PORTS.items() for agent in agents_named(names)}
USUAL_PORTS = frozenset(map(str, _PORTS))
_MOVED_BY_SSH = agents_named("apc bladecenter brocade drac5 hds_cb hpblade ilo3_ssh ilo4_ssh ilo5_ssh ilo_mp ilo_ssh rsa wti")
_MOVED_BY_TLS = agents_named(_PORTS[80]) - {"fence_eps"}
_SWITCHED = agents_named("apc apc_snmp tripplite_snmp")
"""Strips in a chain: the plug may be written `2:5`, or as plug 5 of switch 2; the default is switch 1."""

_PLACES = tuple(
    sorted(
        {
            *("auth_url", "baremetalsolution", "cloud", "crn", "crosscableip", "devices", "domain", "hidden_page", "instance"),
            *("managed", "namespace", "node_name", "page", "project", "project_name", "region", "region_name", "resourceGroup"),
            *("serial_port", "session_url", "status_file", "suborg", "subscriptionId", "switch", "systems_uri", "target"),
            *("tenant_name", "vmtype", "vmware_datacenter", "zone"),
        }
    )
)
"""Parameters for the part of a device, a site or an account that has the plug."""

_HTTP = agents_named(_PORTS[80]) - {"fence_eps"} | {"fence_shelly_gen2"}
"""They use HTTP without TLS, unless `ssl` is set."""
_ALWAYS_HTTP = agents_named("amt amt_ws eps epsr2")
_TELNET = agents_named(f"{_PORTS[23]} netio rsb")
"""They use telnet, unless `ssh` is set for those of them that can."""
_SSH = agents_named(f"{_PORTS[22]} cyberpower_ssh eaton_ssh vmware")
_ANY_KEY = "SSH that takes any host key"
"""The agents' library accepts any host key; with a read-only home directory every connection counts as the first."""
_SNMP_3 = agents_named("ipdu")
"""The SNMP agents that use version 3 by default, which encrypts; versions 1 and 2c show their password."""
_SNMP = agents_named(_PORTS[161])
_VERIFIED = IPMI_AGENTS | agents_named(
    "aliyun azure_arm docker dummy ecloud gce hetzner_cloud ibm_powervs ibm_vpc ibmz ilo ilo2 ironic kubevirt nutanix_ahv "
    "openstack ovm pve redfish xenapi zvm zvmip"
)
"""They use TLS, verified unless a parameter turns that off; or IPMI; or z/VM's own sockets, which leave no machine.
`fence_powerman` and `fence_virt` have none of these."""
_UNVERIFIED = ("ssl_insecure", "insecure", "notls", "disable_ssl")


def agent_name(driver: str) -> str | None:
    """An agent's name in its own spelling, with underscores; None where no agent could have that name."""
    name = driver.replace("-", "_")
    return name if _AGENT.fullmatch(name) is not None else None


def refusal(driver: str) -> str | None:
    """Why this agent is never used, for people; None if it is no agent or may be used."""
    return _NEVER.get(agent_name(driver) or "")


@cache
def parameters_of(driver: str) -> DriverParameters | None:
    """The rules of an agent, None if it is no agent or is never used. A misspelt name looks here like an agent that only a
    worker's setting adds; the worker refuses it."""
    agent = agent_name(driver)
    if agent is None or agent in _NEVER:
        return None
    return DriverParameters(
        names=("ip", "ipport", "plug"),
        identifying=_identifying(agent),
        secret=frozenset({"username", "login", "password", "passwd", "identity_file", "identity-file"}),
        endpoint=partial(endpoint, agent),
        insecurity=partial(insecurity, agent),
        any_name=True,
        fabric=agent in FABRIC_AGENTS,
    )


def off_may_be_suspended(agent: str, parameters: Mapping[str, str]) -> bool:
    """Whether a machine that was not commanded off may only be suspended although the agent reports off."""
    return agent in _SUSPENDS and not _is_true(canonical_parameters(agent, parameters).get(TRUST_OFF, ""))


def has_plugs(agent: str) -> bool:
    """Whether the agent distinguishes machines by their plugs, even if its metadata do not require that parameter."""
    return agent in _PLUG_AGENTS


def chooses_a_device(name: str) -> bool:
    """Whether the parameter of any agent says which device or plug it is."""
    return name in {"ip", "ipport", "plug", "uuid", *_PLACES}


def _identifying(agent: str) -> frozenset[str]:
    address, plug = frozenset({"ip", "ipaddr"}), frozenset({"plug", "port"})
    if agent in SINGLE_MACHINE_AGENTS:
        return address | {"ipport", "target", "systems_uri", "systems-uri"}
    if agent == "fence_dummy":
        return plug | {"status_file", "status-file"}
    if agent == "fence_openstack":
        return plug | {"uuid"}
    if agent == "fence_drac5" or agent not in PUBLISHED | _PLUG_AGENTS:
        return plug | address  # it may have plugs or not; its metadata say that on the worker
    return plug


def endpoint(agent: str, parameters: Mapping[str, str]) -> str:
    """Agent, address and plug in one spelling, with all parameters that say where the plug is. Raises ParameterError."""
    given = canonical_parameters(agent, parameters)
    host = ""
    if "ip" in given or agent in _DEFAULT_PORT or agent in SINGLE_MACHINE_AGENTS:
        host = host_of(given, "ip", what="device")
        port = _port(agent, given)
        host = authority(host, port) if port is not None else f"[{host}]" if ":" in host else host
    plug = _plug(agent, given)
    written_in_plug = {"switch"} if agent in _SWITCHED else set()
    places = "&".join(f"{name}={_quoted(given[name])}" for name in _PLACES if name in given and name not in written_in_plug)
    if not host and not plug and not places:
        raise ParameterError("plug", f"expected ip or plug of the device, got neither for {agent}")
    return f"{agent}://{host}{f'/{_quoted(plug)}' if plug else ''}{f'?{places}' if places else ''}"


def insecurity(agent: str, parameters: Mapping[str, str]) -> str:
    """How others could listen or answer in the device's place, "" if they could not. As for the agents themselves a flag without
    a value is set. Passwords of the cloud agents go to their clouds over TLS. Raises ParameterError."""
    given = canonical_parameters(agent, parameters)

    def is_set(name: str, *, default: bool = False) -> bool:
        return _is_true(given[name] or "1") if name in given else default

    if unverified := next((name for name in _UNVERIFIED if is_set(name)), None):
        return f"TLS without verifying its certificate ({unverified})"
    if url := next((name for name, value in given.items() if name != "proxy" and value.lower().startswith("http://")), None):
        return f"plain HTTP ({url})"
    tls = is_set("ssl", default=agent in _VERIFIED) or is_set("ssl_secure")
    if agent in _ALWAYS_HTTP or ((agent in _HTTP or agent in _VERIFIED) and not tls):
        return "plain HTTP (without ssl)"
    if agent in _SSH or (is_set("ssh") and (agent in _TELNET or agent not in PUBLISHED)):
        return _ANY_KEY
    if agent in _TELNET:
        return "telnet (without ssh)"
    if agent in _SNMP and given.get("snmp_version", "3" if agent in _SNMP_3 else "") != "3":
        return "SNMP that shows its password (snmp_version is not 3)"
    if given.get("snmp_sec_level", "").lower() == "noauthnopriv":
        return "SNMP without a password (snmp_sec_level)"
    if agent in PUBLISHED and agent not in _HTTP | _SNMP | _VERIFIED:
        return "a connection of its own that is not encrypted"
    if agent not in PUBLISHED | _VERIFIED and not tls:
        return "a way that is not known of this agent (without ssl)"
    return ""


def _port(agent: str, given: Mapping[str, str]) -> int | None:
    default = _DEFAULT_PORT.get(agent)
    if agent in _MOVED_BY_SSH and _is_true(given.get("ssh", "")):
        default = 22
    if agent in _MOVED_BY_TLS and any(_is_true(given.get(name, "")) for name in ("ssl", "ssl_secure", "ssl_insecure")):
        default = 443
    if default is None and "ipport" not in given:
        return None
    return port_of(given, "ipport", default or 0)


def _plug(agent: str, given: Mapping[str, str]) -> str:
    name = "uuid" if agent == "fence_openstack" and "uuid" in given else "plug"
    plug = given.get(name, "")
    if agent in SINGLE_MACHINE_AGENTS:
        if plug:
            raise ParameterError("plug", f"{agent} has no plugs, it would be ignored: expected the machine's own ip")
        return ""
    if not plug:
        if agent == "fence_drac5" or agent not in PUBLISHED | _PLUG_AGENTS:
            return ""
        raise ParameterError("plug", "expected the plug or the name of the machine as the agent lists it, got nothing")
    if "," in plug:
        raise ParameterError("plug", f"expected one plug, got {plug!r}: each plug that feeds the node is a device of its own")
    if agent in _SWITCHED:
        switch, colon, outlet = plug.rpartition(":")
        switch = switch if colon else given.get("switch", "1")
        return outlet if switch == "1" else f"{switch}:{outlet}"
    return plug


def _is_true(value: str) -> bool:
    return value.lower() in {"1", "on", "yes", "true"}


def _quoted(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode())

    return re.sub(r"[^A-Za-z0-9._~:-]", escape, text)
