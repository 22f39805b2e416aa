"""The page of the chart: its objects, and the container as it would run, installed by Helm on an API server used by people."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from activities.cluster.api.paths import Resource
from activities.cluster.watch.kinds import Destination, Reader, read_by
from simulator.api.access.certificates import issue
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.cluster import kubeconfig_of
from starter.client import Nodewarden
from starter.web.auth import COOKIE
from tests.deploy.helm import NAMESPACE, bare, of_kind, rendered
from tests.deploy.test_chart_life import ACCOUNTS, DEPLOYMENTS, Act, Api, install
from tests.deploy.test_chart_life import api as api  # noqa: PLC0414 - fixtures
from tests.deploy.test_chart_life import helm as helm  # noqa: PLC0414
from tests.deploy.test_chart_life import person as person  # noqa: PLC0414
from tests.documents import documents, path_of
from tests.starter.process import nodewarden
from workers.configuration.settings import load

PAGE: dict[str, Any] = {"enabled": True, "replicas": 2, "tls": {"secretName": "page-tls"}, "sessionKeys": "page-keys"}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
HEALTH_CHECKS = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


def _page(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in rendered(values, template="page")}


def test_there_is_none_unless_it_is_wanted() -> None:
    assert rendered(template="page") == []


def _rules(ui: dict[str, Any]) -> list[dict[str, Any]]:
    """What its account may."""
    objects = rendered({"ui": ui})
    bound = {
        each["roleRef"]["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for each in of_kind(objects, kind)
        if "nodewarden-page" in [subject["name"] for subject in each["subjects"]]
    }
    roles = [each for kind in ("Role", "ClusterRole") for each in of_kind(objects, kind) if each["metadata"]["name"] in bound]
    assert {each["metadata"]["name"] for each in roles} == bound
    for kind in ("Role", "RoleBinding"):
        spaces = [each["metadata"]["namespace"] for each in of_kind(objects, kind) if each["metadata"]["name"] in bound]
        assert spaces == (["medik8s-leases"] if ui.get("readsObjects", True) else []), "no other namespace is read"
    [deployment] = [each for each in of_kind(objects, "Deployment") if each["metadata"]["name"] == "nodewarden-page"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "nodewarden-page"
    return [rule for role in roles for rule in role["rules"]]


def test_its_account_may_review_tokens_and_list_what_checks_judge() -> None:
    """S42: whoever takes the page over changes nothing with what it is given, and learns no secret."""
    asks = [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]
    assert _rules({**PAGE, "readsObjects": False}) == asks
    reads = [rule for rule in _rules(PAGE) if rule not in asks]
    assert {verb for rule in reads for verb in rule["verbs"]} == {"get", "list"}
    resources = {resource for rule in reads for resource in rule["resources"]}
    assert {"nodes", "nodehealthchecks", "machines"} <= resources
    assert not resources & {"secrets", "configmaps", "pods", "events", "volumeattachments"}


def _group(resource: Resource) -> str:
    return resource.api_version.rpartition("/")[0]


def test_its_account_may_read_what_one_reading_of_a_cluster_reads_and_nothing_else() -> None:
    """What is not among it is not known: of a template, whether it is there."""
    unread = {Destination.FENCE_POLICIES, Destination.NODE_LEASES}  # in single namespaces, which the chart does not know
    kinds = [kind for kind in read_by(Reader.SNAPSHOT) if kind.destination not in unread]
    lists = {(_group(kind.resource), kind.resource.plural, kind.only, "list") for kind in kinds}
    own = ("fencingtemplates", "volumedetachmenttemplates", "machinedeletiontemplates", "reboottemplates")
    templates = {("nodewarden.io", each, "", "get") for each in own}
    for group, made in (
        ("self-node-remediation.medik8s.io", "selfnoderemediation"),
        ("machine-deletion-remediation.medik8s.io", "machinedeletionremediation"),
        ("fence-agents-remediation.medik8s.io", "fenceagentsremediation"),
        ("infrastructure.cluster.x-k8s.io", "metal3remediation"),
    ):
        lists.add((group, f"{made}s", "", "list"))
        templates.add((group, f"{made}templates", "", "get"))
    roles = {each["metadata"]["name"]: each for each in of_kind(rendered({"ui": PAGE}), "ClusterRole")}
    granted = {
        (group, resource, name, verb)
        for rule in roles["nodewarden-page-reads"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ("",))
        for verb in rule["verbs"]
    }
    assert granted == lists | templates


def test_no_selector_of_the_workers_finds_it() -> None:
    """Their NetworkPolicy lets pods reach power devices, and the Service of the metrics would send Prometheus to it."""
    network = {"enabled": True, "bmc": ["10.20.0.0/16"], "pageFrom": ["ingress"], "metricsFrom": ["monitoring"]}
    values = {"ui": PAGE, "network": network, "metrics": {"proxy": {"image": "proxy@sha256:0"}}, "podLabels": {"team": "nodes"}}
    objects, page = rendered(values), _page(values)
    labels = page["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = {
        f"{each['kind']}/{each['metadata']['name']}": selector
        for each in objects
        for selector in [each.get("spec", {}).get("selector") or each.get("spec", {}).get("podSelector")]
        if isinstance(selector, dict)
    }
    finding = {name for name, selector in selectors.items() if selector.get("matchLabels", selector).items() <= labels.items()}
    assert finding == {f"{kind}/nodewarden-page" for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")}
    spec = page["NetworkPolicy"]["spec"]
    assert "10.20.0.0/16" not in str(spec)
    assert spec["ingress"] == [
        {
            "ports": [{"protocol": "TCP", "port": 8443}],
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        }
    ]


@pytest.mark.parametrize(("ui", "scheme", "port"), [(PAGE, "HTTPS", 443), ({"enabled": True, "behindProxy": True}, "HTTP", 80)])
def test_service_and_probes_speak_as_the_container_does(ui: dict[str, Any], scheme: str, port: int) -> None:
    page = _page({"ui": ui})
    [container] = page["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {each.partition("=")[0] for each in container["args"]} & {"--tls-cert", "--tls-key", "--behind-proxy"} == (
        {"--tls-cert", "--tls-key"} if scheme == "HTTPS" else {"--behind-proxy"}
    )
    [open_port] = container["ports"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": open_port["name"], "scheme": scheme}
    [served] = page["Service"]["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port, open_port["name"])
    assert f"--port={open_port['containerPort']}" in container["args"]


def test_it_reads_encrypted_histories_with_a_file_of_keys(tmp_path: Path) -> None:
    """Its account may read no Secret; the workers' settings name one. Of what only workers do it knows nothing."""
    told = {"secrets": {"notifications": [{"secret": "pagers"}]}, "settings": {"scan": {"cap": 2}}}
    page = _page({"ui": PAGE, "keys": {"encryptPayloads": True}, **told})
    (tmp_path / "nodewarden.yaml").write_text(page["ConfigMap"]["data"]["nodewarden.yaml"], encoding="utf-8")
    settings = load(config=tmp_path / "nodewarden.yaml")
    assert settings.temporal.payload_keys_secret == ""
    assert settings.temporal.payload_keys_file in _mounted(page["Deployment"])
    assert (settings.notifications, settings.scan.cap) == ((), 2)


def test_each_file_that_it_is_told_of_is_mounted() -> None:
    deployment = _page({"ui": PAGE})["Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    named = {Path(each.partition("=")[2]) for each in container["args"] if "=/" in each}
    assert len(named) == 3
    assert named <= set(_mounted(deployment))


def _mounted(deployment: dict[str, Any]) -> dict[Path, tuple[str, str]]:
    """Which entry of which Secret is where."""
    pod = deployment["spec"]["template"]["spec"]
    at = {each["name"]: Path(each["mountPath"]) for each in pod["containers"][0]["volumeMounts"]}
    return {
        at[volume["name"]] / item["path"]: (source["secret"]["name"], item["key"])
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        for item in source.get("secret", {}).get("items", ())
    }


def test_the_page_of_a_release_is_the_same_with_other_settings_but_for_its_pods() -> None:
    """A selector can't change."""
    one, other = (
        _page({"ui": PAGE}),
        _page({"ui": {**PAGE, "replicas": 3}, "image": {"tag": "9"}, "podLabels": {"team": "nodes"}}),
    )
    assert bare(one["Service"]) == bare(other["Service"])
    assert one["Deployment"]["spec"]["selector"] == other["Deployment"]["spec"]["selector"]


@asynccontextmanager
async def _running(person: ApiClient, folder: Path) -> AsyncIterator[str]:
    """The container of the installed Deployment as a process here, its mounts below `folder`; where it listens."""
    deployment = await person.get(f"{DEPLOYMENTS}/nodewarden-page")
    configured = await person.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodewarden-page")
    files = {Path("/etc/nodewarden/nodewarden.yaml"): configured["data"]["nodewarden.yaml"].encode()}
    for path, (name, key) in _mounted(deployment).items():
        files[path] = base64.b64decode((await person.get(f"{SECRETS}/{name}"))["data"][key])
    for path, content in files.items():
        here = folder / path.relative_to("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(content)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    arguments = [each.replace("=/etc", f"={folder}/etc").replace("--port=8443", "--port=0") for each in container["args"]]
    environment = {each["name"]: each["value"].replace("/etc", f"{folder}/etc") for each in container["env"]}
    async with nodewarden(*arguments, **environment) as process:
        said = await process.says("the page is at ")
        yield said.partition("the page is at ")[2].split()[0].replace("0.0.0.0", "127.0.0.1")  # noqa: S104


def _check() -> dict[str, Any]:
    template = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "namespace": NAMESPACE, "name": "none"}
    spec = {
        "selector": {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "DoesNotExist"}]},
        "minHealthy": "51%",
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
        "remediationTemplate": template,
    }
    return {"metadata": {"name": "all"}, "spec": spec}


async def _health_check(person: ApiClient) -> None:
    """One whose template is missing, of the NodeHealthCheck operator."""
    [definition] = documents("simulator/crds/nodehealthchecks.yaml")
    await person.create(path_of(definition), definition)
    check = {"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", **_check()}
    async with asyncio.timeout(20):
        while True:
            try:
                await person.create(HEALTH_CHECKS, check)
            except ApiError as error:  # it is served a moment after its definition was accepted
                if not error.not_found:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


async def _account(api: Api, person: ApiClient, name: str, *roles: str) -> str:
    """A ServiceAccount with these ClusterRoles, and a token of it."""
    await person.create(ACCOUNTS, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    for role in roles:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        await person.create(BINDINGS, {"metadata": {"name": f"{name}-{role}"}, "roleRef": reference, "subjects": [subject]})
    return await api.token_of(name, person)


async def _install_page(
    helm: Act, api: Api, person: ApiClient, *, ui: dict[str, Any], clusters: dict[str, Path], server: str
) -> None:
    """Its account's own kubeconfig is where each of these clusters says."""
    named = {"this-cluster": None, **{name: {"kubeconfig": str(file)} for name, file in clusters.items()}}
    await install(helm, {"ui": ui, "settings": {"temporal": {"address": server}, "clusters": named}})
    authority = api.address.certificate_authority
    own = ApiAddress(url=api.address.url, token=await api.token_of("nodewarden-page", person), certificate_authority=authority)
    for file in clusters.values():
        file.write_text(kubeconfig_of(own), encoding="utf-8")


@pytest.mark.system
@pytest.mark.timeout(240)
async def test_people_read_and_act_through_the_page_that_the_chart_has_installed(
    *, helm: Act, api: Api, person: ApiClient, server: str, warden: Nodewarden, cluster: str, tmp_path: Path
) -> None:
    """S42. With two replicas: who logs in at one is known to the other, and its forms are taken there."""
    await _install_page(helm, api, person, ui=PAGE, clusters={cluster: tmp_path / "kubeconfig"}, server=server)
    authority = issue("127.0.0.1")
    pem, keys = authority.server_pem.decode(), secrets.token_hex(32)
    await person.create(SECRETS, {"metadata": {"name": "page-tls"}, "data": _encoded({"tls.crt": pem, "tls.key": pem})})
    await person.create(SECRETS, {"metadata": {"name": "page-keys"}, "data": _encoded({"session-keys": keys})})
    ann = await _account(api, person, "ann", "nodewarden-operator")
    bob = await _account(api, person, "bob", "nodewarden-viewer")
    eve = await _account(api, person, "eve")
    await person.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    await _health_check(person)
    episode = await warden.fence(cluster, "node-1", reason="drill")

    trust = ssl.create_default_context(cadata=authority.authority_pem.decode())
    async with (
        _running(person, tmp_path / "one") as one,
        _running(person, tmp_path / "two") as two,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), cookie_jar=aiohttp.DummyCookieJar()) as browser,
    ):
        assert one.startswith("https://")
        assert await _asked(browser, f"{one}healthz") == (200, "ok\n")
        assert (await _asked(browser, f"{one}api/v1/clusters/{cluster}"))[0] == 401
        code, said = await _asked(browser, f"{one}api/v1/clusters/{cluster}", Authorization=f"Bearer {eve}")
        assert (code, "may not look" in said) == (403, True)
        async with browser.post(f"{one}login", data={"token": ann, "then": f"/c/{cluster}"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, f"/c/{cluster}")
            session = answer.headers["Set-Cookie"].partition(";")[0]
        assert session.startswith(COOKIE)
        code, fleet = await _asked(browser, f"{two}api/v1/clusters/{cluster}/fleet", Cookie=session)
        assert (code, json.loads(fleet)["nodes"]) == (200, 1), fleet
        assert [each.split(":")[0] for each in json.loads(fleet)["unread"]] == ["configmaps"], "they may hold credentials"
        code, why = await _asked(browser, f"{two}api/v1/clusters/{cluster}/nodes/node-1", Cookie=session)
        assert (code, "FencingTemplate/nodewarden/none, which does not exist" in why) == (200, True), why
        code, page = await _asked(browser, f"{two}c/{cluster}/nodes/node-1", Cookie=session)
        assert (code, "Open episode" in page) == (200, True)
        code, form = await _asked(browser, f"{two}c/{cluster}/acts/abort?node=node-1", Cookie=session)
        assert (code, f"Said by system:serviceaccount:{NAMESPACE}:ann" in form) == (200, True)
        shown = form.partition('name="form_token" value="')[2].partition('"')[0]
        said_here = {"verb": "abort", "node": "node-1", "reason": "enough", "form_token": shown}
        async with browser.post(f"{one}c/{cluster}/acts", data=said_here, headers={"Cookie": session}) as answer:
            assert answer.status == 200, await answer.text()
        assert f"by system:serviceaccount:{NAMESPACE}:ann: enough" in (await episode.result()).message
        act = {"verb": "fence", "node": "node-2", "reason": "x"}
        async with browser.post(
            f"{one}api/v1/clusters/{cluster}/acts", json=act, headers={"Authorization": f"Bearer {bob}"}
        ) as answer:
            assert answer.status == 403, await answer.text()


def _encoded(texts: dict[str, str]) -> dict[str, str]:
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


async def _asked(browser: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    async with browser.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.text()


@pytest.mark.system
@pytest.mark.timeout(240)
async def test_a_page_that_may_not_read_the_clusters_objects_says_so_wherever_they_would_be(
    *, helm: Act, api: Api, person: ApiClient, server: str, warden: Nodewarden, cluster: str, tmp_path: Path
) -> None:
    """S44, `ui.readsObjects: false`: what the scanner and Temporal know is there; what is not read is not called absent."""
    ui = {"enabled": True, "behindProxy": True, "readsObjects": False}
    await _install_page(helm, api, person, ui=ui, clusters={cluster: tmp_path / "kubeconfig"}, server=server)
    bob = await _account(api, person, "bob", "nodewarden-viewer")
    await _health_check(person)
    await warden.start_scanner(cluster)
    episode = await warden.fence(cluster, "node-1", reason="drill")
    bearing = {"Authorization": f"Bearer {bob}"}
    unread = f"the objects of the cluster {cluster} are not read here (GET /api/v1/nodes: 403 Forbidden)"
    async with (
        _running(person, tmp_path / "one") as one,
        aiohttp.ClientSession(headers=bearing, cookie_jar=aiohttp.DummyCookieJar()) as browser,
    ):

        async def told(path: str) -> tuple[int, Any]:
            code, said = await _asked(browser, f"{one}api/v1/clusters/{cluster}{path}")
            return code, json.loads(said)

        async def page(path: str) -> str:
            code, said = await _asked(browser, f"{one}c/{cluster}{path}")
            assert code == 200, said
            return html.unescape(re.sub(r"<[^>]+>", "", said))

        for path in ("", "/status", "/stops", "/episodes", "/checks", "/waiting", "/nodes", "/permits", "/history", "/preserved"):
            assert (await told(path))[0] == 200, path
        code, fleet = await told("/fleet")
        assert (code, fleet["error"].startswith(unread)) == (503, True), fleet
        changed = json.dumps({"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck"} | _check())
        headers = {"Content-Type": "application/json"}
        async with browser.post(f"{one}api/v1/clusters/{cluster}/what-if", data=changed, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"].startswith(unread)) == (503, True)
        for node, entries in (("node-1", 1), ("nobody", 0)):
            code, known = await told(f"/timeline/{node}")
            assert (code, len(known["entries"]), known["unread"].startswith(unread)) == (200, entries, True), known
            code, why = await told(f"/nodes/{node}")
            assert (code, why["problems"][0].startswith(unread), why["checks"]) == (200, True, []), why
            shown = await page(f"/nodes/{node}")
            assert "Not known: the cluster's objects are not read here." in shown
            assert shown.count(unread) == 1
            assert "Its conditions and the checks' verdicts are not among these" in shown
            assert "which were not read" in await page(f"/nodes/{node}/timeline.svg")
        assert unread in await page("/fleet")
        for path in ("", "/checks", "/kept", "/devices", "/history"):
            assert "can't be read" not in await page(path)
    await episode.abort(who="ann", reason="enough")
