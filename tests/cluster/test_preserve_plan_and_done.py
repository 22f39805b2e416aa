"""What `nodewarden preserve plan` says of machines is what is done with them: tried on random machines, pools and annotations.

The objects are on a simulated API server. The plan reads them as files; a scan's index says of which machines something is to be
done, in its order; the real activity does it, as an episode has it done; then the plan of the objects as they are by then has
nothing left to say. `NODEWARDEN_TEST_PLANS` says how many clusters, `NODEWARDEN_TEST_SEED` from which number on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

import orjson

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import MACHINE_DEPLOYMENTS, MACHINE_SETS, PRESERVATION_POLICIES
from activities.cluster.objects.decoding import decode_node
from activities.cluster.objects.machines_decoding import read_machine
from activities.cluster.watch.intake import PreservationIntake
from activities.cluster.watch.kinds import Destination, ReadKind
from activities.cluster.watch.offline import ClusterSnapshot
from activities.contracts.preservation import Wish
from policy.checks.fence_policies import OF_FILES
from policy.objects.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION, ZONE_LABEL
from policy.preservation.keep_or_release import Automatic, PreservationAction, PreservationDecision
from policy.preservation.machine_snapshot import ENDED_ANNOTATION
from policy.preservation.preservation_index import PreservationIndex, PreservationNeed
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from policy.values.machine_apis import MCM
from policy.values.mode import MODE_KEY, Mode
from policy.values.object_refs import ObjectRef
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.plans.cluster_objects import Manifest
from starter.plans.preserve_plans import PreservePlan, planned
from tests.cluster.builders import CHECKS, check, owner
from tests.cluster.builders import definition as of_checks
from tests.cluster.test_preserving import DEFINITIONS, GROUP, MACHINES, NOW, Surroundings, definition
from tests.documents import document

PLANS = int(os.environ.get("NODEWARDEN_TEST_PLANS", "40"))
FOUND = (48, 101, 1720)
"""Clusters in which the two have differed, beside some of the first."""
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
VALUES = ("now", "when-failed", "auto-preserved", "false", "true", "some-day")
SETS = f"/apis/{GROUP}/v1alpha1/namespaces/shoot/machinedeployments"
POLICIES = "/apis/nodewarden.io/v1alpha1/preservationpolicies"
LIMITED = "its mode is"
"""Of that a scan has the episode look: how far it goes, the mode says then."""
Object = dict[str, Any]


def once_in(chance: Random, times: int) -> bool:
    return chance.randrange(times) == 0


def annotations(chance: Random) -> dict[str, str]:
    """What people and pools may have written on a Node or a Machine."""
    found = {PRESERVE_ANNOTATION: chance.choice(VALUES)} if once_in(chance, 3) else {}
    found |= {PRESERVE_FOR_ANNOTATION: chance.choice(["2h", "90m", "soon"])} if once_in(chance, 6) else {}
    return found | ({ISOLATE_ANNOTATION: chance.choice(["true", "false"])} if once_in(chance, 8) else {})


def drawn(seed: int) -> Iterator[tuple[str, Object]]:
    """Path and object of each, in the order in which they are created."""
    chance = Random(f"preserve {seed}")
    for number in range(chance.choice([0, 1, 1, 2])):
        spec: Object = {"selector": {"matchLabels": {"pool": "ab"[number]}}, "autoPreserveFailedMax": chance.randint(0, 2)}
        spec |= {"machinePreserveTimeout": "24h"} if once_in(chance, 2) else {}
        spec |= {"isolate": True} if once_in(chance, 4) else {}
        spec |= {"zones": ["a", "b"]} if once_in(chance, 4) else {}
        head = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "PreservationPolicy", "metadata": {"name": f"pool-{number}"}}
        yield POLICIES, {**head, "spec": spec}
    for name in ("d1", "d2"):
        cap = {"autoPreserveFailedMachineMax": chance.randint(0, 2)} if once_in(chance, 2) else {}
        head = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": name, "namespace": "shoot"}}
        yield SETS, {**head, "spec": {"replicas": 3, **cap}}
    if once_in(chance, 2):
        mode = {MODE_KEY: chance.choice([*Mode]).value} if once_in(chance, 3) else {}
        spec = {
            "minHealthy": chance.choice([0, 1, "60%"]),
            "selector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
        }
        spec["unhealthyConditions"] = [{"type": "Ready", "status": each, "duration": "300s"} for each in ("False", "Unknown")]
        whole = check(**spec)
        yield CHECKS, whole | {"metadata": whole["metadata"] | {"annotations": mode}}
    for number in range(chance.randint(2, 6)):
        labels = {"pool": chance.choice("abc"), ZONE_LABEL: chance.choice("ab")}
        labels |= {MODE_KEY: chance.choice([*Mode]).value} if once_in(chance, 12) else {}
        labels |= {EXCLUDE_LABEL: "true"} if once_in(chance, 12) else {}
        ready = chance.choice(["True", "False", "Unknown"])
        node: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": labels, "annotations": annotations(chance)},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
        }
        alone = once_in(chance, 6)
        if alone or not once_in(chance, 6):
            yield "/api/v1/nodes", node
        if not alone:
            phase = chance.choice(["Running", "Running", "Failed", "Failed", "Failed", "Pending"])
            current: Object = {"phase": phase, "lastUpdateTime": "2026-11-21T10:00:00Z"}
            written = annotations(chance)
            if once_in(chance, 3):
                ends = NOW + timedelta(hours=chance.choice([-1, 1, 30]), minutes=number)
                current["preserveExpiryTime"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
            elif once_in(chance, 6) and phase == "Failed":
                written[ENDED_ANNOTATION] = "2026-11-21T11:00:00Z"
            yield (
                MACHINES,
                {
                    "apiVersion": f"{GROUP}/v1alpha1",
                    "kind": "Machine",
                    "metadata": {
                        "name": f"w{number}",
                        "namespace": "shoot",
                        "labels": {"node": f"n{number}"} | ({"pool": chance.choice("ab")} if once_in(chance, 3) else {}),
                        "annotations": written,
                        "ownerReferences": [
                            owner("MachineDeployment", api_version=f"{GROUP}/v1alpha1") | {"name": chance.choice(["d1", "d2"])}
                        ],
                    },
                    "spec": {},
                    "status": {"currentStatus": current},
                },
            )


async def there(person: ApiClient) -> list[Object]:
    """All of it as `kubectl get -o yaml` prints it."""
    found = list[Object]()
    for path, kind in ((POLICIES, "PreservationPolicy"), (SETS, ""), ("/api/v1/nodes", "Node"), (MACHINES, ""), (CHECKS, "")):
        version = "v1" if kind == "Node" else "nodewarden.io/v1alpha1" if kind else ""
        found += [({"apiVersion": version, "kind": kind} if kind else {}) | each for each in (await person.list(path))["items"]]
    return found


def plan_of(objects: list[Object], now: datetime) -> PreservePlan:
    return planned([Manifest(document=each, source="cluster") for each in objects], now)


def needs(objects: list[Object], now: datetime) -> tuple[PreservationNeed, ...]:
    """What a scan would have done, in its order: these failures have settled."""
    index, cluster = PreservationIndex(), ClusterSnapshot(now)
    for each in objects:
        if each["kind"] in {"Node", "NodeHealthCheck"}:
            cluster.put(each, "cluster")
    intake = PreservationIntake(index, lambda: now, namespaces=OF_FILES.machines)
    for each in objects:
        name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
        match each["kind"]:
            case "Node":
                index.put_node(decode_node(orjson.dumps(each)))
            case "Machine":
                ref = ObjectRef(api_version=each["apiVersion"], kind="Machine", name=name, namespace=namespace)
                index.put_machine(ref, read_machine(each, MCM), now - timedelta(hours=1))
            case "NodeHealthCheck":
                pass
            case "PreservationPolicy":
                kind = ReadKind(resource=PRESERVATION_POLICIES, destination=Destination.POOLS)
                intake.take(kind, PRESERVATION_POLICIES, name, each)
            case _:
                resource = MACHINE_DEPLOYMENTS[MCM] if each["kind"] == "MachineDeployment" else MACHINE_SETS[MCM]
                intake.take(ReadKind(resource=resource, destination=Destination.SETS), resource, f"{namespace}/{name}", each)
    ledger = cluster.ledger
    failing = ledger.failing(now) if index.keeps_failed else None
    found, left = index.needs(now, ledger.sickness_of, ledger.sick_nodes, failing=failing, mode=ledger.mode_for_pool)
    assert not left
    return found


def to_be_done(decision: PreservationDecision) -> str:
    """The act that the plan names, "" where the machine is as it should be, or is its own controller's: one that is not kept."""
    stood = decision.held.expiry is not None
    if decision.action is PreservationAction.NONE or (decision.action is PreservationAction.TERMINATE and not stood):
        return ""
    return decision.action.value


def wanted_of(need: PreservationNeed | None) -> str:
    """The act that a scan has done; marks alone are none."""
    return need.action if need is not None and need.action != PreservationAction.NONE else ""


async def difference(seed: int, counted: Counter[str]) -> list[str]:
    async with ApiServer() as server:
        address = ApiAddress(url=server.url, token="abc")
        async with (
            ApiClient(address, user_agent="a-person") as person,
            ClusterConnection.to(server.url, token="abc") as connection,
        ):
            for kind in ("Machine", "MachineSet", "MachineDeployment"):
                await person.create(DEFINITIONS, definition(kind))
            await person.create(DEFINITIONS, document("deploy/crds/preservationpolicies.nodewarden.io.yaml"))
            await person.create(DEFINITIONS, of_checks())
            await person.create("/api/v1/namespaces", {"metadata": {"name": "shoot"}})
            world = Surroundings(person, connection)
            for path, each in drawn(seed):
                created = await person.create(path, each)
                if "status" in each:
                    place = f"{path}/{created['metadata']['name']}/status"
                    await person.patch(place, {"metadata": {"name": created["metadata"]["name"]}, "status": each["status"]})
            return [f"{seed}: {each}" for each in await _compared(world, counted)]


async def _compared(world: Surroundings, counted: Counter[str]) -> list[str]:
    objects = await there(world.person)
    wanted = {each.victim: each for each in needs(objects, world.now)}
    plan = {each.held.victim: each for each in plan_of(objects, world.now).survey.decisions}
    differs = [
        f"{victim}: planned {each.action}: {each.reason}; a scan: {wanted.get(victim)}"
        for victim, each in plan.items()
        if to_be_done(each) != wanted_of(wanted.get(victim)) and LIMITED not in each.reason
    ]
    if any(each.begins_for_pool and each.automatic is Automatic.NOTHING for each in plan.values()):
        # One that bears the pool's annotation and is not kept yet takes the place of another only once it is (S24).
        return differs
    for victim, need in wanted.items():
        decision = plan[victim]
        wish = Wish(automatic=need.automatic, surplus=bool(need.released))
        hold = await world.hold(node=decision.held.node_name, machine=need.machine, wish=wish, unhealthy=need.unhealthy)
        counted[need.action] += 1
        stays = hold.ended and not hold.terminate and not hold.well
        did = "Terminating" if hold.terminate else "Failed" if stays else hold.phase
        drains = decision.preserved and bool(decision.held.failed) and not decision.drain_waits
        drains = drains and decision.action in {PreservationAction.PRESERVE, PreservationAction.DRAIN}
        if not hold.gone and (did, hold.expiry, hold.drain) != (
            decision.phase,
            decision.expiry,
            drains and decision.held.node is not None,
        ):
            differs.append(f"{victim}: planned {decision.phase} until {decision.expiry}: {decision.reason}; done: {hold}")
    for after in plan_of(await there(world.person), world.now).survey.decisions:
        before = plan[after.held.victim]
        if after.held.victim not in wanted:
            continue  # what is kept by now may have closed the circuit breaker of a check for others
        if to_be_done(after) not in {"", PreservationAction.DRAIN} or (before.preserved and after.expiry != before.expiry):
            differs.append(f"{after.held.victim}: planned {before.action}: {before.reason}; then {after.action}: {after.reason}")
    return differs


async def test_machines_are_kept_released_and_given_up_as_their_plan_shows() -> None:
    """S21, S22, S23, S24, S27, S44: the same machines, until the same moment, and nothing is left to be done then."""
    counted, differs = Counter[str](), list[str]()
    for seed in (*FOUND, *range(FIRST_SEED, FIRST_SEED + PLANS)):
        differs += await difference(seed, counted)
    assert not differs, f"{len(differs)}\n" + "\n".join(differs[:12])
    assert set(counted) >= {each.value for each in PreservationAction}, counted
