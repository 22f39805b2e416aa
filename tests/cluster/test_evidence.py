"""Evidence of a machine, over a simulated API server: what is kept, how it is bounded, and that nothing escapes the directory."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.evidence import ClusterEvidence
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.evidence import BundleName, Collected, CollectRequest, EvidenceFile, NotFetched, Sealed, SealRequest
from activities.errors import ErrorType
from activities.evidence_directory import MANIFEST, EvidenceDirectory, Limits
from policy.fence.plan import CredentialKind
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.acts.world import refused
from tests.cluster.test_preserving import DEFINITIONS, MACHINES, REF, definition, machine, node
from tests.licensing import LICENCES

Object = dict[str, Any]
NAME = BundleName(cluster="prod", node="node-7", incident="incident-1")
LIMITS = Limits(patience=timedelta(seconds=5))


def event(number: int, kind: str = "Node", name: str = "node-7", namespace: str = "default") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{number}", "namespace": namespace},
        "involvedObject": {"kind": kind, "name": name},
        "reason": f"Reason{number}",
        "message": "x" * 40,
        "lastTimestamp": f"2026-11-21T12:{number // 60:02}:{number % 60:02}Z",
    }


class Surroundings:
    """A cluster with one machine, and workers that keep evidence in `directory`."""

    def __init__(self, person: ApiClient, connection: ClusterConnection, directory: Path) -> None:
        self.person = person
        self.connection = connection
        self.directory = directory
        self.credential_hosts: dict[str, tuple[str, ...]] = {}

    async def stands(self) -> None:
        await self.person.create(DEFINITIONS, definition())
        await self.person.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shoot"}})
        await self.person.create("/api/v1/nodes", node() | {"spec": {"providerID": "aws:///eu-west-1a/i-0123456789abcdef0"}})
        await self.person.create(MACHINES, machine() | {"spec": {"password": "hunter2", "class": {"name": "small"}}})
        for each in (event(1), event(2), event(3, name="node-8")):
            await self.person.create("/api/v1/namespaces/default/events", each)
        await self.person.create("/api/v1/namespaces/shoot/events", event(4, "Machine", "w-7", "shoot"))

    def evidence(self, limits: Limits = LIMITS, *, kept: bool = True) -> ClusterEvidence:
        async def known_hosts() -> dict[str, tuple[str, ...]]:
            return self.credential_hosts

        served = ServedCluster("prod", self.connection, credential_hosts=known_hosts)
        return ClusterEvidence(served, EvidenceDirectory(self.directory, limits) if kept else None, LICENCES)

    def folder(self) -> Path:
        return self.directory / "prod" / "node-7" / "incident-1"

    def read(self, name: str) -> Any:
        return json.loads((self.folder() / name).read_text())


@pytest.fixture
async def world(person: ApiClient, connection: ClusterConnection, tmp_path: Path) -> Surroundings:
    directory = tmp_path / "evidence"
    directory.mkdir()
    surroundings = Surroundings(person, connection, directory)
    await surroundings.stands()
    return surroundings


async def collect(evidence: ClusterEvidence, **changes: Any) -> Collected:
    request = CollectRequest(**({"bundle": NAME, "node": "node-7", "machine": REF} | changes))
    found = await ActivityEnvironment().run(evidence.collect, request)
    assert isinstance(found, Collected)
    return found


async def seal(evidence: ClusterEvidence, collected: Collected, bundle: BundleName = NAME) -> Sealed:
    began = datetime(2026, 11, 21, 12, tzinfo=UTC)
    request = SealRequest(bundle=bundle, began=began, files=collected.files, missing=collected.missing)
    found = await ActivityEnvironment().run(evidence.seal, request)
    assert isinstance(found, Sealed)
    return found


def files_in(directory: Path) -> set[str]:
    return {str(each.relative_to(directory)) for each in directory.rglob("*") if not each.is_dir()}


async def test_the_bundle_holds_objects_events_and_their_story_and_its_manifest_the_hashes(world: Surroundings) -> None:
    """S12: neither managedFields nor what is named like a credential; files are for their owner alone."""
    evidence = world.evidence()
    collected = await collect(evidence)
    sealed = await seal(evidence, collected)
    manifest_bytes = (world.folder() / MANIFEST).read_bytes()
    assert sealed.path == str(world.folder() / MANIFEST)
    assert sealed.sha256 == hashlib.sha256(manifest_bytes).hexdigest()
    manifest = json.loads(manifest_bytes)
    assert manifest["notFetched"] == []
    names = {each["name"] for each in manifest["files"]}
    assert names == {"node.json", "machine.json", "timeline.json", "node-events.json", "machine-events.json"}
    assert files_in(world.folder()) == {*names, MANIFEST}
    for each in manifest["files"]:
        content = (world.folder() / each["name"]).read_bytes()
        assert (each["size"], each["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert b"hunter2" not in content
        assert b"managedFields" not in content
        assert (world.folder() / each["name"]).stat().st_mode & 0o077 == 0
    assert sealed.size == sum(each["size"] for each in manifest["files"])
    assert world.read("node.json")["metadata"]["name"] == "node-7"
    assert world.read("machine.json")["spec"]["class"] == {"name": "small"}
    assert [each["reason"] for each in world.read("node-events.json")] == ["Reason1", "Reason2"]
    assert [each["reason"] for each in world.read("machine-events.json")] == ["Reason4"]
    assert any("Reason4" in each["what"] for each in world.read("timeline.json"))
    assert [device.driver for device in collected.devices] == ["ec2"]


async def test_no_value_of_a_secret_leaves_the_reading_of_the_fence_configuration(
    world: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12: the device is told by a reference; neither the answer nor a file has what that leads to."""
    get = world.connection.get

    async def with_secrets(path: str, *, query: Mapping[str, str] | None = None) -> Object:
        if "/secrets/" in path:
            return {"data": {"access-key-id": "hunter2", "secret-access-key": "hunter2"}}
        return await get(path, query=query)

    monkeypatch.setattr(world.connection, "get", with_secrets)
    collected = await collect(world.evidence())
    assert [reference.kind for device in collected.devices for reference in device.credentials] == [CredentialKind.SECRET]
    (device,) = collected.devices
    world.credential_hosts = {device.credentials[0].subject: ("ec2.elsewhere.example",)}  # S40: it has gone there only
    assert [each.strange_to for each in (await collect(world.evidence())).devices] == [(device.credentials[0].subject,)]
    assert "hunter2" not in str(collected)
    assert not [each for each in world.folder().iterdir() if b"hunter2" in each.read_bytes()]


async def test_without_a_directory_nothing_is_collected(world: Surroundings) -> None:
    with refused(ErrorType.NOT_SUPPORTED, "evidence.directory is not set") as caught:
        await collect(world.evidence(kept=False))
    assert caught.value.category is ApplicationErrorCategory.BENIGN, "the worker has said it once, when it began"
    assert files_in(world.directory) == set()


async def test_what_is_too_long_is_cut_and_the_manifest_says_so(world: Surroundings) -> None:
    """Events stay whole and the newest are kept; all files together stay within what a bundle may take."""
    for number in range(10, 60):
        await world.person.create("/api/v1/namespaces/default/events", event(number))
    limits = replace(LIMITS, file_bytes=2000, bundle_bytes=40 * 1024)
    evidence = world.evidence(limits)
    sealed = await seal(evidence, await collect(evidence))
    manifest = world.read(MANIFEST)
    cut = {each["name"]: each for each in manifest["files"]}["node-events.json"]
    assert cut["size"] <= 2000 < cut["cut_from"]
    kept = [each["reason"] for each in world.read("node-events.json")]
    assert kept[-1] == "Reason59"
    assert 0 < len(kept) < 52
    assert all(each["size"] <= 2000 for each in manifest["files"])
    assert sealed.size <= 8 * 1024


async def test_what_has_no_room_is_named(world: Surroundings) -> None:
    evidence = world.evidence(replace(LIMITS, file_bytes=300, bundle_bytes=32 * 1024 + 300))
    collected = await collect(evidence)
    assert sum(each.size for each in collected.files) <= 300
    assert collected.room == 0
    assert NotFetched(of="machine-events", why="the bundle has no room for it") in collected.missing


@pytest.mark.parametrize("hostile", ["../../../etc", "/etc/passwd", "x\0y", "n" * 5000])
async def test_no_name_leads_out_of_the_directory(world: Surroundings, hostile: str) -> None:
    """The names come from whoever starts a preservation."""
    bundle = BundleName(cluster="prod", node=hostile, incident=hostile)
    evidence = world.evidence()
    collected = await collect(evidence, bundle=bundle, node="node-7")
    sealed = await seal(evidence, collected, bundle)
    around = world.directory.parent
    assert files_in(around) == {f"evidence/{each}" for each in files_in(world.directory)}
    assert sealed.path.removeprefix(f"{world.directory}/") in files_in(world.directory)
    assert len(Path(sealed.path).relative_to(world.directory).parts) == 4


async def test_a_folder_that_leads_elsewhere_is_not_written_to(world: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (world.directory / "prod").symlink_to(tmp_path / "elsewhere")
    with refused(ErrorType.INVALID_CONFIG, "leads out of it"):
        await collect(world.evidence())
    assert files_in(tmp_path / "elsewhere") == set()


async def test_what_was_seen_first_is_not_written_over(world: Surroundings) -> None:
    evidence = world.evidence()
    await seal(evidence, await collect(evidence))
    before = (world.folder() / MANIFEST).read_bytes()
    with refused(ErrorType.NOT_SUPPORTED, "has its evidence already"):
        await collect(evidence)
    assert (world.folder() / MANIFEST).read_bytes() == before


def _refuse(**_: object) -> None:
    raise PermissionError(13, "Permission denied")


def _full(_: int) -> None:
    raise OSError(28, "No space left on device")


def _no_mount(world: Surroundings, _: pytest.MonkeyPatch) -> None:
    world.directory.rmdir()


def _a_file(world: Surroundings, _: pytest.MonkeyPatch) -> None:
    (world.directory / "prod").write_text("in the way")


@pytest.mark.parametrize(
    ("accident", "words", "left"),
    [
        (lambda _, patch: patch.setattr("activities.evidence_directory.tempfile.mkstemp", _refuse), "Permission denied", set()),
        (lambda _, patch: patch.setattr("activities.evidence_directory.os.fsync", _full), "No space left on device", set()),
        (_no_mount, "expected a directory", set()),
        (_a_file, "evidence.directory", {"prod"}),
    ],
    ids=["it may not be written", "it is full, which leaves no half file", "a mount that is not there", "a file in its place"],
)
async def test_a_directory_that_cannot_be_written_is_said(
    world: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
    accident: Callable[[Surroundings, pytest.MonkeyPatch], None],
    words: str,
    left: set[str],
) -> None:
    accident(world, monkeypatch)
    with refused(ErrorType.INVALID_CONFIG, words):
        await collect(world.evidence())
    assert files_in(world.directory) == left


async def test_a_mount_that_hangs_is_waited_for_only_so_long(world: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are kept at once, only a few threads hang with it."""
    returns, hanging = threading.Event(), threading.active_count()
    monkeypatch.setattr("activities.evidence_directory.os.fsync", lambda _: returns.wait(10))
    evidence = world.evidence(replace(LIMITS, patience=timedelta(milliseconds=200)))
    try:
        for number in range(6):
            with refused(ErrorType.UNREACHABLE, "within 0.2 s"):
                await collect(evidence, bundle=replace(NAME, incident=str(number)))
        assert threading.active_count() - hanging <= 4 + 1
    finally:
        returns.set()


async def test_an_api_that_does_not_answer_is_named_and_the_rest_is_kept(world: Surroundings, api: ApiServer) -> None:
    """Reading ends with its share of the patience, whatever hangs."""
    api.faults.add(Fault(accident=Accident.DELAY, path="/nodes/", latency=timedelta(seconds=30)))
    evidence = world.evidence(replace(LIMITS, patience=timedelta(seconds=1)))
    collected = await collect(evidence)
    assert {each.name for each in collected.files} >= {"machine.json", "node-events.json"}
    assert any(each.of == "node" for each in collected.missing)


async def test_another_node_of_the_name_is_no_evidence(world: Surroundings) -> None:
    """S9."""
    collected = await collect(world.evidence(), node_uid="another")
    assert NotFetched(of="node", why="another one has its name now") in collected.missing
    assert "node.json" not in {each.name for each in collected.files}
    assert collected.devices == ()


async def test_a_file_of_another_mount_is_not_sealed(world: Surroundings) -> None:
    evidence = world.evidence()
    collected = await collect(evidence)
    elsewhere = EvidenceFile(name="console.txt", of="console of i-1", size=3, sha256="0" * 64, at=datetime.now(UTC))
    (world.folder() / "node.json").write_text("changed")
    sealed = await seal(evidence, replace(collected, files=(*collected.files, elsewhere)))
    assert {(each.of, each.why.partition(":")[0]) for each in sealed.missing} == {
        ("console of i-1", "its worker wrote it into another directory"),
        ("node", "it is not as it was written"),
    }
    assert {each["name"] for each in world.read(MANIFEST)["files"]} == {each.name for each in collected.files} - {"node.json"}


@pytest.mark.parametrize("way", ["up", "absolute", "a link", "a part"])
async def test_s41_what_lies_elsewhere_is_not_compared_byte_by_byte(world: Surroundings, tmp_path: Path, way: str) -> None:
    """A client of Temporal names the files of a bundle; whether a hash is right tells what they hold: signing keys, say."""
    key = tmp_path / "signing-keys"
    key.write_text("s3cret")
    evidence = world.evidence()
    collected = await collect(evidence)
    (world.folder() / "link").symlink_to(key)
    (world.folder() / "console.txt").write_text("s3cret of a boot")
    names = {"up": "../../../../signing-keys", "absolute": str(key), "a link": "link", "a part": "console.txt"}
    guess = hashlib.sha256(b"s3").hexdigest()
    asked = EvidenceFile(name=names[way], of="its first letters", size=1, sha256=guess, at=datetime.now(UTC))
    sealed = await seal(evidence, replace(collected, files=(asked,)))
    assert [each.of for each in sealed.missing if each not in collected.missing] == ["its first letters"]
    assert world.read(MANIFEST)["files"] == []
