"""The HTTP access: what a refusal, a lost answer and a silence mean, and that nothing is ever sent twice."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import stat
import tracemalloc
from asyncio import sslproto
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ActivityConfig

from activities.cluster.api import connection as connections
from activities.cluster.api.connection import ClusterConnection, Timeouts
from activities.cluster.api.credentials import ExplicitCredentials
from activities.cluster.api.paths import LEASES, NODES, PODS
from activities.cluster.api.refusals import ObjectConflict, ObjectExists
from activities.errors import FINAL, ErrorType, error_type
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from tests.cluster.builders import node
from workflows.kit import options

pytestmark = pytest.mark.timeout(10)


def test_paths_of_core_grouped_namespaced_and_subresource_objects() -> None:
    assert NODES.path("node-1") == "/api/v1/nodes/node-1"
    assert LEASES.path("a", namespace="kube-system") == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a"
    assert PODS.path("p", namespace="x", subresource="eviction") == "/api/v1/namespaces/x/pods/p/eviction"
    assert NODES.path("../secrets") == "/api/v1/nodes/..%2Fsecrets"
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path("p")


async def test_preconditions_and_versions_conflict_and_change_nothing(connection: ClusterConnection) -> None:
    """S20: look and write in one."""
    created = await connection.create(NODES.path(), node("node-1"))
    with pytest.raises(ObjectExists):
        await connection.create(NODES.path(), node("node-1"))
    with pytest.raises(ObjectConflict):
        await connection.delete(NODES.path("node-1"), uid="another")
    cordon = {"op": "add", "path": "/spec/unschedulable", "value": True}
    with pytest.raises(ObjectConflict):
        await connection.patch_json(NODES.path("node-1"), [{"op": "test", "path": "/metadata/uid", "value": "another"}, cordon])
    assert "unschedulable" not in (await connection.get(NODES.path("node-1")))["spec"]
    await connection.patch_merge(NODES.path("node-1"), {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ObjectConflict) as stale:
        await connection.replace(NODES.path("node-1"), created)
    assert error_type(stale.value) is ErrorType.TRANSIENT


@pytest.mark.parametrize("config", [options.cluster_read("c-1"), options.cluster_write("c-1"), options.report("c-1")])
def test_a_write_that_hangs_ends_as_a_try_which_is_repeated_not_as_ambiguous_which_is_final(config: ActivityConfig) -> None:
    """The request begins after its try, so that equal limits do."""
    assert ErrorType.AMBIGUOUS in FINAL
    assert config["start_to_close_timeout"] is not None
    assert config["start_to_close_timeout"] <= timedelta(seconds=Timeouts().write)


def test_an_act_that_is_tried_once_outlasts_its_request() -> None:
    """S34: after an Ambiguous nothing is in flight; after a time-out of the try the request may still arrive."""
    assert timedelta(seconds=Timeouts().write) < options.CONSEQUENCE_DEADLINE
    assert options.consequence("c-1")["start_to_close_timeout"] == options.CONSEQUENCE_DEADLINE
    assert options.DELETION_DEADLINE == options.CONSEQUENCE_DEADLINE + options.IN_FLIGHT_MARGIN


MEANINGS = {
    400: (ErrorType.INVALID_CONFIG, ErrorType.INVALID_CONFIG),
    401: (ErrorType.FORBIDDEN, ErrorType.FORBIDDEN),
    403: (ErrorType.FORBIDDEN, ErrorType.FORBIDDEN),
    404: (ErrorType.NOT_FOUND, ErrorType.NOT_FOUND),
    409: (ErrorType.TRANSIENT, ErrorType.TRANSIENT),
    422: (ErrorType.INVALID_CONFIG, ErrorType.INVALID_CONFIG),
    429: (ErrorType.RATE_LIMITED, ErrorType.RATE_LIMITED),
    500: (ErrorType.TRANSIENT, ErrorType.AMBIGUOUS),
    503: (ErrorType.RATE_LIMITED, ErrorType.RATE_LIMITED),
    504: (ErrorType.TRANSIENT, ErrorType.AMBIGUOUS),
}
"""Of a status, to a read and to a write."""


async def test_what_a_status_means(api: ApiServer, connection: ClusterConnection) -> None:
    for status, meant in MEANINGS.items():
        api.faults.clear()
        api.faults.add(Fault(accident=Accident.STATUS, status=status, retry_after=7, path="/nodes"))
        with pytest.raises(ApplicationError) as unread:
            await connection.get(NODES.path("node-1"))
        with pytest.raises(ApplicationError) as unwritten:
            await connection.create(NODES.path(), node("node-1"))
        assert (error_type(unread.value), error_type(unwritten.value)) == meant, status
        assert status not in {429, 503} or unwritten.value.next_retry_delay == timedelta(seconds=7)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_whose_answer_is_lost_is_ambiguous_and_sent_once(
    api: ApiServer, connection: ClusterConnection, method: str
) -> None:
    """S33: an idle connection that breaks makes HTTP libraries send PUT and DELETE again; ours must not."""
    existing = await connection.create(NODES.path(), node("node-1"))  # leaves a connection in the pool
    fault = api.faults.add(Fault(accident=Accident.LOSE_ANSWER, method=method))
    path = NODES.path("node-1")
    writes = {
        "POST": lambda: connection.create(NODES.path(), node("node-2")),
        "PUT": lambda: connection.replace(path, existing),
        "PATCH": lambda: connection.patch_merge(path, {"metadata": {"labels": {"a": "b"}}}),
        "DELETE": lambda: connection.delete(path),
    }
    with pytest.raises(ApplicationError) as lost:
        await writes[method]()
    assert error_type(lost.value) is ErrorType.AMBIGUOUS
    assert lost.value.non_retryable
    assert api.faults.hits(fault) == 1


async def test_a_write_that_times_out_is_ambiguous_and_a_read_is_unreachable(
    api: ApiServer, connection: ClusterConnection
) -> None:
    api.faults.add(Fault(accident=Accident.DELAY, latency=timedelta(seconds=30)))
    write = connection.create(NODES.path(), node("node-1"))
    read = connection.get(NODES.path("node-1"))
    unwritten, unread = await asyncio.gather(write, read, return_exceptions=True)
    assert isinstance(unwritten, ApplicationError)
    assert isinstance(unread, ApplicationError)
    assert error_type(unwritten) is ErrorType.AMBIGUOUS
    assert error_type(unread) is ErrorType.UNREACHABLE


async def test_a_refused_connection_is_unreachable_for_writes_too(api: ApiServer, connection: ClusterConnection) -> None:
    await api.stop()
    with pytest.raises(ApplicationError, match=r"no connection to 127\.0\.0\.1:\d+ \(Connection refused\)$") as refused:
        await connection.create(NODES.path(), node("node-1"))
    assert error_type(refused.value) is ErrorType.UNREACHABLE


async def test_no_token_in_any_message_and_our_name_in_every_request(api: ApiServer) -> None:
    """S12."""
    secret = "s3cr3t-token-value"
    async with ClusterConnection.to(api.url, token=secret) as connection:
        with pytest.raises(ApplicationError) as refused:
            await connection.get(NODES.path("node-1"))
    assert error_type(refused.value) is ErrorType.FORBIDDEN
    assert secret not in str(refused.value)
    assert secret not in repr(refused.value.__dict__)
    assert any(agent.startswith("nodewarden/") for agent in api.requests.reads)


async def test_a_login_in_a_netrc_is_none_of_ours(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on somebody's own machine: a login for all hosts neither takes our token's place nor stands against it."""
    logins = tmp_path / "netrc"
    logins.write_text("default login somebody password something\n")
    logins.chmod(0o600)
    monkeypatch.setenv("NETRC", str(logins))
    async with ClusterConnection.to(api.url, token="abc") as connection:
        assert await connection.cluster_uid()


async def test_the_environment_s_proxy_is_used_but_for_hosts_without_one(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with ClusterConnection.to(api.url, token="abc") as connection:
        with pytest.raises(ApplicationError) as nobody_there:
            await connection.cluster_uid()
        assert error_type(nobody_there.value) is ErrorType.UNREACHABLE
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with ClusterConnection.to(api.url, token="abc") as connection:
        assert await connection.cluster_uid()


async def test_a_token_file_that_rotates_is_read_again_after_a_401(api: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    async with ClusterConnection.to(api.url, token_file=file) as connection:
        await connection.get("/version")
        api.authorization.tokens.clear()
        api.authorization.tokens["new"] = "admin"
        file.write_text("new\n")
        await connection.list_objects(NODES.path())
        file.unlink()
        api.authorization.tokens.clear()
        with pytest.raises(ApplicationError) as gone:
            await connection.list_objects(NODES.path())
        assert error_type(gone.value) is ErrorType.FORBIDDEN


async def test_version_and_cluster_uid_are_asked_once(api: ApiServer, connection: ClusterConnection) -> None:
    assert (await connection.server_version()).minor == 36
    before = sum(api.requests.reads.values())
    uid = await connection.cluster_uid()
    assert uid
    assert await connection.cluster_uid() == uid
    await connection.server_version()
    assert sum(api.requests.reads.values()) == before + 1


async def test_a_kubeconfig_with_a_token_file_and_contexts(api: ApiServer, tmp_path: Path) -> None:
    document = yaml.safe_load(api.kubeconfig())
    (tmp_path / "token").write_text("abc")
    document["users"][0]["user"] = {"tokenFile": "token"}
    document["contexts"].append({"name": "other", "context": {"cluster": "nowhere", "user": "nobody"}})
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(document))
    async with await ClusterConnection.from_kubeconfig(file) as connection:
        assert await connection.cluster_uid()
    with pytest.raises(ApplicationError, match="nowhere") as unknown:
        await ClusterConnection.from_kubeconfig(file, context="other")
    assert error_type(unknown.value) is ErrorType.INVALID_CONFIG
    with pytest.raises(ApplicationError) as missing:
        await ClusterConnection.from_kubeconfig(tmp_path / "nothing")
    assert error_type(missing.value) is ErrorType.INVALID_CONFIG


async def test_an_exec_plugin_is_run_again_only_after_a_401(api: ApiServer, tmp_path: Path) -> None:
    plugin, token, runs = tmp_path / "plugin", tmp_path / "token", tmp_path / "runs"
    token.write_text("abc")
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo run >> {runs}\n"
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
        f'\\"status\\":{{\\"token\\":\\"$(cat {token})\\"}}}}"\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    document = yaml.safe_load(api.kubeconfig())
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    document["users"][0]["user"] = {"exec": command}
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(document))
    async with await ClusterConnection.from_kubeconfig(file) as connection:
        await connection.cluster_uid()
        await connection.list_objects(NODES.path())
        assert runs.read_text().count("run") == 1
        api.authorization.tokens.clear()
        api.authorization.tokens["new"] = "admin"
        token.write_text("new")
        await connection.list_objects(NODES.path())
        assert runs.read_text().count("run") == 2


async def test_a_borrowed_token_goes_without_our_certificate(tmp_path: Path) -> None:
    """S42: a server that is shown a certificate believes that, and whoever asks would speak in our name."""
    certificate, key = self_signed(tmp_path)
    shown: list[tuple[bool, str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        has_one = bool(request.transport.get_extra_info("peercert"))
        shown.append((has_one, request.headers.get("Authorization", "")))
        return web.json_response({"metadata": {"uid": "u"}})

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    tls.verify_mode = ssl.CERT_OPTIONAL
    tls.load_cert_chain(certificate, key)
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.SockSite(runner, socket.create_server(("127.0.0.1", 0)), ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [
            {"name": "test", "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificate)}}
        ],
        "users": [{"name": "test", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    async with await ClusterConnection.from_kubeconfig(tmp_path / "config") as ours:
        await ours.get(NODES.path("node-1"))
        async with ours.bearing("anns") as theirs:
            await theirs.get(NODES.path("node-1"))
    await runner.cleanup()
    assert shown == [(True, ""), (False, "Bearer anns")]


class Endless:
    """A server that begins to answer, and never ends."""

    def __init__(self) -> None:
        self.sent = 0
        self._server = RawTestServer(self._answer)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"x" * 4096)
                self.sent += 4096
        return response

    async def __aenter__(self) -> Endless:
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"


@pytest.mark.parametrize(("how", "means"), [("get", "Transient"), ("watch", "Transient"), ("write", "Ambiguous")])
async def test_s41_an_answer_without_end_is_not_held_in_memory(how: str, means: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker serves several clusters: the API server of one, or what stands before it, took the memory of all."""
    monkeypatch.setattr(connections, "LONGEST_ANSWER", 1024 * 1024)

    async def ask(connection: ClusterConnection) -> None:
        if how == "watch":
            async for _ in connection.watch(NODES.path(), resource_version="1", seconds=5, silence=5):
                pass
        elif how == "write":
            await connection.patch_merge(NODES.path("node-1"), {})
        else:
            await connection.get(NODES.path("node-1"))

    async with Endless() as server, ClusterConnection.to(server.url, timeouts=Timeouts(read=5, write=5)) as connection:
        with pytest.raises(ApplicationError, match="more than 1048576 bytes") as refused:
            await asyncio.wait_for(ask(connection), 5)
        assert refused.value.type == means
        assert server.sent < 16 * 1024 * 1024


async def test_s41_many_large_objects_are_read_a_few_at_a_time(
    api: ApiServer, connection: ClusterConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant has room for hundreds of objects of a megabyte and more: no page holds them all, and none is left out."""
    monkeypatch.setattr(connections, "LONGEST_ANSWER", 100_000)
    large = {f"large-{number:02}" for number in range(40)}
    for name in large:
        await connection.create(NODES.path(), {**node(name), "metadata": {"name": name, "annotations": {"a": "x" * 20_000}}})
    for query in (None, {"resourceVersion": "0"}):
        pages = [page.body async for page in connection.list_pages(NODES.path(), query=query)]
        names = [item["metadata"]["name"] for page in pages for item in json.loads(page)["items"]]
        assert (set(names), len(names)) == (large, 40)
        assert max(map(len, pages)) < 100_000


async def test_a_tls_connection_keeps_little_memory(tmp_path: Path) -> None:
    """A cluster has some twenty watches open, and a worker may have fifty clusters. asyncio alone would keep 256 KiB for each."""
    certificate, key = self_signed(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    count, arrived, answered = 20, list[str](), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        arrived.append(request.path)
        await answered.wait()
        return web.json_response({})

    server = RawTestServer(answer)
    await server.start_server(ssl=tls)
    credentials = ExplicitCredentials(f"https://127.0.0.1:{server.port}", certificate_authority=certificate)
    async with ClusterConnection(credentials) as connection:
        tracemalloc.start()
        asked = [asyncio.create_task(connection.get(NODES.path(f"node-{number}"))) for number in range(count)]
        while len(arrived) < count:
            await asyncio.sleep(0.01)
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=sslproto.__file__)])
        tracemalloc.stop()
        answered.set()
        await asyncio.gather(*asked)
    await server.close()
    ends = 2 * count
    assert sum(trace.size for trace in kept.traces) / ends < 80 * 1024


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ApplicationError) as refused:
        ClusterConnection.in_cluster()
    assert error_type(refused.value) is ErrorType.INVALID_CONFIG


async def test_moments_are_judged_by_the_earlier_of_the_server_s_clock_and_ours() -> None:
    """S18: one answer of one replica with a wrong clock must not make a timeout expire."""
    for error, earlier in ((timedelta(minutes=10), timedelta(0)), (timedelta(minutes=-10), timedelta(minutes=-10))):
        async with ApiServer(clock_error=error) as api, ClusterConnection.to(api.url, token="abc") as connection:
            assert connection.now() <= datetime.now(UTC), "nothing has been heard"
            await connection.cluster_uid()
            assert abs(connection.now() - datetime.now(UTC) - earlier) < timedelta(seconds=3)
            assert connection.now() <= datetime.now(UTC)
