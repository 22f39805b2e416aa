"""What a method's name in a ConfigMap leads to: its definition, the agent or driver that it names, and its device. First the
objects in which that is looked up.

A definition is the method's own lines, and those of the template that it is an instance of. The device is read from these lines:
what identifies it, what is secret, and its endpoint. No device is accepted unless a parameter that identifies it was written for
this node, contains a variable of it, or comes from its providerID (S10). Credentials among the lines become references to their
object, and a warning: the published demo does so, and every reader of ConfigMaps can read them (S12).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from policy.fence.config import OWN_METHODS, MethodAction, VariableError, fill_in, identifies
from policy.fence.drivers import canonical_driver, parameters_of, problem_of_credential
from policy.fence.drivers.agent_parameters import canonical_name, refusal
from policy.fence.drivers.contract import DriverParameters, ParameterError, names_a_credential, unidentified
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice, problem_of_place
from policy.fence.plan_compiler import Findings
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, shown
from policy.values.fields import parse_properties
from policy.values.object_refs import is_object_name

# The ConfigMaps and Secrets that a reader of configuration looks up by name, and their lines `key=value`.
#
# Readers are pure, and objects are fetched by name, never listed (a right to list Secrets is a right to read all of them). So a
# reader runs on the objects that are there, the lookup records the names that it did not know, the caller fetches those and runs
# the reader again, until nothing is missing. Of a Secret only the names of its keys get here (S12).


class LookupKind(StrEnum):
    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind of object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """One object of the namespace in which fence configuration lives."""

    kind: LookupKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    name: str
    namespace: str
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return f"ConfigMap/{self.namespace}/{self.name}"

    def text(self, key: str) -> str | None:
        """The text under a key, None without it. Raises PolicyError for what is no text."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise PolicyError(self.subject, f"data[{key}]", f"expected a text, got {type(value).__name__}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """An object that we may not read. reason: what the API said."""

    reason: str


Found = ConfigMap | tuple[str, ...] | Forbidden | None
"""A ConfigMap, the keys of a Secret, or None: there is no object of that name."""


class ObjectLookup:
    """objects: those that were fetched, None for a name that does not exist. complete: everything that exists is among them."""

    __slots__ = ("_complete", "_objects", "_wanted", "namespace")

    def __init__(self, namespace: str, objects: Mapping[ObjectName, Found], *, complete: bool = False) -> None:
        self.namespace = namespace
        self._objects = objects
        self._complete = complete
        self._wanted: dict[ObjectName, None] = {}

    @property
    def wanted(self) -> tuple[ObjectName, ...]:
        """The names that were looked up and are not known. Empty: what was read with this lookup stands."""
        return tuple(self._wanted)

    def config_map(self, name: str) -> ConfigMap | None:
        """The ConfigMap of that name, None if there is none, or it is not fetched yet. Raises PolicyError if we may not read
        it."""
        found = self._find(ObjectName(kind=LookupKind.CONFIG_MAP, name=name))
        if isinstance(found, Forbidden):
            raise PolicyError(f"ConfigMap/{self.namespace}/{name}", "metadata", f"it can't be read: {found.reason}")
        if found is not None and not isinstance(found, ConfigMap):
            raise TypeError(f"expected a ConfigMap, got {shown(type(found))}")
        return found

    def secret_keys(self, name: str) -> tuple[str, ...] | Forbidden | None:
        """The names of the keys of that Secret, None if there is none, or it is not fetched yet."""
        found = self._find(ObjectName(kind=LookupKind.SECRET, name=name))
        if isinstance(found, ConfigMap):
            raise TypeError("expected the keys of a Secret, got a ConfigMap")
        return found

    def _find(self, name: ObjectName) -> Found:
        if name not in self._objects and not self._complete:
            self._wanted[name] = None
        return self._objects.get(name)


# Lines `key=value`, each with the place at which it is written: merging and messages both need it.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLine:
    """One line. written: its key as it is spelled there; data_key: of the ConfigMap; specific: it is about one node only
    (S10)."""

    written: str
    value: str
    holder: ConfigMap
    data_key: str
    specific: bool = False

    @property
    def subject(self) -> str:
        return self.holder.subject

    @property
    def field(self) -> str:
        """The place inside it, for messages."""
        return f"data[{self.data_key}].{self.written}"

    def refuse(self, problem: str) -> PolicyError:
        """The error about this line, to be raised by the caller. Its value may be a password: the problem must not repeat it."""
        return PolicyError(self.subject, self.field, problem)

    def filled_in(self, node: NodeView) -> str:
        """The value for that node. Raises PolicyError where it can't be filled in."""
        try:
            return fill_in(self.value, node)
        except VariableError as error:
            raise self.refuse(str(error)) from error


def read_lines(holder: ConfigMap, data_key: str, *, specific: bool = False) -> dict[str, ConfigLine]:
    """The lines under one key of a ConfigMap, by key as written. Raises PolicyError."""
    text = holder.text(data_key)
    if text is None:
        keys = ", ".join(sorted(holder.data)) or "nothing"
        raise PolicyError(holder.subject, f"data[{data_key}]", f"expected lines key=value here; the object has {keys}")
    values = parse_properties(text, subject=holder.subject, field=f"data[{data_key}]")
    return {
        written: ConfigLine(written=written, value=value, holder=holder, data_key=data_key, specific=specific)
        for written, value in values.items()
    }


def under_one_name(lines: Iterable[ConfigLine], name: Callable[[str], str]) -> dict[str, ConfigLine]:
    """The lines of one object by the one name of their keys. Raises PolicyError if two of them are the same parameter."""
    found: dict[str, ConfigLine] = {}
    for line in lines:
        key = name(line.written)
        if key in found:
            raise line.refuse(f"is the same parameter as {found[key].written}: expected one of them")
        found[key] = line
    return found


def whole_number(line: ConfigLine, *, minimum: int, maximum: int, what: str = "a whole number") -> int:
    """A number without a unit. what: it counts, for messages."""
    if not line.value.isascii() or not line.value.isdigit() or len(line.value) > 9:
        raise line.refuse(f"expected {what} from {minimum} to {maximum}, without a unit")
    number = int(line.value)
    if not minimum <= number <= maximum:
        raise line.refuse(f"expected {what} from {minimum} to {maximum}, got {number}")
    return number


def seconds(line: ConfigLine, *, minimum: int = 0, maximum: timedelta) -> timedelta:
    """Whole seconds, as the proposal's demo writes them. `5m` is refused: its own controller read it as never."""
    number = whole_number(line, minimum=minimum, maximum=int(maximum.total_seconds()), what="whole seconds")
    return timedelta(seconds=number)


# What an `agent_name=` leads to: one of our drivers, or an agent of the fence-agents package.
#
# A parameter has several spellings (`port` is `plug`, dashes are underscores). Before lines are merged it gets one name, or a
# template's `port` and a method's `plug` would both reach the agent, and the wrong one could win (S11).

AGENT_PREFIX = "fence_"

NATIVE: Mapping[str, str] = {"fence_aws": "ec2", "fence_gce": "gce"}
"""Agents that our own drivers replace: fence_aws refuses to work outside of EC2, fence_gce does not read its cycles."""

NO_FENCE: Mapping[str, str] = {"ssh": "ssh asks the node itself, which is the one that can't answer, and proves nothing"}

ACTIONS: Mapping[str, MethodAction] = {
    "off": MethodAction.OFF,
    "on": MethodAction.ON,
    "reboot": MethodAction.REBOOT,
    "restart": MethodAction.RESTART,
    "disable": MethodAction.OFF,
    "enable": MethodAction.ON,
}

READING = frozenset({"status", "monitor", "list", "list-status", "metadata", "manpage", "validate-all"})
"""Actions that only look: nothing executed is never success (S7)."""

UNREAD = frozenset({"reset", "cycle", "diag"})
"""Actions after which no off can be read (S5)."""

OPTIONS_OF_AGENTS = frozenset(
    {
        "login_timeout",
        "shell_timeout",
        "power_timeout",
        "power_wait",
        "stonith_status_sleep",
        "retry_on",
        "disable_timeout",
        "method",
        "plug_separator",
        "separator",
        "skip_os_shutdown",
        "skip_race_check",
        "verbose",
        "quiet",
    }
)
"""Time limits and habits of an agent. Our own drivers have their own, so there these options are not used."""


def driver_of(agent: str) -> str:
    """The name of the driver that an agent's name leads to, in any spelling."""
    driver = canonical_driver(agent)
    return NATIVE.get(driver, driver)


def canonical_parameter(driver: str, written: str) -> str:
    """The one name for a parameter of that driver, in any spelling."""
    if driver.startswith(AGENT_PREFIX):
        return canonical_name(written)
    plain = canonical_name(written) if driver in NATIVE.values() else written.replace("-", "_")
    takes = parameters_of(driver)
    known = {name.replace("-", "_"): name for name in (*takes.names, *takes.secret)} if takes is not None else {}
    if plain == "plug" and "instance" in known:
        return "instance"
    return known.get(plain, plain)


def not_for_configuration(driver: str, name: str) -> str | None:
    """Why a parameter may not come from a fence configuration, None where it may: some make an agent run a program on the worker,
    or call something off that is not."""
    return refusal(name) if driver.startswith(AGENT_PREFIX) else None


# The definition. The method's own lines are `fence-method-<name>` inside the winning ConfigMap (the proposal), or a ConfigMap
# `fence-method-<name>-<node>` (the published demo); the template is a ConfigMap, too. One of our own methods needs neither.

METHOD_PREFIX = "fence-method-"
METHOD_KEY = "method.properties"
TEMPLATE_KEYS = ("template.properties", "method.properties")
TEMPLATE_PREFIXES = ("fence-method-template-", "fence-template-")
SECRET_PREFIX = "secret-fence-method-"  # noqa: S105 - the names of such objects

_METHOD_NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")

CONTROL = frozenset(
    {"template", "agent_name", "action", "delay", "timeout", "tries", "level", "site", "node_name", "name", "script_path"}
    | {"must_sucess", "must_success", "storage_classes", "csi_drivers", "volume_handles"}
)
"""Keys that nodewarden itself reads; all others are parameters of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDefinition:
    """One method as written. agent: one of our own methods, or the agent that speaks to a device. parameters: of the device, by
    the driver's one name for each. control: the lines with the keys of `CONTROL`. place: object and field to name in an error
    that is about no single line."""

    name: str
    agent: str
    template: str = ""
    parameters: Mapping[str, ConfigLine] = field(default_factory=dict)
    control: Mapping[str, ConfigLine] = field(default_factory=dict)
    place: tuple[str, str]

    def refuse(self, problem: str) -> PolicyError:
        """The error about the method as a whole, to be raised by the caller."""
        return PolicyError(*self.place, problem)


class MethodDefinitions:
    """The methods of one node. winner: the ConfigMap that holds for it, None for the built-in default. specific: it is about this
    node only."""

    def __init__(
        self, node: NodeView, lookup: ObjectLookup, findings: Findings, *, winner: ConfigMap | None, specific: bool
    ) -> None:
        self._node = node
        self._lookup = lookup
        self._findings = findings
        self._winner = winner
        self._specific = specific

    def find(self, name: str, *, place: tuple[str, str]) -> MethodDefinition:
        """The definition of a method that a step lists at `place`. Raises PolicyError."""
        if _METHOD_NAME.fullmatch(name) is None:
            raise PolicyError(*place, "expected names of methods, of letters, digits, dashes and dots, with spaces between them")
        found = self._own_lines(name)
        if found is None:
            if name in OWN_METHODS:
                return MethodDefinition(name=name, agent=name, place=place)
            inside = f"data[{METHOD_PREFIX}{name}] of {self._winner.name}, " if self._winner is not None else ""
            apart = f"ConfigMap/{self._lookup.namespace}/{METHOD_PREFIX}{name}-{self._node.name}"
            raise PolicyError(*place, f"{name} is not defined: looked for {inside}{apart}, and our own methods")
        lines, place = found
        template_name, template = self._template(lines)
        agent_line = lines.get("agent_name") or template.get("agent_name")
        if agent_line is None and name not in OWN_METHODS:
            expected = f"in the template {template_name}" if template_name else "or a template="
            raise PolicyError(*place, f"expected agent_name= here {expected}: nothing says what {name} is done with")
        agent = agent_line.value if agent_line is not None else name
        driver = driver_of(agent)
        common, own = (under_one_name(each.values(), lambda written: _control_or(driver, written)) for each in (template, lines))
        whole = common | own  # the method's value beats its template's (S11)
        self._judge_control(whole, agent)
        return MethodDefinition(
            name=name,
            agent=agent,
            template=template_name,
            parameters={key: line for key, line in whole.items() if key not in CONTROL},
            control={key: line for key, line in whole.items() if key in CONTROL},
            place=place,
        )

    def _own_lines(self, name: str) -> tuple[dict[str, ConfigLine], tuple[str, str]] | None:
        key = f"{METHOD_PREFIX}{name}"
        inline = self._winner if self._winner is not None and key in self._winner.data else None
        apart = self._lookup.config_map(f"{key}-{self._node.name}") if is_object_name(f"{key}-{self._node.name}") else None
        if inline is not None and apart is not None:
            raise PolicyError(inline.subject, f"data[{key}]", f"is defined here and in {apart.subject}: expected one of them")
        if inline is not None:
            return read_lines(inline, key, specific=self._specific), (inline.subject, f"data[{key}]")
        if apart is not None:
            return read_lines(apart, METHOD_KEY, specific=True), (apart.subject, f"data[{METHOD_KEY}]")
        return None

    def _template(self, lines: Mapping[str, ConfigLine]) -> tuple[str, dict[str, ConfigLine]]:
        line = lines.get("template")
        if line is None:
            return "", {}
        names = _template_names(line)
        found = [each for each in map(self._lookup.config_map, names) if each is not None]
        if not found:
            raise line.refuse(f"there is no such template: looked for {self._listed(names)}{self._hint(line.value)}")
        if len(found) > 1:
            raise line.refuse(f"expected the whole name of one of {self._listed([each.name for each in found])}")
        template = found[0]
        keys = [key for key in TEMPLATE_KEYS if key in template.data]
        if len(keys) > 1:
            raise PolicyError(template.subject, f"data[{keys[0]}]", f"is written as {keys[1]}, too: expected one of them")
        read = read_lines(template, keys[0] if keys else TEMPLATE_KEYS[0])
        if "template" in read:
            raise read["template"].refuse("a template of a template is not read: write its lines here")
        return template.name, read

    def _listed(self, names: list[str]) -> str:
        return ", ".join(f"ConfigMap/{self._lookup.namespace}/{name}" for name in names)

    def _hint(self, written: str) -> str:
        """The demo's own objects have both prefixes; naming the other one saves the search."""
        for ours, other in (TEMPLATE_PREFIXES, TEMPLATE_PREFIXES[::-1]):
            if written.startswith(ours):
                name = other + written.removeprefix(ours)
                return f"; there is {name}" if self._lookup.config_map(name) is not None else ""
        return ""

    def _judge_control(self, lines: Mapping[str, ConfigLine], agent: str) -> None:
        if (line := lines.get("script_path")) is not None:
            what = f"{agent} is a method of ours, leave it out" if agent in OWN_METHODS else "name an agent or a method of ours"
            raise line.refuse(f"scripts are not run: {what}")
        if (line := lines.get("node_name")) is not None:
            require_node(line, self._node)
        for key in ("must_sucess", "must_success"):
            if (line := lines.get(key)) is not None:
                self._findings.warn(line.subject, line.field, "is not used: every method must succeed")


def require_node(line: ConfigLine, node: NodeView) -> None:
    """Refuse a `node_name=` of another node: a copy in which not everything was changed would fence the wrong one (S9)."""
    if (written := line.filled_in(node)) != node.name:
        raise line.refuse(f"contradicts Node/{node.name}, for which it was found: got {written!r}")


def _template_names(line: ConfigLine) -> list[str]:
    """The name as written; a name without a prefix may be short for either."""
    if not is_object_name(line.value):
        raise line.refuse("expected the name of a ConfigMap")
    if line.value.startswith(TEMPLATE_PREFIXES):
        return [line.value]
    return [line.value, *(prefix + line.value for prefix in TEMPLATE_PREFIXES)]


def _control_or(driver: str, written: str) -> str:
    plain = written.replace("-", "_")
    if plain in CONTROL:
        return plain
    if driver in OWN_METHODS:
        return next((name for name in OWN_METHODS[driver].parameters if name.replace("-", "_") == plain), written)
    return canonical_parameter(driver, written)


# The device of a definition.

REFERENCES: Mapping[str, CredentialKind] = {"file:": CredentialKind.FILE, "env:": CredentialKind.ENVIRONMENT}
"""How a value says that it is elsewhere, on the power worker."""


@dataclass(slots=True)
class _SortedLines:
    """The lines of a device, sorted. plain: parameters filled in for the node; written: the same under the names of the lines."""

    plain: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    lines: dict[str, ConfigLine] = field(default_factory=dict)
    secret: dict[str, ConfigLine] = field(default_factory=dict)
    identified: bool = False


class DeviceLines:
    """Reads devices for one node. common: parameters for every method with a driver that has them."""

    def __init__(self, node: NodeView, lookup: ObjectLookup, findings: Findings, *, common: Mapping[str, ConfigLine]) -> None:
        self._node = node
        self._lookup = lookup
        self._findings = findings
        self._common = common

    def read(
        self,
        method: MethodDefinition,
        driver: str,
        takes: DriverParameters,
        *,
        implied: Mapping[str, str] | None = None,
        site: str = "default",
        delay: timedelta = timedelta(0),
        timeout: timedelta | None = None,
    ) -> tuple[PowerDevice, Mapping[str, str]]:
        """The device of a method, and its plain parameters under the names that they are written with. implied: parameters that
        follow from the node's name. Raises PolicyError."""
        found = self._sorted(method, driver, takes)
        self._add(method, takes, found, implied or {}, f"the name of Node/{self._node.name}")
        if takes.from_provider_id is not None and self._node.provider_id:
            given = takes.from_provider_id(self._node.provider_id)
            self._add(method, takes, found, given, f"the providerID of Node/{self._node.name}")
        if not found.identified:
            raise method.refuse(
                unidentified(
                    self._node.name,
                    takes.identifying,
                    "in an object of this node alone, or with {{ .NodeName }} in its value",
                )
            )
        try:
            endpoint = takes.endpoint(found.plain)
        except ParameterError as error:
            line = found.lines.get(error.parameter)
            problem = f"{error.parameter}: {error.problem}"
            raise (line.refuse(error.problem) if line is not None else method.refuse(problem)) from error
        credentials = self._credentials(method, driver, takes, found)
        device = PowerDevice(
            driver=driver,
            endpoint=endpoint,
            parameters=found.plain,
            credentials=credentials,
            site=site,
            delay=delay,
            off_timeout=timeout or takes.off_takes,
        )
        return device, found.written

    def _sorted(self, method: MethodDefinition, driver: str, takes: DriverParameters) -> _SortedLines:
        found = _SortedLines()
        known = {*takes.names, *takes.secret}
        # A common parameter counts if the driver knows it; the method's own value beats it.
        common = under_one_name(self._common.values(), lambda written: canonical_parameter(driver, written))
        own = under_one_name(method.parameters.values(), lambda written: canonical_parameter(driver, written))
        for name, line in ({key: line for key, line in common.items() if key in known} | own).items():
            found.lines[name] = line
            if (problem := not_for_configuration(driver, name)) is not None:
                raise line.refuse(problem)
            if name in takes.secret or (takes.any_name and name not in takes.names and names_a_credential(name)):
                self._refuse_credential(driver, name, line)
                found.secret[name] = line
                continue
            if name not in takes.names and not takes.any_name:
                if name.replace("-", "_") in OPTIONS_OF_AGENTS and driver in NATIVE.values():
                    self._findings.warn(line.subject, line.field, f"is not used: {driver} has time limits of its own")
                    continue
                raise line.refuse(f"is not a parameter of {driver}; expected one of {', '.join(takes.names)}")
            if line.value.startswith(tuple(REFERENCES)):
                if not takes.any_name or name in takes.identifying:
                    raise line.refuse("is no secret: expected the value itself, since it belongs to what is pinned")
                self._refuse_credential(driver, name, line)
                found.secret[name] = line
                continue
            if not (value := line.filled_in(self._node)):
                raise line.refuse("expected a value, got nothing")
            found.plain[name] = value
            found.written[line.written] = value
            found.identified |= name in takes.identifying and (line.specific or identifies(line.value))
        return found

    def _refuse_credential(self, driver: str, name: str, line: ConfigLine) -> None:
        """A value that is written here is checked again by the worker; one that is elsewhere only by the worker (S41)."""
        if not line.value:
            raise line.refuse("expected a value, got nothing")
        prefix = next((each for each in REFERENCES if line.value.startswith(each)), None)
        problem = (
            problem_of_credential(driver, name, line.value)
            if prefix is None
            else problem_of_place(REFERENCES[prefix], line.value.removeprefix(prefix), self._lookup.namespace)
        )
        if problem is not None:
            raise line.refuse(problem)

    def _add(
        self, method: MethodDefinition, takes: DriverParameters, found: _SortedLines, given: Mapping[str, str], giver: str
    ) -> None:
        """Add what the node itself says of its machine. A plug that is written as another one is another machine's (S9)."""
        for name, value in given.items():
            written = found.plain.setdefault(name, value)
            if written != value:
                problem = f"contradicts {giver}, which says {value!r}: got {written!r}"
                raise found.lines[name].refuse(problem) if name in found.lines else method.refuse(f"{name}: {problem}")
            if name not in found.lines:
                found.written[name] = value
            found.identified |= name in takes.identifying

    def _credentials(
        self, method: MethodDefinition, driver: str, takes: DriverParameters, found: _SortedLines
    ) -> tuple[CredentialRef, ...]:
        from_secret, unseen = self._secret(method, driver, takes)
        names = set(from_secret.keys) if from_secret is not None else set()
        inline: dict[tuple[str, str, str], dict[str, str]] = {}
        elsewhere: dict[CredentialKind, dict[str, str]] = {}
        for name, line in found.secret.items():
            if name in names:
                self._findings.warn(line.subject, line.field, "is not used: the method's Secret has it, too")
                continue
            prefix = next((each for each in REFERENCES if line.value.startswith(each)), None)
            if prefix is not None:
                elsewhere.setdefault(REFERENCES[prefix], {})[name] = line.value.removeprefix(prefix)
                continue
            self._findings.warn(
                line.subject, line.field, "is a credential that every reader of ConfigMaps sees: move it into a Secret"
            )
            inline.setdefault((line.holder.namespace, line.holder.name, line.data_key), {})[name] = line.written
        missing = sorted(takes.needed - names - set(found.secret))
        if missing:
            secret = f"Secret/{self._lookup.namespace}/{SECRET_PREFIX}{method.name}-{self._node.name}"
            raise method.refuse(f"{driver} needs {', '.join(missing)}: expected them in {secret}{unseen}")
        references = [
            CredentialRef(kind=CredentialKind.CONFIG_MAP, namespace=namespace, name=name, properties=data_key, keys=keys)
            for (namespace, name, data_key), keys in inline.items()
        ]
        references += [CredentialRef(kind=kind, namespace=self._lookup.namespace, keys=keys) for kind, keys in elsewhere.items()]
        return (*references, *([from_secret] if from_secret is not None else []))

    def _secret(self, method: MethodDefinition, driver: str, takes: DriverParameters) -> tuple[CredentialRef | None, str]:
        """The Secret made for this method and node, and what to add to a message if it can't be seen."""
        if not takes.secret and not takes.any_name:
            return None, ""
        name = f"{SECRET_PREFIX}{method.name}-{self._node.name}"
        keys = self._lookup.secret_keys(name)
        if isinstance(keys, Forbidden):
            self._findings.warn(f"Secret/{self._lookup.namespace}/{name}", "metadata", f"it can't be looked for: {keys.reason}")
            return None, f", which can't be looked for: {keys.reason}"
        if keys is None:
            return None, ""
        subject = f"Secret/{self._lookup.namespace}/{name}"
        taken = {canonical_parameter(driver, key): key for key in keys}
        for parameter, key in taken.items():
            if parameter in takes.identifying or not_for_configuration(driver, parameter) is not None:
                self._findings.refuse(subject, f"data[{key}]", "is no credential: expected it in the method's own lines")
            elif parameter not in takes.secret and not takes.any_name:
                self._findings.refuse(subject, f"data[{key}]", f"expected one of {_listed(takes.secret)}")
        if not taken:
            self._findings.refuse(subject, "data", f"expected one of {_listed(takes.secret)}, got nothing")
        return CredentialRef(kind=CredentialKind.SECRET, namespace=self._lookup.namespace, name=name, keys=taken), ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
