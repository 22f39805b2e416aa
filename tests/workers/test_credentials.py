"""Credentials of power devices: read at the moment of use, refused by name and never by value (S12)."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.refusals import ObjectNotFound
from activities.errors import ErrorType
from activities.keyring import Keyring
from activities.worker_clock import left_to_others
from policy.fence.credential_hosts import HOSTS_ANNOTATION
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice
from policy.fence.power import InsecureDevices
from workers.configuration.credentials import ClusterObjects, MountedObjects, WorkerCredentials

BMC = CredentialRef(name="bmc", namespace="nodewarden", keys={"username": "username", "password": "password"})
WHOLE = CredentialRef(name="bmc", namespace="nodewarden")


def bmc_with(*references: CredentialRef, **parameters: str) -> PowerDevice:
    chosen = parameters or {"ip": "10.0.0.7"}
    return PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623", parameters=chosen, credentials=references)


class Api:
    """One Secret behind a connection's `get`."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.data = data
        self.hosts: str | None = None
        self.paths: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.paths.append(path)
        if self.data is None:
            raise ObjectNotFound("not there", type=ErrorType.NOT_FOUND.value)
        annotations = {"annotations": {HOSTS_ANNOTATION: self.hosts}} if self.hosts is not None else {}
        return {"metadata": annotations, "data": self.data}


VARIABLE = "NODEWARDEN_CREDENTIAL_BMC"
NAMED: dict[str, Any] = {"hosts": ("10.0.0.0/24",), "variables": {"prod": (VARIABLE, "NODEWARDEN_CREDENTIAL_MISSING")}}
"""Settings that name hosts, and variables for a cluster."""


def secrets(data: dict[str, str] | None) -> WorkerCredentials:
    return cluster(Api(data))


def cluster(api: Api, *, directory: Path | None = None, environment: dict[str, str] | None = None) -> WorkerCredentials:
    objects = ClusterObjects({"prod": cast("ClusterConnection", api)})
    return WorkerCredentials(objects, directory=directory, environment=environment, **NAMED)


def mounted_at(root: Path) -> WorkerCredentials:
    return WorkerCredentials(MountedObjects(root), directory=root)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_secret_is_read_from_the_cluster_of_the_episode() -> None:
    api = Api({"username": encoded("admin"), "password": encoded(" pa:ss\n")})
    found = await cluster(api).read("prod", bmc_with(BMC))
    assert (found.username, found.password) == ("admin", " pa:ss")  # as from a mount: the file's last line end is none of it
    assert api.paths == ["/api/v1/namespaces/nodewarden/secrets/bmc"]


async def test_a_secret_of_another_cluster_under_the_same_name_is_not_read() -> None:
    """S9, S40: its password is another one's, and one wrong login too many closes an account."""

    async def leaves_it_to_others(name: str) -> None:
        raise left_to_others(f"{name} is another cluster here")

    api = Api({"username": encoded("admin"), "password": encoded("theirs")})
    objects = ClusterObjects({"prod": cast("ClusterConnection", api)}, require_meant=leaves_it_to_others)
    with pytest.raises(ApplicationError, match="prod is another cluster here"):
        await WorkerCredentials(objects).read("prod", bmc_with(BMC))
    assert api.paths == []


async def test_a_rotated_password_holds_from_the_next_act_on() -> None:
    api = Api({"username": encoded("admin"), "password": encoded("old")})
    source = cluster(api)
    await source.read("prod", bmc_with(BMC))
    api.data = {"username": encoded("admin"), "password": encoded("new")}
    assert (await source.read("prod", bmc_with(BMC))).password == "new"


@pytest.mark.parametrize(
    ("data", "expectation"),
    [
        (None, "Secret/nodewarden/bmc does not exist in cluster 'prod'"),
        ({"username": encoded("admin")}, "expected the key 'password', it has username"),
        ({"username": encoded("admin"), "password": "no base64: hunter2"}, "'password' is not text in base64"),
        ({"username": encoded("admin"), "password": base64.b64encode(b"\xff\xfe").decode()}, "'password' is not text"),
    ],
)
async def test_an_unusable_secret_is_refused_by_name(data: dict[str, str] | None, expectation: str) -> None:
    with pytest.raises(ApplicationError) as refusal:
        await secrets(data).read("prod", bmc_with(BMC))
    assert refusal.value.type == ErrorType.INVALID_CONFIG
    assert refusal.value.non_retryable
    assert expectation in refusal.value.message
    assert "hunter2" not in refusal.value.message


async def test_a_worker_that_does_not_know_the_cluster_says_which_it_knows() -> None:
    with pytest.raises(ApplicationError, match="knows the clusters prod, not 'staging'"):
        await secrets({}).read("staging", bmc_with(BMC))


async def test_a_site_reads_its_credentials_from_a_mount(tmp_path: Path) -> None:
    mounted = tmp_path / "nodewarden" / "bmc"
    mounted.mkdir(parents=True)
    (mounted / "username").write_text("admin\n", encoding="utf-8")
    (mounted / "password").write_text("hunter2", encoding="utf-8")
    found = await mounted_at(tmp_path).read("prod", bmc_with(BMC))
    assert (found.username, found.password) == ("admin", "hunter2")


@pytest.mark.parametrize("name", ["../outside", "missing", "/etc"])
async def test_a_crafted_or_missing_name_leads_nowhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").mkdir()
    for key in ("username", "password"):
        (tmp_path / "outside" / key).write_text("hunter2", encoding="utf-8")
    root = tmp_path / "mount"
    (root / "nodewarden").mkdir(parents=True)
    with pytest.raises(ApplicationError) as refusal:
        await mounted_at(root).read("prod", bmc_with(CredentialRef(name=f"{name}", namespace="nodewarden")))
    assert refusal.value.type == ErrorType.INVALID_CONFIG
    assert "hunter2" not in refusal.value.message


@pytest.mark.parametrize("name", ["..", "a/b", "a?b", "A", ""])
async def test_what_is_no_objects_name_is_not_asked_for(name: str) -> None:
    """S41: a request's reference is not a part of a path until it is known to be a name."""

    class Nobody:
        async def data(self, cluster: str, reference: CredentialRef) -> Mapping[str, str]:
            raise AssertionError

    with pytest.raises(ApplicationError, match="expected the name of a Secret"):
        await WorkerCredentials(Nobody()).read("prod", bmc_with(CredentialRef(name=name, namespace="nodewarden")))


async def test_a_later_reference_wins_parameter_by_parameter() -> None:
    environment = {VARIABLE: "newer"}
    later = CredentialRef(kind=CredentialKind.ENVIRONMENT, keys={"password": VARIABLE})
    api = Api({"username": encoded("admin"), "password": encoded("older")})
    found = await cluster(api, environment=environment).read("prod", bmc_with(BMC, later))
    assert found.values == {"username": "admin", "password": "newer"}


async def test_a_line_of_a_config_map_is_read_where_the_demo_writes_its_passwords() -> None:
    reference = CredentialRef(
        kind=CredentialKind.CONFIG_MAP,
        name="fence-template-eaton-pdu",
        namespace="default",
        keys={"password": "passwd"},
        properties="template.properties",
    )
    api = Api({"template.properties": "agent_name=fence_eaton_snmp\npasswd=ab=c==\n"})
    assert (await cluster(api).read("prod", bmc_with(reference))).values == {"password": "ab=c=="}
    assert api.paths == ["/api/v1/namespaces/default/configmaps/fence-template-eaton-pdu"]


async def test_a_file_is_read_inside_the_directory_of_credentials_only(tmp_path: Path) -> None:
    """S12: who may write a fence configuration gets no other file of the worker sent anywhere."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "bmc").write_text("hunter2\n", encoding="utf-8")
    (tmp_path / "outside").write_text("hunter3", encoding="utf-8")
    source = cluster(Api({}), directory=tmp_path / "inside")
    found = await source.read("prod", bmc_with(CredentialRef(kind=CredentialKind.FILE, keys={"password": "bmc"})))
    assert found.password == "hunter2"
    for path in ("../outside", str(tmp_path / "outside"), "missing"):
        with pytest.raises(ApplicationError) as refusal:
            await source.read("prod", bmc_with(CredentialRef(kind=CredentialKind.FILE, keys={"password": path})))
        assert refusal.value.type == ErrorType.INVALID_CONFIG
        assert "hunter" not in refusal.value.message
    with pytest.raises(ApplicationError, match="has no directory for credentials"):
        await cluster(Api({})).read("prod", bmc_with(CredentialRef(kind=CredentialKind.FILE, keys={"password": "bmc"})))


@pytest.mark.parametrize("name", ["TEMPORAL_API_KEY", "NODEWARDEN_CREDENTIAL_MISSING"])
async def test_only_variables_made_for_it_may_be_named(name: str) -> None:
    """S12."""
    source = cluster(Api({}), environment={"TEMPORAL_API_KEY": "hunter2"})
    with pytest.raises(ApplicationError, match=f"env:{name}") as refusal:
        await source.read("prod", bmc_with(CredentialRef(kind=CredentialKind.ENVIRONMENT, keys={"password": name})))
    assert "hunter2" not in refusal.value.message


async def test_a_variable_is_one_clusters(tmp_path: Path) -> None:
    """S40: who may write configuration in one cluster names no password of another one's devices."""
    connection = cast("ClusterConnection", Api({}))
    objects = ClusterObjects({"prod": connection, "lab": connection})
    source, reference = (
        WorkerCredentials(objects, environment={VARIABLE: "hunter2"}, **NAMED),
        CredentialRef(kind=CredentialKind.ENVIRONMENT, namespace="nodewarden", keys={"password": VARIABLE}),
    )
    assert (await source.read("prod", bmc_with(reference))).password == "hunter2"
    with pytest.raises(ApplicationError, match=r"worker\.credential_variables names for the cluster 'lab'") as refusal:
        await source.read("lab", bmc_with(reference))
    assert "hunter2" not in refusal.value.message


async def test_a_file_is_below_the_namespace_of_what_names_it(tmp_path: Path) -> None:
    """S40, as a Secret is: also for a request that has got past the reader of the configuration."""
    for namespace in ("nodewarden", "metal"):
        (tmp_path / namespace).mkdir()
        (tmp_path / namespace / "bmc").write_text("hunter2", encoding="utf-8")
    source = WorkerCredentials(MountedObjects(tmp_path), directory=tmp_path, **NAMED)

    def of(namespace: str) -> CredentialRef:
        return CredentialRef(kind=CredentialKind.FILE, namespace=namespace, keys={"password": "nodewarden/bmc"})

    assert (await source.read("prod", bmc_with(of("nodewarden")))).password == "hunter2"
    with pytest.raises(ApplicationError, match="expected a path below metal/"):
        await source.read("prod", bmc_with(of("metal")))


@pytest.mark.parametrize("kind", [CredentialKind.FILE, CredentialKind.ENVIRONMENT])
async def test_files_and_variables_go_nowhere_unless_settings_name_hosts(kind: CredentialKind, tmp_path: Path) -> None:
    """S40: whoever may write a configuration chooses the address, and no object has to be there that could say for whom it is."""
    (tmp_path / "bmc").write_text("hunter2", encoding="utf-8")
    reference = CredentialRef(kind=kind, keys={"password": "bmc" if kind is CredentialKind.FILE else VARIABLE})
    options: dict[str, Any] = {**NAMED, "directory": tmp_path, "environment": {VARIABLE: "hunter2"}}
    with pytest.raises(ApplicationError, match=r"for the hosts none.*worker.credential_hosts") as refusal:
        await WorkerCredentials(MountedObjects(tmp_path), **options | {"hosts": ()}).read("prod", bmc_with(reference))
    assert "hunter2" not in refusal.value.message
    everywhere = WorkerCredentials(MountedObjects(tmp_path), **options | {"hosts": ("*",)})
    assert (await everywhere.read("prod", bmc_with(reference))).password == "hunter2"


async def test_the_keys_of_the_deployment_are_sent_to_no_device(tmp_path: Path) -> None:
    """S40, S42: whoever may name Secrets there could have them sent to a BMC of his own, and license himself."""
    key = "k" * 40
    withheld = Keyring([key.encode()]).is_in
    api = Api({"signing-keys": encoded(f"# newest first\n{key}\n")})
    whole, one = (
        CredentialRef(name="keys", namespace="nodewarden"),
        CredentialRef(name="keys", namespace="nodewarden", keys={"password": "signing-keys"}),
    )
    (tmp_path / "keys").write_text(f"{key}\n")
    file = CredentialRef(kind=CredentialKind.FILE, keys={"password": "keys"})
    objects = ClusterObjects({"prod": cast("ClusterConnection", api)})
    for source, reference in ((objects, whole), (objects, one), (MountedObjects(tmp_path), file)):
        with pytest.raises(ApplicationError, match="for no device") as refused:
            await WorkerCredentials(source, directory=tmp_path, withheld=withheld, **NAMED).read("prod", bmc_with(reference))
        assert key not in refused.value.message


@pytest.mark.parametrize("hosts", ["10.0.0.7", "10.0.0.0/24", "10.0.0.9, 10.0.0.7", "*"])
async def test_a_secret_goes_to_the_hosts_that_it_is_for(hosts: str) -> None:
    api = Api({"username": encoded("admin"), "password": encoded("hunter2")})
    api.hosts = hosts
    assert (await cluster(api).read("prod", bmc_with(BMC))).password == "hunter2"


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("10.0.0.8", "it is for the hosts 10.0.0.8, not for 10.0.0.7"),
        ("10.0.1.0/24 *.bmc.example.com", "not for 10.0.0.7"),
        ("", "it is for the hosts none, not for 10.0.0.7"),
        ("10.0.0.0/24/7", "expected names, *.names, addresses or networks"),
    ],
)
async def test_a_device_elsewhere_is_refused_by_name_before_any_value_is_used(hosts: str, words: str) -> None:
    """S40."""
    api = Api({"username": "not even base64", "password": "hunter2"})
    api.hosts = hosts
    with pytest.raises(ApplicationError) as refused:
        await cluster(api).read("prod", bmc_with(BMC))
    assert (refused.value.type, words in refused.value.message) == (ErrorType.INVALID_CONFIG, True), refused.value.message
    assert ("Secret/nodewarden/bmc" in refused.value.message, "hunter2" in refused.value.message) == (True, False)


@pytest.mark.parametrize("kind", ["secret", "mounted", "file", "environment"])
async def test_a_secret_without_a_host_goes_where_the_setting_says(kind: str, tmp_path: Path) -> None:
    """S40: files and variables carry no annotation."""
    (tmp_path / "nodewarden" / "bmc").mkdir(parents=True)
    for place in ("nodewarden/bmc/username", "nodewarden/bmc/password", "bmc"):
        (tmp_path / place).write_text("hunter2", encoding="utf-8")
    reference = {
        "file": CredentialRef(kind=CredentialKind.FILE, keys={"password": "bmc"}),
        "environment": CredentialRef(kind=CredentialKind.ENVIRONMENT, keys={"password": VARIABLE}),
    }.get(kind, BMC)
    api = Api({"username": encoded("admin"), "password": encoded("hunter2")})
    objects = MountedObjects(tmp_path) if kind == "mounted" else ClusterObjects({"prod": cast("ClusterConnection", api)})
    source = WorkerCredentials(objects, directory=tmp_path, environment={VARIABLE: "hunter2"}, **NAMED)
    assert (await source.read("prod", bmc_with(reference))).password == "hunter2"
    with pytest.raises(ApplicationError, match=r"not for 198.51.100.7 \(the worker's setting worker.credential_hosts\)"):
        await source.read("prod", bmc_with(reference, ip="198.51.100.7"))


async def test_a_device_where_others_could_listen_is_refused_before_its_secret_is_read_told_of_once_or_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S40: `worker.insecure_devices`."""
    api = Api({"username": encoded("admin"), "password": encoded("hunter2")})
    objects = ClusterObjects({"prod": cast("ClusterConnection", api)})
    parameters = {"ip": "10.0.0.7", "ssl-insecure": "true"}
    device = PowerDevice(driver="redfish", endpoint="redfish://10.0.0.7:443", parameters=parameters, credentials=(BMC,))

    with pytest.raises(
        ApplicationError, match=r"redfish://10\.0\.0\.7:443: .*\(ssl-insecure\): .*worker\.insecure_devices"
    ) as refused:
        await WorkerCredentials(objects, insecure=InsecureDevices.REFUSE).read("prod", device)
    assert (refused.value.type, api.paths) == (ErrorType.INVALID_CONFIG, [])
    assert (await WorkerCredentials(objects, insecure=InsecureDevices.REFUSE).read("prod", bmc_with(BMC))).password == "hunter2"

    for choice, told in ((InsecureDevices.WARN, 1), (InsecureDevices.ALLOW, 0)):
        caplog.clear()
        source = WorkerCredentials(objects, insecure=choice)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert (await source.read("prod", device)).password == "hunter2"
        assert [record.getMessage().startswith(device.endpoint) for record in caplog.records] == [True] * told


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "of a cluster"])
@pytest.mark.parametrize("says", ["", "annotation", "setting"])
async def test_s40_a_secret_without_hosts_is_not_sent_to_one_that_it_never_went_to(
    says: str, tmp_path: Path, *, mounted: bool
) -> None:
    """Whoever may write a configuration changes an address, and is sent the password. Who names the hosts has decided."""
    api = Api({"password": encoded("secret")})
    api.hosts = "10.0.0.0/24" if says == "annotation" else None
    (tmp_path / "nodewarden" / "bmc").mkdir(parents=True)
    (tmp_path / "nodewarden" / "bmc" / "password").write_text("secret")
    objects = MountedObjects(tmp_path) if mounted else ClusterObjects({"prod": cast("ClusterConnection", api)})
    credentials = WorkerCredentials(objects, hosts=("10.0.0.0/24",) if says == "setting" else ())
    device = replace(bmc_with(WHOLE), strange_to=("Secret/nodewarden/bmc",))
    assert (await credentials.read("prod", bmc_with(WHOLE))).password == "secret"
    if says and not (mounted and says == "annotation"):
        assert (await credentials.read("prod", device)).password == "secret"
        return
    with pytest.raises(ApplicationError, match=r"only sent to other hosts than 10.0.0.7; .* --admit") as error:
        await credentials.read("prod", device)
    assert error.value.type == ErrorType.INVALID_CONFIG
    assert "secret" not in error.value.message
