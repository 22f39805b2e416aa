"""The parameters of fence agents: their names, the valid values, and whether they fit the agent's own metadata.

An agent accepts `-` for `_` and old names for new ones. A parameter that would make it do more than switch and read one device
is refused here, before a worker starts anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from policy.fence.drivers.contract import ParameterError, names_a_credential
from policy.values.errors import shown

# The names.

_RENAMED: Mapping[str, str] = {
    "cmd_prompt": "command_prompt",
    "debug": "debug_file",
    "ipaddr": "ip",
    "login": "username",
    "passwd": "password",
    "passwd_script": "password_script",
    "port": "plug",
    "secure": "ssh",
    "sudo": "use_sudo",
}

_OURS = frozenset(
    {"action", "disable_timeout", "method", "plug_separator", "quiet", "retry_on", "separator", "stonith_status_sleep"}
)
_REFUSED: Mapping[str, str] = {
    "delay": "expected the device's own delay instead",
    "missing_as_off": "a plug that is missing is never off",
    "network_fencing": "it cuts the network and leaves the machine running",
    "port_as_ip": "expected the address as ip",
    "tls_fingerprint": "agents have no parameter for the expected certificate: expected the driver redfish for that",
    "record_only": "it only records and switches nothing off",
    "verbose": "it would write the password to the worker's log",
    "verbose_level": "it would write the password to the worker's log",
    "debug_file": "it would write the password to a file",
}
_RUNS_OR_WRITES = frozenset(
    {
        *("cookie_file", "exec", "help", "logfile", "openrc", "password_script", "runonfail", "runonwarn"),
        *("snmp_priv_passwd_script", "ssh_options", "use_sudo", "version"),
    }
)

_USER_INFO = re.compile(r"://[^/]*@")


def canonical_name(name: str) -> str:
    plain = name.lstrip("-").replace("-", "_")
    return _RENAMED.get(plain, plain)


def canonical_parameters(agent: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a device under their own names. Raises ParameterError for those that are not for it to set."""
    given: dict[str, str] = {}
    for key, value in parameters.items():
        name = canonical_name(key)
        problem = refusal(name)
        if problem is not None:
            raise ParameterError(key, problem)
        if name in FILES:
            raise ParameterError(key, "expected its content as a credential, not a path on some worker")
        if _USER_INFO.search(value) is not None:
            raise ParameterError(key, "has a user before the host: expected credentials in a Secret")
        problem = problem_of(agent, name, value)
        if problem is not None:
            raise ParameterError(key, problem if names_a_credential(name) else f"{problem}, got {shown(value)}")
        if name in given and given[name] != value:
            raise ParameterError(key, f"{name} is given twice to {agent}, under different names and with different values")
        given[name] = value
    return given


def refusal(name: str) -> str | None:
    """Why a configuration may not set the parameter of this (canonical) name; None where it may."""
    if name in _OURS:
        return "is set by nodewarden itself"
    if name.endswith("_path") and name != "api_path":
        return "names a program on the worker: its own place is used"
    if name in _RUNS_OR_WRITES:
        return "has the agent run or write something else"
    return _REFUSED.get(name)


# The values (S41). Agents read lines `key=value`, and many of them paste the values into a command line: of ssh, of a tool, of a
# shell or a menu on the device, of a URL or an XML document. A user called `-oProxyCommand=...` would run a program on the
# worker. So each kind has a grammar of its own, no value begins with a dash, and none contains the end of a line. Parameters are
# checked when a configuration is read, and again on the worker.

LONGEST_VALUE = 1024

FILES = frozenset({"cacert", "identity_file", "kubeconfig", "serviceaccount", "tlscacert", "tlscert", "tlskey", "token_file"})
"""Parameters that an agent reads from a file: here the content itself is the credential, and never a path on a worker."""


class ValueKind(StrEnum):
    """Kinds of parameters. The values say in messages what was expected."""

    USER = "a user name of letters, digits and . _ @ \\ : ! + = , -"
    HOST = "an IP address or a host name"
    PORT = "a port from 1 to 65535"
    NUMBER = "a whole number"
    SEGMENT = "a name of letters, digits and . _ : @ + -"
    WORD = "a word of letters, digits and . _ : / @ + = , ~ -"
    NAME = "a name of letters, digits, blanks and . _ : / @ + = , ~ ( ) [ ] -"
    PATH = "a path of letters, digits and . _ : @ + ~ - between slashes"
    URL = "a URL like https://host:port/path, without a user or a query"
    QUERY = "pairs like name=value, with & between them"
    PATTERN = "a pattern that does not begin with a dash"
    CIPHER = "3 or 17: the other cipher suites of IPMI go without encryption, or by MD5 or RC4"
    IPMI_2 = "it on: IPMI 1.5 is not spoken"
    NO_IPMI_1_5 = "nothing: it chooses a login of IPMI 1.5, which is not spoken"
    SECRET = "a single line without control characters"  # noqa: S105 - what people are told of one


_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[?[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\]?"
_PIECE = r"(?!\.+(?:/|\Z))[\w~.:@+-]+"
"""A part of a path that is not of dots alone, as `.` and `..` are. It can be read in one way only: a stranger's text is
matched on the event loop of every worker (tests/fuzz/test_patterns.py)."""

_GRAMMAR: Mapping[ValueKind, re.Pattern[str]] = {
    # No blank, quote or slash: agents write it into ssh's command line, into XML and into the name of a file.
    ValueKind.USER: re.compile(r"\w(?:[\w.@\\:!+=,-]*[\w.@:!+=,-])?"),
    ValueKind.HOST: re.compile(_HOST),
    ValueKind.PORT: re.compile(r"[0-9]{1,5}"),
    ValueKind.NUMBER: re.compile(r"[0-9]{1,9}"),
    ValueKind.SEGMENT: re.compile(r"\w[\w.:@+-]*"),
    ValueKind.WORD: re.compile(r"[\w./][\w.:/@+=,~-]*"),
    ValueKind.NAME: re.compile(r"[\w./][\w .:/@+=,~()\[\]-]*"),
    ValueKind.PATH: re.compile(rf"(?!-)/?{_PIECE}(?:/{_PIECE})*/?"),
    ValueKind.URL: re.compile(rf"https?://(?:{_HOST})(?::[0-9]{{1,5}})?(?:/{_PIECE})*/?"),
    ValueKind.QUERY: re.compile(r"\w[\w.]*=[\w ,.:@+-]*(?:&\w[\w.]*=[\w ,.:@+-]*)*"),
    ValueKind.PATTERN: re.compile(r"(?!-).*"),
    ValueKind.CIPHER: re.compile(r"3|17"),
    ValueKind.IPMI_2: re.compile(r"1|on|yes|true", re.IGNORECASE),
    ValueKind.NO_IPMI_1_5: re.compile(r"(?!)"),
    ValueKind.SECRET: re.compile(r".*", re.DOTALL),
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CLIMBS = re.compile(r"(?:^|/)\.\.(?:/|$)")

_KINDS: Mapping[str, ValueKind] = {
    "username": ValueKind.USER,
    **dict.fromkeys(("ip", "crosscableip", "proxyhost"), ValueKind.HOST),
    **dict.fromkeys(("ipport", "proxyport", "udpport"), ValueKind.PORT),
    **dict.fromkeys(("ipmitool_timeout", "limit", "timeout"), ValueKind.NUMBER),
    # Parts of the paths that agents ask for.
    **dict.fromkeys(("instance", "namespace", "node_name", "pve_node", "vmtype"), ValueKind.SEGMENT),
    **dict.fromkeys(("api_path", "hidden_page", "page", "redfish_uri", "suborg", "systems_uri"), ValueKind.PATH),
    **dict.fromkeys(("auth_url", "proxy", "session_url"), ValueKind.URL),
    "filter": ValueKind.QUERY,
    # The agent itself waits for this text and sends it nowhere.
    "command_prompt": ValueKind.PATTERN,
    # Names that people give to things in an account, sent as data; and the one choice with a blank in it.
    **dict.fromkeys(
        (
            *("cloud", "compute_domain", "domain", "project_domain", "project_domain_name", "project_name", "tenant_name"),
            *("drac_version", "user_domain", "user_domain_name", "vmware_datacenter"),
        ),
        ValueKind.NAME,
    ),
}
"""All other parameters are a WORD: one word, even in a command line or a shell."""


def agents_named(names: str) -> frozenset[str]:
    """The agents in a text of names without the prefix `fence_`."""
    return frozenset(f"fence_{name}" for name in names.split())


_PLUGS_WITH_BLANKS = agents_named("nutanix_ahv openstack ovm vbox virt vmware vmware_rest vmware_soap xenapi")
"""Their plug is the name that people give to a machine, and they quote it or send it as data."""

_PLUGS_IN_URLS = agents_named(
    "aliyun azure_arm docker ecloud gce hetzner_cloud ibm_powervs ibm_vpc ironic kubevirt pve rhevm vmware_vcloud"
)
"""They paste their plug into the path or the query of a URL."""

_SECRETS_IN_ARGUMENTS = agents_named("vmware")
"""They pass a password to their tool as an argument, so a worker runs them only if its setting allows it."""


IPMI_AGENTS = agents_named("idrac ilo3 ilo4 ilo5 imm ipmilan ipmilanplus")
"""They have ipmitool speak IPMI."""
_OF_IPMI = {"cipher": ValueKind.CIPHER, "lanplus": ValueKind.IPMI_2, "auth": ValueKind.NO_IPMI_1_5}


def kind_of(agent: str, name: str) -> ValueKind:
    if agent in IPMI_AGENTS and name in _OF_IPMI:
        return _OF_IPMI[name]
    if name in {"plug", "uuid"}:
        if agent in _PLUGS_IN_URLS:
            return ValueKind.SEGMENT
        return ValueKind.NAME if agent in _PLUGS_WITH_BLANKS else ValueKind.WORD
    if name in _KINDS:
        return _KINDS[name]
    return ValueKind.SECRET if names_a_credential(name) else ValueKind.WORD


def problem_of(agent: str, name: str, value: str, *, published: bool = False) -> str | None:
    """Why an agent may not get this value of the parameter of this (canonical) name; None if it may. A bare flag is empty.

    The text never holds the value (S12). A password may hold anything that a line can. For a published agent it may begin with a
    dash: those pass it on over a terminal, HTTP or a file in memory, and not as an argument. published: whether the agent is one
    of these.
    """
    if name in FILES:
        return "expected text without a NUL" if "\0" in value else None
    kind = kind_of(agent, name)
    if len(value) > LONGEST_VALUE and kind is not ValueKind.SECRET:
        return f"expected at most {LONGEST_VALUE} characters, got {len(value)}"
    if _CONTROL.search(value) is not None:
        return f"expected {ValueKind.SECRET}"
    if kind is ValueKind.SECRET:
        if value.startswith("-") and (not published or agent in _SECRETS_IN_ARGUMENTS):
            return f"begins with a dash, and {agent} may pass it on as an argument: expected another one"
        return None
    if (value or kind is ValueKind.CIPHER) and (_GRAMMAR[kind].fullmatch(value) is None or not _is_sound(kind, value)):
        return f"expected {kind}"
    return None


def _is_sound(kind: ValueKind, value: str) -> bool:
    """Checks that a pattern can't express."""
    match kind:
        case ValueKind.PORT:
            return 0 < int(value) < 65536
        case ValueKind.USER | ValueKind.PATTERN | ValueKind.QUERY:
            return True
        case _:
            return _CLIMBS.search(value) is None


# An agent's metadata about its parameters, and whether the parameters of a device fit.
#
# Agents ignore parameters that they don't know and guess missing ones; here these are refused before an agent is started. The
# rules are those of the first node-fencing controller: a required parameter without a default must be given, a boolean must be
# one, unknown parameters are left out with a warning. `activities/power/fence_agent.py` reads the metadata on the worker.

TRUE = frozenset({"on", "yes", "true", "1"})
FALSE = frozenset({"off", "no", "false", "0"})
_WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParameter:
    """One parameter. kind: string, boolean, integer, second or select (one of `choices`). default: None if it has none."""

    kind: str = "string"
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMetadata:
    """One agent: its parameters by their canonical names, and its actions."""

    agent: str
    parameters: Mapping[str, AgentParameter]
    actions: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        return name in self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedParameters:
    """Parameters as the agent accepts them; warnings name those that were left out."""

    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def fitted(metadata: AgentMetadata, given: Mapping[str, str]) -> AcceptedParameters:
    """The parameters for an agent. Raises ParameterError; no message has a credential's value (S12)."""
    values: dict[str, str] = {}
    unknown: list[str] = []
    for key, value in given.items():
        name = canonical_name(key)
        parameter = metadata.parameters.get(name)
        if parameter is None:
            unknown.append(key)
            continue
        taken = _taken(key, parameter, value)
        if taken is not None:
            values[name] = taken
    for name, parameter in metadata.parameters.items():
        if parameter.required and parameter.default is None and name not in values and name != "action":
            raise ParameterError(name, f"is required by {metadata.agent}, got nothing")
    warnings = (f"{metadata.agent} knows no {', '.join(sorted(unknown))}: left out",) if unknown else ()
    return AcceptedParameters(values=values, warnings=warnings)


def _taken(key: str, parameter: AgentParameter, value: str) -> str | None:
    """The value as the agent reads it; None for a false boolean, which must be left out, because many agents only look whether
    it is given."""
    shown = "something else" if names_a_credential(key) else repr(value)
    if parameter.kind == "boolean":
        if value.lower() in TRUE or not value:  # a flag that is given without a value is bare, as on a command line
            return "1"
        if value.lower() in FALSE:
            return "0" if (parameter.default or "").lower() in TRUE else None
        raise ParameterError(key, f"expected on, yes, true, 1, off, no, false or 0, got {shown}")
    if parameter.kind in {"integer", "second"} and _WHOLE.fullmatch(value) is None:
        raise ParameterError(key, f"expected a whole number, got {shown}")
    if parameter.kind == "select" and value.lower() not in {choice.lower() for choice in parameter.choices}:
        raise ParameterError(key, f"expected one of {', '.join(parameter.choices)}, got {shown}")
    return value
