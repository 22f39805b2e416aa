"""etcd and kube-apiserver of the folder that `KUBEBUILDER_ASSETS` names (envtest convention): the same tests on the real thing.

Controllers and kubelets are the simulated cluster's, as against its own API server; `start_controllers` starts the real ones of
the same folder. Everything listens on free ports of the loopback and lives in one folder.

`python -m tests.system.real_api` says what the folder has, and ends with 2 where the tests can't run on that (`make test-real`).
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from simulator.api.server import ApiServer
from simulator.audit_log import write_policy
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.cluster import kubeconfig_of
from supply_chain.chart import CHART
from tests.system import mortal
from tests.system.canary import RUN
from workers.embedded.server import free_ports

VARIABLE = "KUBEBUILDER_ASSETS"
HOST = "127.0.0.1"
READY_WITHIN = 90.0
STOP_WITHIN = 10.0
RESTART_PAUSE = 1.0
NEEDED, CONTROLLERS = ("etcd", "kube-apiserver"), ("kube-controller-manager", "kube-scheduler")
"""envtest's archives have those that are needed; with the others, the main job is tried beside real controllers."""
STAND = ("tests/system/", "tests/security/", "tests/deploy/")
"""Where tests stand on a real API server, or say why they can't."""
ADMISSION_OFF = "ServiceAccount"
"""It wants a service account per namespace, which a controller would have made."""


def assets() -> Path | None:
    """The folder, None where it is not named. Raises FileNotFoundError where it is named and lacks a program."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        return None
    folder = Path(named).absolute()
    for program in NEEDED:
        if not os.access(folder / program, os.X_OK):
            raise FileNotFoundError(f"{VARIABLE}={named}: expected a program {program} there")
    return folder


def versions(folder: Path) -> dict[str, str]:
    """What the programs of Kubernetes there call themselves, as "v1.36.2". Raises ValueError for what the tests can't run on."""
    oldest = int(re.findall(r">=1\.(\d+)", yaml.safe_load((Path(CHART) / "Chart.yaml").read_text())["kubeVersion"])[0])
    found: dict[str, str] = {}
    for program in ("kube-apiserver", *(each for each in CONTROLLERS if os.access(folder / each, os.X_OK))):
        said = subprocess.run([folder / program, "--version"], capture_output=True, text=True, timeout=30, check=False)
        line = (said.stdout or said.stderr).strip().partition("\n")[0]
        version = re.fullmatch(r"Kubernetes (v1\.(\d+)\.\S+)", line)
        if version is None or int(version[2]) < oldest:
            expected = f"expected 'Kubernetes v1.{oldest}.0' or newer, as the chart asks for"
            built = "; built without -ldflags '-X k8s.io/component-base/version.gitVersion=v1.X.Y'?" if "v0.0.0" in line else ""
            raise ValueError(f"{folder / program} is {line!r}: {expected}{built}")
        found[program] = version[1]
    if len({each.split(".")[1] for each in found.values()}) > 1:
        raise ValueError(f"{folder}: expected programs of one minor version, found {_listed(found)}")
    return found


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{program} {version}" for program, version in found.items())


def simulated_only(reason: str) -> None:
    """Skips a test that stands on a simulated API server of its own, where a real one is asked for; the reason is listed then."""
    if assets() is not None:
        pytest.skip(f"simulated API server only: {reason}")


@contextmanager
def no_simulated_server(nodeid: str) -> Iterator[None]:
    """Where a real one is asked for, a test of STAND fails that starts a simulated one and has not said why."""

    async def refused(_: ApiServer) -> None:
        raise AssertionError("it starts a simulated API server: expected simulated_only() before, with the reason")

    with pytest.MonkeyPatch.context() as patched:
        if assets() is not None and nodeid.startswith(STAND):
            patched.setattr(ApiServer, "start", refused)
        yield


class RealApiServer:
    """`async with RealApiServer(assets, folder) as api:`; `url`, `token` and `certificate_authority` are how to reach it.

    users: who else it knows by a token, `token_of`; a `system:node:NAME` has a kubelet's rights."""

    def __init__(self, programs: Path, folder: Path, *, users: Sequence[str] = ()) -> None:
        self.token = f"{RUN.value}{secrets.token_hex(16)}"
        self._tokens = {user: f"{RUN.value}{secrets.token_hex(16)}" for user in users}
        self._programs = programs
        self._folder = folder
        self._member = f"test-{secrets.token_hex(8)}"
        self._etcd_port, self._peer_port, self._port = free_ports(HOST, 3)
        self._processes: list[asyncio.subprocess.Process] = []
        self._kept: list[asyncio.Task[None]] = []
        self._server: asyncio.subprocess.Process
        self._signing_key = _private_key()

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._port}"

    @property
    def address(self) -> ApiAddress:
        """Of its administrator."""
        return ApiAddress(url=self.url, token=self.token, certificate_authority=self.certificate_authority)

    @property
    def audit_log(self) -> Path:
        """Where the server writes who deletes what."""
        return self._folder / "audit.log"

    @property
    def certificate_authority(self) -> str:
        """The file that clients must trust; the server makes it on its first start."""
        return str(self._folder / "certificates" / "apiserver.crt")

    def token_of(self, user: str) -> str:
        """Raises KeyError for one that it was not started with: it reads its file of tokens once."""
        return self._tokens[user]

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._start_etcd()
            await self.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    async def start_controllers(self) -> None:
        """kube-controller-manager and kube-scheduler of the same folder, whose node lifecycle keeps the pace of the tests.

        One that ends by itself is started again, as its kubelet would: kube-scheduler 1.36 ends where the API server was away
        while a pod gave way to another one of its name ("Scheduler cache is corrupted"). Claims are bound by the simulated
        storage driver. It is up to the test to see that they work.
        """
        kubeconfig = self._folder / "kubeconfig"
        _write_privately(kubeconfig, kubeconfig_of(self.address).encode())
        common = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
        lifecycle = ("--node-monitor-period=500ms", "--node-monitor-grace-period=3s", "--node-startup-grace-period=10s")
        manager = ("kube-controller-manager", *common, "--controllers=*,-persistentvolume-binder-controller", *lifecycle)
        for command in (("kube-scheduler", *common), manager):
            process = await self._launch(*command)
            self._kept.append(asyncio.create_task(self._keep(process, *command), name=command[0]))

    async def _keep(self, process: asyncio.subprocess.Process, *command: str) -> None:
        while True:
            await process.wait()
            self._processes.remove(process)
            await asyncio.sleep(RESTART_PAUSE)
            process = await self._launch(*command)

    async def kill(self) -> None:
        """SIGKILL to kube-apiserver; etcd stays."""
        self._processes.remove(self._server)
        self._server.kill()
        await self._server.wait()

    async def start(self) -> None:
        """kube-apiserver on what etcd has; returns when it is ready."""
        async with asyncio.timeout(READY_WITHIN):
            await self._start_server()

    async def _start_etcd(self) -> None:
        client, peer = f"http://{HOST}:{self._etcd_port}", f"http://{HOST}:{self._peer_port}"
        etcd = await self._launch(
            "etcd",
            f"--name={self._member}",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={self._member}={peer}",
            "--unsafe-no-fsync=true",
        )
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            # Somebody else's etcd on that port would answer as well; ours has a name that nobody else has.
            while self._member not in await self._members(session, client):
                self._refuse_dead(etcd, "etcd")
                await asyncio.sleep(0.1)

    @staticmethod
    async def _members(session: aiohttp.ClientSession, url: str) -> list[str]:
        try:
            async with session.post(f"{url}/v3/cluster/member/list", json={}) as response:
                if response.status != 200:
                    return []
                answer: dict[str, Any] = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError):
            return []
        return [member.get("name", "") for member in answer.get("members", ())]

    async def _start_server(self) -> None:
        tokens, key = self._folder / "tokens.csv", self._folder / "service-accounts.pem"
        groups = {user: "system:nodes" if user.startswith("system:node:") else "" for user in self._tokens}
        known = [f'{token},{user},{user},"{groups[user]}"' for user, token in self._tokens.items()]
        _write_privately(tokens, "\n".join([f'{self.token},admin,admin,"system:masters"', *known, ""]).encode())
        _write_privately(key, self._signing_key)
        policy = self._folder / "audit-policy.json"
        write_policy(policy)
        server = self._server = await self._launch(
            "kube-apiserver",
            f"--etcd-servers=http://{HOST}:{self._etcd_port}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--disable-admission-plugins={ADMISSION_OFF}",
            "--allow-privileged=true",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
        )
        while not await self._is_ready():
            self._refuse_dead(server, "kube-apiserver")
            await asyncio.sleep(0.2)

    async def _is_ready(self) -> bool:
        """Ready, and ours: only ours takes the token, and only ours shows a certificate that its own file vouches for."""
        try:
            context = ssl.create_default_context(cafile=self.certificate_authority)
            headers = {"Authorization": f"Bearer {self.token}"}
            async with (
                aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(f"{self.url}/api/v1/namespaces/kube-system", ssl=context) as namespace,
                session.get(f"{self.url}/readyz", ssl=context) as ready,
            ):
                return namespace.status == 200 and ready.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False  # no certificate yet, nobody listens yet, or not ready yet

    async def _launch(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        with (self._folder / f"{program}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *mortal.command(str(self._programs / program), *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _refuse_dead(self, process: asyncio.subprocess.Process, program: str) -> None:
        if process.returncode is not None:
            lines: Sequence[str] = (self._folder / f"{program}.log").read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"{program} ended with {process.returncode}: {lines[-1] if lines else 'it said nothing'}")

    async def _stop(self) -> None:
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        for process in reversed(self._processes):
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_WITHIN)
                except TimeoutError:
                    process.kill()
                    await process.wait()
        self._processes.clear()


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[ApiAddress]:
    """A real one where it is asked for, else a simulated one: its administrator's address. No secret of these tests is in it."""
    if (programs := assets()) is None:
        async with ApiServer(tokens={(token := f"{RUN.value}-of-an-administrator"): "admin"}) as simulated:
            RUN.listen(folder.name, simulated.store)
            authority = folder / "apiserver.crt"
            authority.write_bytes(simulated.certificate_authority)
            yield ApiAddress(url=simulated.secure_url, token=token, certificate_authority=str(authority))
        return
    async with RealApiServer(programs, folder) as real, ApiClient(real.address, user_agent="person") as client:
        async with asyncio.timeout(READY_WITHIN):
            while not await _describes_itself(client):
                await asyncio.sleep(0.2)
        yield real.address
        await RUN.look_at_api(folder.name, client)


async def _describes_itself(client: ApiClient) -> bool:
    """A server is ready some seconds before it has put its OpenAPI document together, which Helm validates by."""
    try:
        return bool(await client.get("/openapi/v2"))
    except ApiError:
        return False


def _private_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write_privately(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def main() -> int:
    """Which programs there are, for people; 2 and what was expected where that is not enough."""
    try:
        folder = assets()
        if folder is None:
            beside = f"with {' and '.join(CONTROLLERS)} in it, the main job runs beside these, too"
            raise FileNotFoundError(
                f"expected {VARIABLE}=/folder with etcd and kube-apiserver, as setup-envtest brings them; {beside}"
            )
        found = versions(folder)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"etcd, {_listed(found)} of {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
