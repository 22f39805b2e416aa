"""Credentials of power devices: read at the moment of use, refused by name and never by value (S12)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.connection import ClusterConnection
from activities.cluster.refusals import ObjectNotFound
from activities.errors import ErrorType
from policy.plan import SecretRef
from workers.credentials import ClusterSecrets, MountedSecrets

BMC = SecretRef(name="bmc", namespace="nodewarden")


class Api:
    """One Secret behind a connection's `get`."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.data = data
        self.paths: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.paths.append(path)
        if self.data is None:
            raise ObjectNotFound("not there", type=ErrorType.NOT_FOUND.value)
        return {"data": self.data}


def secrets(data: dict[str, str] | None) -> ClusterSecrets:
    return ClusterSecrets({"prod": cast("ClusterConnection", Api(data))})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_secret_is_read_from_the_cluster_of_the_episode() -> None:
    api = Api({"username": encoded("admin"), "password": encoded("pa:ss\n")})
    found = await ClusterSecrets({"prod": cast("ClusterConnection", api)}).read("prod", BMC)
    assert (found.username, found.password) == ("admin", "pa:ss\n")
    assert api.paths == ["/api/v1/namespaces/nodewarden/secrets/bmc"]


async def test_a_rotated_password_holds_from_the_next_act_on() -> None:
    api = Api({"username": encoded("admin"), "password": encoded("old")})
    source = ClusterSecrets({"prod": cast("ClusterConnection", api)})
    await source.read("prod", BMC)
    api.data = {"username": encoded("admin"), "password": encoded("new")}
    assert (await source.read("prod", BMC)).password == "new"


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
        await secrets(data).read("prod", BMC)
    assert refusal.value.type == ErrorType.INVALID_CONFIG
    assert refusal.value.non_retryable
    assert expectation in refusal.value.message
    assert "hunter2" not in refusal.value.message


async def test_a_worker_that_does_not_know_the_cluster_says_which_it_knows() -> None:
    with pytest.raises(ApplicationError, match="knows the clusters prod, not 'staging'"):
        await secrets({}).read("staging", BMC)


async def test_a_site_reads_its_credentials_from_a_mount(tmp_path: Path) -> None:
    mounted = tmp_path / "nodewarden" / "bmc"
    mounted.mkdir(parents=True)
    (mounted / "username").write_text("admin\n", encoding="utf-8")
    (mounted / "password").write_text("hunter2", encoding="utf-8")
    found = await MountedSecrets(tmp_path).read("prod", BMC)
    assert (found.username, found.password) == ("admin", "hunter2")


async def test_a_volume_that_kubernetes_mounts_is_read_through_its_links(tmp_path: Path) -> None:
    mounted = tmp_path / "nodewarden" / "bmc"
    (mounted / "..data").mkdir(parents=True)
    for key in ("username", "password"):
        (mounted / "..data" / key).write_text(key, encoding="utf-8")
        (mounted / key).symlink_to(mounted / "..data" / key)
    assert (await MountedSecrets(tmp_path).read("prod", BMC)).password == "password"


@pytest.mark.parametrize("name", ["../outside", "missing", "/etc"])
async def test_a_crafted_or_missing_name_leads_nowhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").mkdir()
    for key in ("username", "password"):
        (tmp_path / "outside" / key).write_text("hunter2", encoding="utf-8")
    root = tmp_path / "mount"
    (root / "nodewarden").mkdir(parents=True)
    with pytest.raises(ApplicationError) as refusal:
        await MountedSecrets(root).read("prod", SecretRef(name=f"{name}", namespace="nodewarden"))
    assert refusal.value.type == ErrorType.INVALID_CONFIG
    assert "hunter2" not in refusal.value.message
