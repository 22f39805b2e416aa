"""Where a deployment's keys come from: named, made once by whoever finds none, the same for all."""

from __future__ import annotations

import asyncio
import base64
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.refusals import ObjectConflict, ObjectNotFound
from activities.errors import ErrorType, failure
from activities.keyring import Keyring
from policy.fence.plan import CredentialRef, PowerDevice
from workers import deployment_keys
from workers.configuration.clusters import ClusterSettings
from workers.configuration.settings import Settings
from workers.deployment_keys import keyring_of, new_keys
from workers.errors import SettingsError

CLUSTERS = {"prod": ClusterSettings(in_cluster=True), "edge": ClusterSettings(context="edge")}
SECRET = "nodewarden/nodewarden-signing-keys"


class Api:
    """One Secret, with the API server's rule that a write names the version it has read."""

    def __init__(self, data: dict[str, str] | None = None, *, there: bool = True) -> None:
        self.secret: dict[str, Any] | None = {"metadata": {"resourceVersion": "1"}, "data": data} if there else None
        self.away = 0
        self.paths: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.paths.append(path)
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise failure(ErrorType.UNREACHABLE, "connection refused")
        if self.secret is None:
            raise ObjectNotFound("Secret is not there", type=ErrorType.NOT_FOUND.value)
        return {**self.secret}

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self.secret is not None
        await asyncio.sleep(0)
        version = self.secret["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ObjectConflict("somebody was faster", type=ErrorType.TRANSIENT.value)
        self.secret = {**body, "metadata": {"resourceVersion": f"{version}1"}}
        return self.secret


def settings(state: Path, **worker: Any) -> Settings:
    return Settings.model_validate({"state": state, "worker": worker})


async def codes(settings_: Settings, api: Api | None = None, *, times: int = 1) -> list[str]:
    """What as many workers sign the same fact with."""
    connections = {"prod": cast("ClusterConnection", api)} if api is not None else {}
    keyrings = await asyncio.gather(*(keyring_of(settings_, CLUSTERS, connections) for _ in range(times)))
    return [each.sign("device", "a fact") for each in keyrings]


async def test_a_file_is_read_comments_and_all(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# newest first\n{new_keys()}\n  {new_keys()}")
    (before,) = await codes(settings(tmp_path, signing_keys_file=file))
    file.write_text(f"{new_keys()}{file.read_text()}")
    keyring = await keyring_of(settings(tmp_path, signing_keys_file=file), {}, {})
    assert keyring.sign("device", "a fact") != before
    assert keyring.accepts(before, "device", "a fact")


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"too-short\n", b"\xff" * 40])
async def test_a_file_without_a_usable_key_is_refused_by_its_setting(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"worker\.signing_keys_file"):
        await codes(settings(tmp_path, signing_keys_file=file))
    with pytest.raises(SettingsError, match=r"worker\.signing_keys_file"):
        await codes(settings(tmp_path, signing_keys_file=tmp_path / "missing"))


async def test_without_a_setting_a_worker_makes_its_own_once_for_itself_only(tmp_path: Path) -> None:
    first = await codes(settings(tmp_path / "state"), times=5)
    again = await codes(settings(tmp_path / "state"))
    assert len({*first, *again}) == 1
    made = tmp_path / "state" / "signing-keys"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert [each.name for each in made.parent.iterdir()] == ["signing-keys"]
    assert await codes(settings(tmp_path / "other")) != again


async def test_its_own_is_refused_where_others_can_read_it(tmp_path: Path) -> None:
    await codes(settings(tmp_path))
    (tmp_path / "signing-keys").chmod(0o644)
    with pytest.raises(SettingsError, match="only its owner can read"):
        await codes(settings(tmp_path))


async def test_an_empty_secret_is_filled_by_one_of_those_who_find_it_so() -> None:
    api = Api()
    found = await codes(settings(Path("/nowhere"), signing_keys_secret=SECRET), api, times=5)
    assert len(set(found)) == 1
    assert api.secret is not None
    assert len(base64.b64decode(api.secret["data"]["signing-keys"]).strip()) == 64
    assert set(api.paths) == {"/api/v1/namespaces/nodewarden/secrets/nodewarden-signing-keys"}
    assert await codes(settings(Path("/nowhere"), signing_keys_secret=SECRET), api) == found[:1]


async def test_an_api_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_keys, "AGAIN", 0.01)
    api = Api()
    api.away = 3
    assert await codes(settings(Path("/nowhere"), signing_keys_secret=SECRET), api)


@pytest.mark.parametrize(
    "api",
    [Api(there=False), Api({"signing-keys": base64.b64encode(b"short").decode()}), Api({"signing-keys": "%%%"}), None],
    ids=["missing", "short", "no base64", "no connection"],
)
async def test_a_secret_that_cannot_be_used_is_refused_by_its_setting(api: Api | None) -> None:
    with pytest.raises(SettingsError, match=r"worker\.signing_keys_secret"):
        await codes(settings(Path("/nowhere"), signing_keys_secret=SECRET), api)


async def test_of_several_clusters_the_one_we_run_in_has_the_secret() -> None:
    asked = settings(Path("/nowhere"), signing_keys_secret=SECRET)
    with pytest.raises(SettingsError, match="in_cluster: true"):
        await keyring_of(asked, {"a": ClusterSettings(context="a"), "b": ClusterSettings(context="b")}, {})


@pytest.mark.parametrize("worker", [{"signing_keys_secret": "no-namespace"}, {"signing_keys_secret": "A/b"}])
def test_the_name_of_a_secret_has_its_namespace(worker: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="signing_keys_secret"):
        settings(Path("/nowhere"), **worker)


# Codes of a deployment's keys: for whoever has one of them, for one purpose, over exactly these facts.

OLD, NEW = b"o" * 32, b"n" * 32
DEVICE = PowerDevice(
    driver="ipmi",
    endpoint="ipmi://10.0.0.7:623",
    parameters={"port": "623", "ip": "10.0.0.7"},
    credentials=(CredentialRef(name="bmc", namespace="nodewarden"),),
    delay=timedelta(seconds=5),
)
FACTS = ("prod", DEVICE, datetime(2026, 11, 24, tzinfo=UTC), None)


def test_a_code_is_for_its_purpose_and_its_facts() -> None:
    keys = Keyring([NEW])
    code = keys.sign("device", *FACTS)
    assert keys.accepts(code, "device", *FACTS)
    assert not keys.accepts(code, "act", *FACTS)
    assert not keys.accepts(code, "device", *FACTS[:-1], "")
    assert not keys.accepts(code, "device", *FACTS, None)
    assert not keys.accepts(code[:-1], "device", *FACTS)
    assert not keys.accepts("", "device", *FACTS)
    assert not keys.accepts("ü" * 64, "device", *FACTS)


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": "ipmi://10.0.0.8:623"},
        {"driver": "redfish"},
        {"parameters": {"port": "623", "ip": "10.0.0.8"}},
        {"credentials": (CredentialRef(name="bmc", namespace="tenant"),)},
        {"credentials": ()},
        {"site": "elsewhere"},
        {"delay": timedelta(seconds=6)},
    ],
)
def test_each_field_of_a_device_is_signed(changed: dict[str, object]) -> None:
    keys = Keyring([NEW])
    assert not keys.accepts(keys.sign("device", DEVICE), "device", replace(DEVICE, **changed))  # type: ignore[arg-type]


def test_the_same_facts_in_another_shape_are_the_same() -> None:
    """What has travelled comes back as another mapping, in another order, with another zone of the same moment."""
    keys = Keyring([NEW])
    code = keys.sign("device", DEVICE)
    assert keys.accepts(code, "device", replace(DEVICE, parameters=MappingProxyType({"ip": "10.0.0.7", "port": "623"})))


def test_keys_are_changed_one_after_the_other() -> None:
    before, meanwhile, after = Keyring([OLD]), Keyring([NEW, OLD]), Keyring([NEW])
    old, new = before.sign("device", DEVICE), meanwhile.sign("device", DEVICE)
    assert meanwhile.accepts(old, "device", DEVICE)
    assert after.accepts(new, "device", DEVICE)
    assert not after.accepts(old, "device", DEVICE)


@pytest.mark.parametrize("keys", [[], [b"short"], [NEW, b""]])
def test_no_key_and_a_short_one_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Keyring(keys)


def test_what_cannot_be_signed_is_said() -> None:
    with pytest.raises(TypeError):
        Keyring([NEW]).sign("device", object())
