"""Which EC2 instance a device means: its parameters, and a Node's providerID in all its spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.fence.drivers.contract import ParameterError
from policy.fence.drivers.ec2 import EC2, Ec2Parameters

REGIONS = (
    "us-east-1",
    "us-west-2",
    "eu-central-1",
    "ap-southeast-7",
    "us-gov-west-1",
    "cn-northwest-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "eu-isoe-west-1",
    "eusc-de-east-1",
    "mx-central-1",
)
PLACES = ("a", "f", "-lax-1a", "-bos-1b", "-wl1-bos-wlz-1", "-wl1-ber-wlz1")


@pytest.mark.parametrize(
    ("url", "amazons"), [(None, True), ("https://ec2.us-east-1.amazonaws.com", True), ("https://collector.example.com", False)]
)
def test_whose_api_it_is_is_told_by_its_url_and_without_one_it_is_amazons(url: str | None, *, amazons: bool) -> None:
    """S40: a worker's own identity goes there."""
    place = {"region": "us-east-1", "instance": "i-0123456789abcdef0"} | ({"endpoint-url": url} if url else {})
    assert Ec2Parameters.parse(place).api_is_amazons is amazons


def from_provider_id(text: str) -> dict[str, str]:
    assert EC2.from_provider_id is not None
    return dict(EC2.from_provider_id(text))


@pytest.mark.parametrize(
    ("provider_id", "expected"),
    [
        ("aws:///us-east-1-wl1-bos-wlz-1/i-0123456789abcdef0", ("us-east-1", "i-0123456789abcdef0")),
        ("aws:///us-east-1/i-0abc", None),  # a region is no zone
        ("aws:////i-0abc", None),
        ("i-0abc", None),
        ("", None),
        ("aws://us-east-1a/i-0abc", None),
        ("aws:///us-east-1a/i-0abc/", None),
        ("aws:///us-east-1a/i-0abc\n", None),
        ("aws:///us-east-1a/i-٠abc", None),
        ("aws:///us-east-1aa/i-0abc", None),
        ("aws:///us-east-1a/i-", None),
        ("aws:///us-east-1a/0123-abcd/fargate-ip-10-0-0-1.ec2.internal", None),  # EKS Fargate has no instance of ours
        ("eks-hybrid:///us-west-2/cluster/mi-0abc", None),
        ("gce://project/us-east1-b/i-0abc", None),
    ],
)
def test_a_provider_id_gives_region_and_instance_or_nothing(provider_id: str, expected: tuple[str, str] | None) -> None:
    """S10: what is not surely an EC2 instance identifies none."""
    assert from_provider_id(provider_id) == ({} if expected is None else dict(zip(("region", "instance"), expected, strict=True)))


@given(
    region=st.sampled_from(REGIONS),
    place=st.sampled_from(PLACES),
    instance=st.text("0123456789abcdef", min_size=8, max_size=17).map("i-{}".format),
)
def test_every_zone_leads_to_its_region_and_to_the_endpoint_that_is_pinned(region: str, place: str, instance: str) -> None:
    """S9: one spelling."""
    found = from_provider_id(f"aws:///{region}{place}/{instance}")
    assert found == {"region": region, "instance": instance}
    assert EC2.endpoint(found) == f"ec2://{region}/{instance}"


def test_a_plug_is_an_instance() -> None:
    assert EC2.endpoint({"region": "us-east-1", "plug": "i-0abc"}) == "ec2://us-east-1/i-0abc"
    assert EC2.endpoint({"region": "us-east-1", "plug": "i-0abc", "instance": "i-0abc"}) == "ec2://us-east-1/i-0abc"


def test_where_a_request_goes_and_what_cuts_off_do_not_change_which_instance_it_is() -> None:
    """S9: a plan with a private endpoint names the same device."""
    more = {"endpoint-url": "https://vpce-1.ec2.us-east-1.vpce.amazonaws.com", "quarantine-group": "sg-0abc"}
    assert EC2.endpoint({"region": "us-east-1", "instance": "i-0abc"} | more) == "ec2://us-east-1/i-0abc"
    assert not set(more) & EC2.identifying
    assert "region" not in EC2.identifying


@pytest.mark.parametrize(
    ("changed", "parameter", "says"),
    [
        ({"region": ""}, "region", "expected a region like us-east-1, got nothing"),
        ({"region": "us-east-1a"}, "region", "got 'us-east-1a'"),
        ({"region": "evil.example/us-east-1"}, "region", "expected a region"),
        ({"instance": ""}, "instance", "expected an instance id like i-0123456789abcdef0, got nothing"),
        ({"instance": "node-1"}, "instance", "got 'node-1'"),
        ({"instance": "i-0abc "}, "instance", "got 'i-0abc '"),
        ({"plug": "i-0def"}, "plug", "expected the same as 'instance' (i-0abc) or nothing, got 'i-0def'"),
        ({"quarantine-group": "quarantine"}, "quarantine-group", "expected the id of a security group"),
        ({"endpoint-url": "ec2.example"}, "endpoint-url", "expected a URL like https://host:port"),
        ({"endpoint-url": "http://10.0.0.1:5000"}, "endpoint-url", "http:// on the loopback"),
        ({"endpoint-url": "http://127.0.0.1.example"}, "endpoint-url", "http:// on the loopback"),
        ({"endpoint-url": "https://user:password@ec2.example"}, "endpoint-url", "expected a URL"),
        ({"endpoint-url": "https://ec2.example/?a=b"}, "endpoint-url", "expected a URL"),
        ({"zone": "us-east-1a"}, "zone", "is not known: expected one of region, instance, plug, endpoint-url, quarantine-group"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(changed: dict[str, str], parameter: str, says: str) -> None:
    with pytest.raises(ParameterError) as caught:
        EC2.endpoint({"region": "us-east-1", "instance": "i-0abc"} | changed)
    assert caught.value.parameter == parameter
    assert says in caught.value.problem


@pytest.mark.parametrize(
    "url",
    ["https://ec2.example", "https://ec2.example:8443/", "https://[2001:db8::1]:443", "http://127.0.0.1:5000", "http://[::1]:1"],
)
def test_an_endpoint_is_by_tls_or_on_the_loopback(url: str) -> None:
    """S12: a session token travels with every request."""
    parsed = Ec2Parameters.parse({"region": "us-east-1", "instance": "i-0abc", "endpoint-url": url})
    assert parsed.endpoint_url == url.rstrip("/")
