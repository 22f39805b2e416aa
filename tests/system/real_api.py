"""etcd and kube-apiserver of the folder that `KUBEBUILDER_ASSETS` names (envtest convention): the same tests on the real thing.

Controllers and kubelets are the simulated cluster's, as against its own API server; `start_controllers` starts the real ones of
the same folder. Everything listens on free ports of the loopback and lives in one folder.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from simulator.audit_log import write_policy
from simulator.client import ApiAddress
from simulator.cluster import kubeconfig_of
from tests.system import mortal
from tests.system.canary import RUN
from workers.embedded.server import free_ports

VARIABLE = "KUBEBUILDER_ASSETS"
HOST = "127.0.0.1"
READY_WITHIN = 90.0
STOP_WITHIN = 10.0
KUBELET_OF = "node-2"
ADMISSION_OFF = "ServiceAccount"
"""It wants a service account per namespace, which a controller would have made."""


def assets() -> Path | None:
    """The folder, None where it is not named. Raises FileNotFoundError where it is named and lacks a program."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        return None
    folder = Path(named)
    for program in ("etcd", "kube-apiserver"):
        if not os.access(folder / program, os.X_OK):
            raise FileNotFoundError(f"{VARIABLE}={named}: expected a program {program} there")
    return folder


class RealApiServer:
    """`async with RealApiServer(assets, folder) as api:`; `url`, `token` and `certificate_authority` are how to reach it."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.token = f"{RUN.value}{secrets.token_hex(16)}"
        self.kubelet_token = f"{RUN.value}{secrets.token_hex(16)}"
        """Of the kubelet of KUBELET_OF, with a kubelet's rights."""
        self._programs = programs
        self._folder = folder
        self._member = f"test-{secrets.token_hex(8)}"
        self._etcd_port, self._peer_port, self._port = free_ports(HOST, 3)
        self._processes: list[asyncio.subprocess.Process] = []
        self._server: asyncio.subprocess.Process
        self._signing_key = _private_key()

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._port}"

    @property
    def audit_log(self) -> Path:
        """Where the server writes who deletes what."""
        return self._folder / "audit.log"

    @property
    def certificate_authority(self) -> str:
        """The file that clients must trust; the server makes it on its first start."""
        return str(self._folder / "certificates" / "apiserver.crt")

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._start_etcd()
                await self._start_server()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    async def start_controllers(self) -> None:
        """kube-controller-manager and kube-scheduler of the same folder, whose node lifecycle keeps the pace of the tests.

        Claims are bound by the simulated storage driver. It is up to the test to see that they work.
        """
        kubeconfig = self._folder / "kubeconfig"
        address = ApiAddress(url=self.url, token=self.token, certificate_authority=self.certificate_authority)
        _write_privately(kubeconfig, kubeconfig_of(address).encode())
        common = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
        await self._launch("kube-scheduler", *common)
        await self._launch(
            "kube-controller-manager",
            *common,
            "--controllers=*,-persistentvolume-binder-controller",
            "--node-monitor-period=500ms",
            "--node-monitor-grace-period=3s",
            "--node-startup-grace-period=10s",
        )

    async def restart(self) -> None:
        """SIGKILL to kube-apiserver, and start it anew at once on what etcd has; returns when it is ready."""
        server = self._server
        self._processes.remove(server)
        server.kill()
        await server.wait()
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
        kubelet = f'{self.kubelet_token},system:node:{KUBELET_OF},kubelet,"system:nodes"\n'
        _write_privately(tokens, f'{self.token},admin,admin,"system:masters"\n{kubelet}'.encode())
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
        for process in reversed(self._processes):
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_WITHIN)
                except TimeoutError:
                    process.kill()
                    await process.wait()
        self._processes.clear()


def _private_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write_privately(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
