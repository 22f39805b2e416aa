"""Where power workers find the credentials that plans only refer to: the cluster's API, mounted files, or their own environment.

Read at the moment of use and kept nowhere (S12): a rotated password holds from the next act on. Refusals name the object and the
key, never a value. References come from objects that people write, so `file` reaches only below the namespace of what names it,
within the mounted directory, `env` only variables that the settings name for that cluster, and either only hosts that they name:
who may write a fence configuration must not be able to send a worker's own secrets to an address of his choice (S40).
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from activities.errors import ErrorType, failure
from activities.power.driver import DeviceCredentials
from policy.fence.credential_hosts import EVERYWHERE, HOSTS_ANNOTATION, annotated, hosts_of, hosts_written, not_for
from policy.fence.plan import ON_THE_WORKER, CredentialKind, problem_of_place
from policy.fence.power import InsecureDevices, insecurity_of
from policy.values.errors import PolicyError
from policy.values.fields import parse_properties

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection
    from policy.fence.plan import CredentialRef, PowerDevice

_log = logging.getLogger(__name__)

MOST_WARNED = 10_000
"""Devices of which is remembered that the log has told of them."""

Admission = Callable[[str | None], None]
"""Told what an object says of the hosts that it is for, None where it says nothing; raises where it is not for the device."""


class ObjectSource(Protocol):
    """Where the data of Secrets and ConfigMaps is read."""

    async def data(self, cluster: str, reference: CredentialRef, admit: Admission) -> Mapping[str, str]:
        """All keys with their values, or as many as are asked for, once `admit` lets them. Refuses an object that is missing."""


class WorkerCredentials:
    """Every kind of reference. objects: the API or a mount. directory: where `file:` may lead, None: nowhere. variables: which
    `env:` may name, by cluster. withheld: whether a value is for no device at all. hosts: the hosts for credentials that do
    not say so themselves; where these are not set either, objects go everywhere, files and variables nowhere. insecure:
    whether they go to devices where others could listen."""

    def __init__(
        self,
        objects: ObjectSource,
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        withheld: Callable[[str], bool] = lambda _value: False,
        hosts: Collection[str] = (),
        variables: Mapping[str, Collection[str]] = {},
        insecure: InsecureDevices = InsecureDevices.WARN,
    ) -> None:
        self._objects = objects
        self._variables = variables
        self._insecure = insecure
        self._warned: set[tuple[str, str]] = set()
        self._hosts = hosts
        self._withheld = withheld
        self._directory = directory
        self._environment = os.environ if environment is None else environment

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        """The credentials now; a later reference wins, parameter by parameter. Refused by name where one is not for the device's
        host (S40), and before anything is read where the device is too insecure for this worker."""
        self._judge_insecurity(device)
        values: dict[str, str] = {}
        for reference in device.credentials:
            found = await self._values(cluster, reference, self._admission(device, reference))
            if any(map(self._withheld, found.values())):
                problem = "it holds keys of this deployment, which are for no device"
                raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject}: {problem}")
            values |= found
        return DeviceCredentials(values=values)

    def _judge_insecurity(self, device: PowerDevice) -> None:
        how = insecurity_of(device) if self._insecure is not InsecureDevices.ALLOW else ""
        if not how:
            return
        if self._insecure is InsecureDevices.REFUSE:
            expected = "expected TLS that is verified, for this worker refuses anything else (setting worker.insecure_devices)"
            raise failure(
                ErrorType.INVALID_CONFIG, f"{device.endpoint}: it would be spoken to by {how}: {expected}; nothing was sent"
            )
        if (device.endpoint, how) in self._warned:
            return
        if len(self._warned) >= MOST_WARNED:
            self._warned.clear()
        self._warned.add((device.endpoint, how))
        _log.warning("%s is spoken to by %s: others could listen or answer (worker.insecure_devices)", device.endpoint, how)

    def _admission(self, device: PowerDevice, reference: CredentialRef) -> Admission:
        def admit(says: str | None) -> None:
            try:
                unsaid = () if reference.kind in ON_THE_WORKER else (EVERYWHERE,)
                allowed = (self._hosts or unsaid) if says is None else hosts_written(says)
            except ValueError as error:
                problem = f"its annotation {HOSTS_ANNOTATION}: {error}"
            else:
                problem = not_for(hosts_of(device), allowed)
            where = HOSTS_ANNOTATION if says is not None else "the worker's setting worker.credential_hosts"
            if says is None and not self._hosts and reference.subject in device.strange_to:
                problem = f"it was only sent to other hosts than {', '.join(sorted(hosts_of(device))) or 'this device'}; expected"
                problem += " its hosts to be named, or `nodewarden fence check --node NODE --admit` once this one is right"
                where = f"{HOSTS_ANNOTATION}, worker.credential_hosts"
            if problem:
                raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject}: {device.endpoint}: {problem} ({where})")

        return admit

    async def _values(self, cluster: str, reference: CredentialRef, admit: Admission) -> Mapping[str, str]:
        if reference.kind in ON_THE_WORKER:
            admit(None)
        match reference.kind:
            case CredentialKind.FILE:
                return {name: self._file(path, reference.namespace) for name, path in reference.keys.items()}
            case CredentialKind.ENVIRONMENT:
                return {name: self._variable(cluster, variable) for name, variable in reference.keys.items()}
            case CredentialKind.SECRET | CredentialKind.CONFIG_MAP:
                if (problem := problem_of_place(reference.kind, reference.name)) is not None:
                    raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject}: {problem}")
                data = await self._objects.data(cluster, reference, admit)
                if reference.properties:
                    data = _properties(data, reference)
                if not reference.keys:
                    return data
                return {name: _value(data, key, reference) for name, key in reference.keys.items()}

    def _file(self, path: str, namespace: str) -> str:
        if self._directory is None:
            problem = "this worker has no directory for credentials (setting secrets_directory)"
            raise failure(ErrorType.INVALID_CONFIG, f"file:{path}: {problem}")
        if (problem := problem_of_place(CredentialKind.FILE, path, namespace)) is not None:
            raise failure(ErrorType.INVALID_CONFIG, f"file:{path}: {problem}")
        return _read_inside(self._directory, Path(path), f"file:{path}")

    def _variable(self, cluster: str, name: str) -> str:
        if name not in self._variables.get(cluster, ()):
            problem = f"expected a variable that worker.credential_variables names for the cluster {cluster!r}"
            raise failure(ErrorType.INVALID_CONFIG, f"env:{name}: {problem}")
        if name not in self._environment:
            raise failure(ErrorType.INVALID_CONFIG, f"env:{name}: the power worker's environment has no such variable")
        return self._environment[name]


class ClusterObjects:
    """Secrets and ConfigMaps over the API of the cluster that the episode is in. require_meant: raises where what we call by that
    name is another cluster: its Secret of that name is another password."""

    def __init__(
        self, connections: Mapping[str, ClusterConnection], *, require_meant: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._connections = connections
        self._require_meant = require_meant

    async def data(self, cluster: str, reference: CredentialRef, admit: Admission) -> Mapping[str, str]:
        """All keys and values of the object now."""
        from activities.cluster.api.paths import CONFIG_MAPS, SECRETS
        from activities.cluster.api.refusals import ObjectNotFound

        connection = self._connections.get(cluster)
        if connection is None:
            known = ", ".join(sorted(self._connections)) or "none"
            problem = f"this worker knows the clusters {known}, not {cluster!r}"
            raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject}: {problem}")
        if self._require_meant is not None:
            await self._require_meant(cluster)
        secret = reference.kind is CredentialKind.SECRET
        path = (SECRETS if secret else CONFIG_MAPS).path(reference.name, namespace=reference.namespace)
        try:
            found = await connection.get(path)
        except ObjectNotFound:
            raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject} does not exist in cluster {cluster!r}") from None
        admit(annotated((found.get("metadata") or {}).get("annotations")))
        values = found.get("data") or {}
        wanted = set(reference.keys.values()) or set(values)
        if not secret:
            return {key: str(value) for key, value in values.items()}
        return {key: _decoded(value, key, reference) for key, value in values.items() if key in wanted}


class MountedObjects:
    """Objects as files, `<directory>/<namespace>/<name>/<key>`: a mounted volume at a site without an API for its workers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def data(self, cluster: str, reference: CredentialRef, admit: Admission) -> Mapping[str, str]:  # noqa: ARG002 - one mount
        """The keys that are asked for, or every file of the object's folder. Files carry no annotation."""
        admit(None)
        folder = Path(reference.namespace, reference.name)
        keys = [reference.properties] if reference.properties else list(reference.keys.values())
        if not keys:
            _read_inside(self._directory, folder, reference.subject, folder=True)
            keys = [each.name for each in (self._directory / folder).iterdir() if not each.name.startswith("..")]
        return {key: _read_inside(self._directory, folder / key, f"{reference.subject}: {key!r}") for key in keys}


def _read_inside(directory: Path, relative: Path, what: str, *, folder: bool = False) -> str:
    """The text of a file inside the directory. Names come from objects that people write: a crafted one must not lead out."""
    root = directory.resolve()
    path = root / relative
    if not path.absolute().is_relative_to(root) or ".." in path.parts:
        raise failure(ErrorType.INVALID_CONFIG, f"{what} is no name inside {root}")
    if folder:
        if not path.is_dir():
            raise failure(ErrorType.INVALID_CONFIG, f"{what}: {path} cannot be read: it is not there")
        return ""
    try:
        return _without_line_end(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise failure(ErrorType.INVALID_CONFIG, f"{what}: {path} cannot be read: {type(error).__name__}") from None


def _without_line_end(text: str) -> str:
    """Editors end a file with one, and `kubectl create secret --from-file` takes it along: no device would take that password."""
    return text.rstrip("\r\n")


def _value(data: Mapping[str, str], key: str, reference: CredentialRef) -> str:
    if key not in data:
        keys = ", ".join(sorted(data)) or "none"
        raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject}: expected the key {key!r}, it has {keys}")
    return data[key]


def _properties(data: Mapping[str, str], reference: CredentialRef) -> Mapping[str, str]:
    text = _value(data, reference.properties, reference)
    try:
        return parse_properties(text, subject=reference.subject, field=f"data[{reference.properties}]")
    except PolicyError as error:
        raise failure(ErrorType.INVALID_CONFIG, str(error)) from None


def _decoded(value: object, key: str, reference: CredentialRef) -> str:
    try:
        return _without_line_end(base64.b64decode(str(value), validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise failure(ErrorType.INVALID_CONFIG, f"{reference.subject}: {key!r} is not text in base64") from None
