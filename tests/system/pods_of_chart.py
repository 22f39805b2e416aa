"""Workers in the place of the pods that the chart's Deployments ask for: their arguments, their settings, their accounts' rights.

What differs from a pod: the way to the API server, which a pod has from its mount, and that one process stands for all replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from simulator.resources import DEPLOYMENTS, Resource
from tests.system.harness import System
from tests.system.worker_process import WorkerProcess

NAMESPACE = "nodewarden"
CONFIG_MAPS = Resource(api_version="v1", kind="ConfigMap", plural="configmaps")


class PodsOfChart:
    """`await pods.follow()` after each change of the release: starts what is new, ends what is gone, as a kubelet would."""

    def __init__(self, system: System, *, sources: Mapping[str, Path] | None = None) -> None:
        """sources: where the packages of a Deployment's image are, of each that does not run ours."""
        self.system = system
        self.sources = sources or {}
        self.running: dict[str, tuple[dict[str, Any], WorkerProcess]] = {}

    async def follow(self) -> None:
        deployments = (await self.system.client.list(DEPLOYMENTS.path(namespace=NAMESPACE)))["items"]
        wanted = {each["metadata"]["name"]: each["spec"]["template"] for each in deployments}
        for name, (template, worker) in list(self.running.items()):
            if wanted.get(name) != template:
                assert await worker.stop() == 0, worker.tail()
                del self.running[name]
        for name in wanted.keys() - self.running.keys():
            self.running[name] = (wanted[name], await self._start(name, wanted[name]["spec"]))

    async def _start(self, name: str, pod: dict[str, Any]) -> WorkerProcess:
        folder = self.system.folder / "pods"
        folder.mkdir(exist_ok=True)
        configured = await self.system.client.get(CONFIG_MAPS.path("nodewarden", namespace=NAMESPACE))
        settings = yaml.safe_load(configured["data"]["nodewarden.yaml"])
        for cluster in settings["clusters"].values():
            assert cluster.pop("in_cluster")
            cluster["kubeconfig"] = await self._kubeconfig(pod["serviceAccountName"])
        settings["state"] = str(folder / f"{name}-state")
        config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        [container] = pod["containers"]
        command, *arguments = container["args"]
        assert command == "worker"
        packages = {"PYTHONPATH": str(self.sources[name])} if name in self.sources else {}
        number = len(self.system.workers)
        worker = await WorkerProcess.start(
            folder, config=config, name=f"{name}-{number}", arguments=arguments, environment=packages
        )
        self.system.workers.append(worker)
        return worker

    async def _kubeconfig(self, account: str) -> str:
        kubeconfig = yaml.safe_load(self.system.cluster.kubeconfig_path.read_text(encoding="utf-8"))
        kubeconfig["users"][0]["user"] = {"token": await self.system.token_of(f"system:serviceaccount:{NAMESPACE}:{account}")}
        path = self.system.folder / "pods" / account / "kubeconfig"
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
        return str(path)
