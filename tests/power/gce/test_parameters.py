"""How an instance of Compute Engine is named: in parameters, in a providerID, and in the one spelling that is pinned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.power.gce.driver import Disk
from policy.fence.drivers import parameters_of
from policy.fence.drivers.gce import GCE, PUBLIC_API, GceInstance, instance_of_provider_id
from tests.power.targets import endpoint_of

GIVEN = {"project": "a-project", "zone": "us-central1-a", "instance": "node-1"}

LABELS = st.from_regex(r"[a-z](?:[-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
PROJECTS = st.one_of(LABELS, st.builds("{}.{}:{}".format, LABELS, LABELS, LABELS))
ODD = st.one_of(
    LABELS, LABELS.map(str.upper), LABELS.map("{}\n".format), LABELS.map(" {}".format), st.text("a-Z0:/.% é\n", max_size=6)
)


@settings(max_examples=50)
@given(project=PROJECTS, zone=LABELS, instance=LABELS)
def test_a_provider_id_gives_what_leads_back_to_it(project: str, zone: str, instance: str) -> None:
    """S9, S10: the endpoint of a node's instance is its providerID."""
    provider_id = f"gce://{project}/{zone}/{instance}"
    found = instance_of_provider_id(provider_id)
    assert found == {"project": project, "zone": zone, "instance": instance}
    assert GCE.endpoint(found) == endpoint_of("gce", found) == provider_id


@given(
    project=ODD, zone=ODD, instance=ODD, scheme=st.sampled_from(["gce", "GCE", "aws", ""]), more=st.sampled_from(["", "/", "/x"])
)
def test_a_provider_id_is_read_whole_or_not_at_all(project: str, zone: str, instance: str, scheme: str, more: str) -> None:
    """S10: half of one would name somebody else's machine."""
    provider_id = f"{scheme}://{project}/{zone}/{instance}{more}"
    found = instance_of_provider_id(provider_id)
    assert not found or GCE.endpoint(found) == provider_id


@pytest.mark.parametrize(
    ("parameters", "api"),
    [
        ({}, PUBLIC_API),
        ({"api-endpoint": "compute.example.p.googleapis.com"}, "https://compute.example.p.googleapis.com"),
        ({"api-endpoint": "https://Compute.Example.org:8443/"}, "https://compute.example.org:8443"),
        ({"api-endpoint": "http://127.0.0.1:8080"}, "http://127.0.0.1:8080"),
        ({"api-endpoint": "http://localhost"}, "http://localhost"),
        ({"api-endpoint": "http://[::1]:80"}, "http://[::1]:80"),
        ({"api-endpoint": "https://10.0.0.7"}, "https://10.0.0.7"),
    ],
)
def test_the_api_is_asked_where_it_is_said(parameters: dict[str, str], api: str) -> None:
    found = GceInstance.parse(GIVEN | parameters)
    assert found.api == api
    assert found.endpoint == "gce://a-project/us-central1-a/node-1"


def test_the_instance_may_be_called_plug_as_fence_agents_do() -> None:
    by_plug = {"project": "a-project", "zone": "us-central1-a", "plug": "node-1"}
    assert GCE.endpoint(by_plug) == GCE.endpoint(GIVEN) == GCE.endpoint(by_plug | GIVEN)


def test_a_project_and_a_zone_alone_identify_no_node() -> None:
    """S10."""
    assert parameters_of("gce") is GCE
    assert frozenset({"instance", "plug"}) == GCE.identifying
    assert frozenset({"service-account-json"}) == GCE.secret
    assert not GCE.needed  # the worker may have an identity of its own


@pytest.mark.parametrize(
    ("volume", "handle"),
    [
        ("data", "projects/a-project/zones/us-central1-a/disks/data"),
        ("projects/other/zones/us-east1-b/disks/data", "projects/other/zones/us-east1-b/disks/data"),
        ("projects/example.com:p/regions/us-east1/disks/data", "projects/example.com:p/regions/us-east1/disks/data"),
        ("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/data", "projects/a-project/zones/us-central1-a/disks/data"),
        ("projects/UNSPECIFIED/regions/UNSPECIFIED/disks/data", "projects/a-project/regions/us-central1/disks/data"),
        ("https://www.googleapis.com/compute/v1/projects/p/zones/z/disks/data", "projects/p/zones/z/disks/data"),
    ],
)
def test_a_disk_has_one_handle(volume: str, handle: str) -> None:
    near = GceInstance.parse(GIVEN)
    assert Disk.parse(volume, near).handle == handle
    assert Disk.parse(handle, near).handle == handle
