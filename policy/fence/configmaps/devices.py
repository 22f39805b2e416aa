"""A device of one node from the lines of its method: what identifies it, what is secret, and its endpoint.

Nothing is accepted unless a parameter that identifies the node's own device was written for this node, contains a variable of it,
or comes from its providerID (S10). Credentials written among the lines become references to their object, and a warning: the
published demo does so, and who may read ConfigMaps can read them (S12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from policy.fence.agents import NATIVE, OPTIONS_OF_AGENTS, canonical, not_for_configuration
from policy.fence.configmaps.definitions import SECRET_PREFIX, Definition
from policy.fence.configmaps.lines import Line, under_one_name
from policy.fence.configmaps.object_lookup import Forbidden, ObjectLookup
from policy.fence.drivers.contract import DriverParameters, ParameterError, names_a_credential
from policy.fence.drivers.credentials import problem_of_credential
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice, problem_of_place
from policy.fence.validation import Findings
from policy.fence.variables import identifies
from policy.objects.nodes import NodeView

REFERENCES: Mapping[str, CredentialKind] = {"file:": CredentialKind.FILE, "env:": CredentialKind.ENVIRONMENT}
"""How a value says that it is elsewhere, on the power worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDevice:
    """A device, and its plain parameters under the names they were written with."""

    device: PowerDevice
    written: Mapping[str, str]


@dataclass(slots=True)
class _Sorted:
    """The lines of a device by what they are."""

    plain: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    secret: dict[str, Line] = field(default_factory=dict)
    identified: bool = False


class DeviceLines:
    """Reads devices for one node."""

    def __init__(self, node: NodeView, shelf: ObjectLookup, findings: Findings, *, common: Mapping[str, Line]) -> None:
        self._node = node
        self._shelf = shelf
        self._findings = findings
        self._common = common

    def read(
        self,
        method: Definition,
        driver: str,
        takes: DriverParameters,
        *,
        implied: Mapping[str, str] | None = None,
        site: str = "default",
        delay: timedelta = timedelta(0),
        timeout: timedelta | None = None,
    ) -> ReadDevice:
        """The device of a method. implied: what follows from the node's name. Raises PolicyError."""
        found = self._sorted(method, driver, takes)
        self._add(method, takes, found, implied or {}, f"the name of Node/{self._node.name}")
        if takes.from_provider_id is not None and self._node.provider_id:
            given = takes.from_provider_id(self._node.provider_id)
            self._add(method, takes, found, given, f"the providerID of Node/{self._node.name}")
        self._refuse_unidentified(method, takes, found)
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
        return ReadDevice(device=device, written=found.written)

    def _sorted(self, method: Definition, driver: str, takes: DriverParameters) -> _Sorted:
        found = _Sorted()
        known = {*takes.names, *takes.secret}
        # Parameters common to all nodes go to whom they mean something, and are the first to be overruled.
        common = under_one_name(self._common.values(), lambda written: canonical(driver, written))
        own = under_one_name(method.parameters.values(), lambda written: canonical(driver, written))
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
            value = self._filled_in(line)
            found.plain[name] = value
            found.written[line.written] = value
            found.identified |= name in takes.identifying and (line.specific or identifies(line.value))
        return found

    def _refuse_credential(self, driver: str, name: str, line: Line) -> None:
        """One that is written here is read again by the worker, and one that is elsewhere only there (S41)."""
        if not line.value:
            raise line.refuse("expected a value, got nothing")
        prefix = next((each for each in REFERENCES if line.value.startswith(each)), None)
        problem = (
            problem_of_credential(driver, name, line.value)
            if prefix is None
            else problem_of_place(REFERENCES[prefix], line.value.removeprefix(prefix), self._shelf.namespace)
        )
        if problem is not None:
            raise line.refuse(problem)

    def _filled_in(self, line: Line) -> str:
        if not (value := line.filled_in(self._node)):
            raise line.refuse("expected a value, got nothing")
        return value

    def _add(self, method: Definition, takes: DriverParameters, found: _Sorted, given: Mapping[str, str], giver: str) -> None:
        """What the node itself says of its machine. A plug that is written down as another one is somebody else's (S9)."""
        for name, value in given.items():
            written = found.plain.setdefault(name, value)
            if written != value:
                problem = f"contradicts {giver}, which says {value!r}: got {written!r}"
                raise found.lines[name].refuse(problem) if name in found.lines else method.refuse(f"{name}: {problem}")
            if name not in found.lines:
                found.written[name] = value
            found.identified |= name in takes.identifying

    def _refuse_unidentified(self, method: Definition, takes: DriverParameters, found: _Sorted) -> None:
        if found.identified:
            return
        raise method.refuse(
            f"nothing identifies the device of Node/{self._node.name}: expected one of {', '.join(sorted(takes.identifying))} in "
            "an object of this node alone, or with {{ .NodeName }} in its value"
        )

    def _credentials(self, method: Definition, driver: str, takes: DriverParameters, found: _Sorted) -> tuple[CredentialRef, ...]:
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
            secret = f"Secret/{self._shelf.namespace}/{SECRET_PREFIX}{method.name}-{self._node.name}"
            raise method.refuse(f"{driver} needs {', '.join(missing)}: expected them in {secret}{unseen}")
        references = [
            CredentialRef(kind=CredentialKind.CONFIG_MAP, namespace=namespace, name=name, properties=data_key, keys=keys)
            for (namespace, name, data_key), keys in inline.items()
        ]
        references += [CredentialRef(kind=kind, namespace=self._shelf.namespace, keys=keys) for kind, keys in elsewhere.items()]
        return (*references, *([from_secret] if from_secret is not None else []))

    def _secret(self, method: Definition, driver: str, takes: DriverParameters) -> tuple[CredentialRef | None, str]:
        """The Secret made for this method and node, and what to add to a message where it can't be seen."""
        if not takes.secret and not takes.any_name:
            return None, ""
        name = f"{SECRET_PREFIX}{method.name}-{self._node.name}"
        keys = self._shelf.secret_keys(name)
        if isinstance(keys, Forbidden):
            self._findings.warn(f"Secret/{self._shelf.namespace}/{name}", "metadata", f"it can't be looked for: {keys.reason}")
            return None, f", which can't be looked for: {keys.reason}"
        if keys is None:
            return None, ""
        subject = f"Secret/{self._shelf.namespace}/{name}"
        taken = {canonical(driver, key): key for key in keys}
        for parameter, key in taken.items():
            if parameter in takes.identifying or not_for_configuration(driver, parameter) is not None:
                self._findings.refuse(subject, f"data[{key}]", "is no credential: expected it in the method's own lines")
            elif parameter not in takes.secret and not takes.any_name:
                self._findings.refuse(subject, f"data[{key}]", f"expected one of {_listed(takes.secret)}")
        if not taken:
            self._findings.refuse(subject, "data", f"expected one of {_listed(takes.secret)}, got nothing")
        return CredentialRef(kind=CredentialKind.SECRET, namespace=self._shelf.namespace, name=name, keys=taken), ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
