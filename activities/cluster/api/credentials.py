"""Who we are to one Kubernetes API, and where it is: kubeconfig, service account, or an explicit address.

Reading kubeconfigs (merging, exec plugins, client certificates, OIDC) is left to the official client's loaders; what comes
out is only an address, a TLS context and an Authorization header, because `connection.py` speaks plain HTTP. Credentials that
rotate are read again: files once a minute, plugins before their token expires, everything after a 401.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from activities.errors import ErrorType, failure
from activities.lean_imports import without_its_own_module

REREAD_SECONDS = 60.0
"""A kubelet rotates a service account's token at 80 % of its life (an hour or more); once a minute is what clients do."""

LOADING_SECONDS = 30.0
"""An exec plugin that asks a cloud usually needs a second; one that asks a person must not hang a worker for ever."""


class ApiCredentials(ABC):
    """The address of one API server and the proof of who asks. `server_hostname`: SNI where it differs from the address."""

    url: str
    tls: ssl.SSLContext | bool = True
    proxy: str | None = None
    server_hostname: str | None = None

    def __init__(self) -> None:
        self._header = ""
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def authorization(self) -> str:
        """The Authorization header, read again when it is due; "" for none (client certificates)."""
        async with self._lock:
            if self._due(self._read_at):
                await self._load()
        return self._header

    async def refresh(self, refused: str) -> bool:
        """Read everything again after a 401 for the header `refused`. Whether there is now another proof to try."""
        async with self._lock:
            if self._header != refused:
                return True
            before = self.tls
            await self._load()
            return self._header != refused or self.tls is not before

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                header = await self._read()
        except TimeoutError as error:
            raise failure(
                ErrorType.UNREACHABLE, f"the credentials of {self.url} were not there within {LOADING_SECONDS:.0f} s"
            ) from error
        self._header = " ".join(header.split())
        self._read_at = asyncio.get_running_loop().time()

    def _due(self, read_at: float) -> bool:
        return asyncio.get_running_loop().time() - read_at > REREAD_SECONDS

    def tls_without_certificate(self) -> ssl.SSLContext | bool:
        """How the server is known, without any certificate of ours."""
        return self.tls

    @abstractmethod
    async def _read(self) -> str: ...


class BorrowedCredentials(ApiCredentials):
    """Another account's token, at our server's address. Our own certificate is not sent: a server that is shown one believes
    it, and not the token."""

    def __init__(self, ours: ApiCredentials, token: str) -> None:
        super().__init__()
        self.url, self.proxy, self.server_hostname = ours.url, ours.proxy, ours.server_hostname
        self.tls = ours.tls_without_certificate()
        self._token = token

    async def _read(self) -> str:
        return f"Bearer {self._token}"


class ExplicitCredentials(ApiCredentials):
    """An address from settings, with a token, a token file, or neither."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: Path | None = None,
        certificate_authority: Path | None = None,
    ) -> None:
        super().__init__()
        self.url = url
        self._token = token
        self._token_file = token_file
        if certificate_authority is not None:
            self.tls = _tls_context(certificate_authority=str(certificate_authority))

    async def _read(self) -> str:
        token = _read_token(self._token_file) if self._token_file else self._token
        return f"Bearer {token}" if token.strip() else ""


class ServiceAccountCredentials(ApiCredentials):
    """The pod's own service account. Raises InvalidConfig outside of a pod."""

    def __init__(self) -> None:
        super().__init__()
        loaders, configuration = _official_client()
        try:
            loaders.load_incluster_config(client_configuration=configuration)
        except loaders.ConfigException as error:
            raise failure(ErrorType.INVALID_CONFIG, f"no service account of a pod here: {error}") from error
        self._configuration = configuration
        self.url = configuration.host
        self.tls = _tls_context(certificate_authority=configuration.ssl_ca_cert)

    async def _read(self) -> str:
        # The loader's hook reads the mounted file again once a minute.
        return str(await self._configuration.get_api_key_with_prefix("BearerToken") or "")


class KubeconfigCredentials(ApiCredentials):
    """A context of a kubeconfig; with no path the ones that kubectl would use. Made by `load`."""

    def __init__(self, path: Path | None, context: str) -> None:
        super().__init__()
        self._path = str(path) if path else None
        self._context = context or None
        self._loader: Any = None
        self._tls_source: tuple[object, ...] = ()
        self._authority: str | None = None
        self._verify = True
        self.url = f"the kubeconfig context {context or 'in use'}"

    @classmethod
    async def load(cls, path: Path | None = None, context: str = "") -> KubeconfigCredentials:
        """Read the kubeconfig now, so that a mistake in it shows at once. Raises InvalidConfig."""
        credentials = cls(path, context)
        await credentials.authorization()
        return credentials

    def _due(self, read_at: float) -> bool:
        if self._loader is None:
            return True
        user = getattr(self._loader, "_user", None)
        if user is not None and "exec" in user:
            # A plugin may be slow or cost a log-in: run it again only when its token is about to expire, or after a 401.
            expiry = getattr(self._loader, "exec_plugin_expiry", None)
            soon = expiry is not None and expiry - timedelta(minutes=5) <= datetime.now(UTC)
            return bool(soon) and super()._due(read_at)
        return super()._due(read_at)

    async def _read(self) -> str:
        loaders, configuration = _official_client()
        source = self._path or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        try:
            loader = await loaders.load_kube_config(
                config_file=source, context=self._context, client_configuration=configuration, persist_config=False
            )
        except (loaders.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
            raise failure(ErrorType.INVALID_CONFIG, f"kubeconfig {source}: {error}") from error
        user = getattr(loader, "_user", None)
        if user is not None and "exec" in user and not (configuration.api_key or configuration.cert_file):
            # The loader only logs why.
            raise failure(ErrorType.FORBIDDEN, f"kubeconfig {source}: its exec plugin gave no credentials")
        self._loader = loader
        self.url = configuration.host
        self.proxy = configuration.proxy
        self.server_hostname = configuration.tls_server_name
        self._use_tls_of(configuration)
        return str(configuration.api_key.get("BearerToken") or "")

    def tls_without_certificate(self) -> ssl.SSLContext | bool:
        """Made anew: the context that we use ourselves has ours."""
        return _tls_context(certificate_authority=self._authority, verify=self._verify)

    def _use_tls_of(self, configuration: Any) -> None:
        self._authority, self._verify = configuration.ssl_ca_cert, configuration.verify_ssl
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        source = (*files, *(Path(file).stat().st_mtime if file else 0.0 for file in files), configuration.verify_ssl)
        if source == self._tls_source:
            return  # A new context would throw away the open connections.
        self._tls_source = source
        self.tls = _tls_context(
            certificate_authority=configuration.ssl_ca_cert,
            certificate=configuration.cert_file,
            key=configuration.key_file,
            verify=configuration.verify_ssl,
        )


def _official_client() -> tuple[Any, Any]:
    """Its configuration loaders and an empty configuration; imported late, for it costs a process 0.3 s, and without the client
    that blocks, which takes 12 MB."""
    with without_its_own_module("kubernetes"), without_its_own_module("kubernetes.aio"):
        from kubernetes.aio import client, config

    return config, client.Configuration()


def _tls_context(
    *,
    certificate_authority: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=certificate_authority)
        if certificate:
            context.load_cert_chain(certificate, keyfile=key)
    except OSError as error:
        raise failure(
            ErrorType.INVALID_CONFIG,
            f"cannot use the certificates ({certificate_authority or 'system authorities'}, {certificate or 'none'}): {error}",
        ) from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise failure(ErrorType.FORBIDDEN, f"cannot read the token file {path}: {type(error).__name__}") from error
