"""Whether what a device says of its machine is the pinned one's word (S39)."""

from __future__ import annotations

import pytest

from policy.episode.messages import Pinned
from policy.fence.power import another_machine, host_of, instance_of, system_of

UUID = "4c4c4544-0042-3510-8051-b4c04f4d3132"
SWAPPED = "44454c4c-4200-1035-8051-b4c04f4d3132"
REVERSED = "32314d4f-c0b4-5180-1035-420044454c4c"
PINNED = Pinned(
    node="ip-10-0-0-7.ec2.internal",
    uid="uid-1",
    provider_id="aws:///us-east-1a/i-0123456789abcdef0",
    system_uuid=UUID,
    instance_id="7146341255239083172",
)


@pytest.mark.parametrize("told", [UUID, UUID.upper(), SWAPPED, REVERSED, UUID.replace("-", "")])
def test_firmwares_disagree_on_the_byte_order_of_one_system_uuid(told: str) -> None:
    assert another_machine((system_of(told),), PINNED) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (system_of("4c4c4544-0042-3510-8051-b4c04f4d3133"), UUID),
        (instance_of("i-0fedcba9876543210"), "i-0123456789abcdef0"),
        (instance_of("1"), "7146341255239083172"),
        (host_of("ip-10-0-0-8.ec2.internal"), "ip-10-0-0-7"),
    ],
)
def test_another_machines_word_is_told_with_both(said: str, words: str) -> None:
    told = another_machine((said,), PINNED)
    assert words in told
    assert said.partition("/")[2] in told


@pytest.mark.parametrize(
    ("said", "pinned"),
    [
        ((), PINNED),
        ((system_of("12345678-1234-5678-90ab-cddeefaabbcc"),), PINNED),
        ((system_of("78563412-3412-7856-90ab-cddeefaabbcc"),), PINNED),
        ((system_of("not a UUID"),), PINNED),
        ((system_of(UUID),), Pinned(node="n", uid="u", system_uuid="")),
        ((system_of(UUID),), Pinned(node="n", uid="u", system_uuid="ffffffff-ffff-ffff-ffff-ffffffffffff")),
        ((system_of(UUID),), Pinned(node="n", uid="u", system_uuid="03000200-0400-0500-0006-000700080009")),
        ((instance_of("1"), instance_of("i-0123456789abcdef0")), Pinned(node="n", uid="u", provider_id="metal://7")),
        ((host_of("ip-10-0-0-7.eu-central-1.compute.internal"),), PINNED),
        ((host_of("i-0123456789abcdef0.ec2.internal"), host_of("rack-3")), PINNED),
        ((host_of("ip-10-0-0-8.ec2.internal"),), Pinned(node="worker-8", uid="u")),
    ],
    ids=str,
)
def test_what_is_not_told_or_not_comparable_is_no_difference(said: tuple[str, ...], pinned: Pinned) -> None:
    assert another_machine(said, pinned) == ""
