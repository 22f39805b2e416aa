"""docker-compose.yml without Docker: what it names exists, what it pins is what we test against, and it holds no secret.

Where `docker compose` is installed it judges the file too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client

from tests.workers.server import development_server
from workers.configuration.settings import load
from workers.embedded.server import DYNAMIC_CONFIGURATION, find_binary
from workers.temporal_namespace import ensure_search_attributes

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docker-compose.yml"
OURS = {"worker", "scanner"}
ONE_SHOTS = {"temporal-database", "temporal-namespace", "scanner"}
PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9.-]+)?(@sha256:[0-9a-f]{64})?")
REFERENCE = re.compile(r"\$\{[A-Z_]+:\?[^}]+\}")

COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def _environments() -> Iterator[tuple[str, str, str]]:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            yield name, key, value


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_image_is_pinned(name: str) -> None:
    assert PINNED.fullmatch(SERVICES[name]["image"]), SERVICES[name]["image"]


def test_the_images_of_the_dockerfile_are_pinned() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    [base] = re.findall(r"^ARG BASE=(\S+)$", text, flags=re.MULTILINE)
    assert PINNED.fullmatch(base), base
    stages = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    assert stages == ["${BASE}", "${BASE}"], "the environment was made for another Python than it runs on"


def test_temporal_is_the_one_we_test_against() -> None:
    """The embedded server and the production-like one are the same release, and so are their UIs."""
    told = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    versions = re.search(r"Server ([\d.]+), UI ([\d.]+)", told)
    assert versions is not None, told
    server, ui = versions.groups()
    assert {service["image"] for service in SERVICES.values() if service["image"].startswith("temporalio/")} == {
        f"temporalio/server:{server}",
        f"temporalio/admin-tools:{server}",
        f"temporalio/ui:{ui}",
    }


def test_what_is_waited_for_exists_and_can_be_waited_for() -> None:
    """Healthy needs a health check, completed needs something that ends."""
    for name, service in SERVICES.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} waits for {other}"
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], f"{name} waits for {other}"
            else:
                assert condition["condition"] == "service_completed_successfully"
                assert other in ONE_SHOTS, f"{name} waits for {other}"


def test_what_ends_is_not_started_for_ever_and_what_serves_is() -> None:
    for name, service in SERVICES.items():
        expected = "on-failure:5" if name in ONE_SHOTS else "unless-stopped"
        assert service["restart"] == expected, name


def test_what_is_mounted_exists() -> None:
    """Docker makes an empty folder of what does not exist, and says nothing."""
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            if isinstance(volume, dict):
                assert volume["read_only"] is True, name
                assert volume["bind"]["create_host_path"] is False, name
                continue
            source, _, target = volume.partition(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), volume
                assert target.endswith(":ro"), volume
            else:
                assert source in COMPOSE["volumes"], volume


def test_no_secret_is_written_down() -> None:
    """S12: passwords come from the caller's environment, and a missing one stops the start."""
    found = [(name, key) for name, key, value in _environments() if re.search(r"PASS|PWD|SECRET|TOKEN|KEY$", key)]
    assert found
    for name, key, value in _environments():
        if (name, key) in found:
            assert REFERENCE.fullmatch(value), f"{name}: {key}"


def test_nothing_listens_beyond_this_machine() -> None:
    """Temporal and its UI have no authentication of their own."""
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_services_are_set_by_settings_that_exist(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in list(os.environ):
        if key.startswith(("NODEWARDEN_", "TEMPORAL_", "KUBE")):
            monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    service = SERVICES[name]
    for key, value in service["environment"].items():
        monkeypatch.setenv(key, value)
    settings = load()
    assert settings.temporal.address == "temporal:7233"
    assert settings.temporal.namespace == SERVICES["temporal-namespace"]["environment"]["TEMPORAL_NAMESPACE"]
    assert service["environment"]["KUBECONFIG"] == service["volumes"][0]["target"]
    port = settings.metrics.rpartition(":")[2]
    assert f":{port}/" in str(SERVICES["worker"]["healthcheck"]["test"])


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_commands_exist(name: str) -> None:
    command = [sys.executable, "-m", "starter.cli", *SERVICES[name]["command"], "--help"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=30, check=False).returncode == 0


def test_a_stopping_worker_gets_time_to_end() -> None:
    """S34: what is in flight ends before the process does."""
    grace = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace >= load().worker.graceful_shutdown.total_seconds() + 10


def test_the_server_is_paced_as_the_embedded_one() -> None:
    """One reason for each of Temporal's own settings: workers/embedded/server.py."""
    embedded = dict(entry.split("=") for entry in DYNAMIC_CONFIGURATION)
    configured = yaml.safe_load((ROOT / "deploy/temporal/dynamic-config.yaml").read_text(encoding="utf-8"))
    assert configured.pop("frontend.httpAllowedHosts") == [{"value": ["the-http-api-is-closed.invalid"]}], "S51"
    assert configured
    for key, [constrained] in configured.items():
        assert str(constrained["value"]) == embedded[key], key


@pytest.fixture
def prepared() -> Iterator[str]:
    """The address of a server whose namespace was prepared as at a first start, and at the next."""
    with development_server() as address:
        environment = {
            **os.environ,
            **SERVICES["temporal-namespace"]["environment"],
            "TEMPORAL_ADDRESS": address,
            "PATH": f"{find_binary().parent}{os.pathsep}{os.environ['PATH']}",
        }
        script = ROOT / "deploy/temporal/prepare-namespace.sh"
        for _ in range(2):
            done = subprocess.run(["sh", script], env=environment, capture_output=True, text=True, timeout=50, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        yield address


@pytest.mark.system
async def test_after_the_one_shots_a_worker_lacks_nothing(prepared: str) -> None:
    """It may not be allowed to create search attributes itself."""
    client = await Client.connect(prepared, namespace=SERVICES["worker"]["environment"]["TEMPORAL_NAMESPACE"])
    assert await ensure_search_attributes(client, create=False) == ()


@pytest.mark.parametrize("script", sorted((ROOT / "deploy/temporal").glob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_plain_shell(script: Path) -> None:
    """They run in an image whose sh is not bash."""
    for shell in ("sh", "dash"):
        checked = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=10, check=False)
        assert checked.returncode == 0, checked.stderr


def _compose_command_exists() -> bool:
    try:
        return subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.mark.skipif(not _compose_command_exists(), reason="docker compose is not installed here")
def test_docker_compose_accepts_it(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    environment = {**os.environ, "POSTGRES_PASSWORD": "of-this-test", "NODEWARDEN_KUBECONFIG": str(kubeconfig)}
    command = ["docker", "compose", "--file", FILE, "config", "--quiet"]
    judged = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert judged.returncode == 0, judged.stderr
