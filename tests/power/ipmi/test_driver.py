"""IPMI over real UDP: what only IPMI has. What every driver promises is tried in `test_conformance.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.errors import ErrorType
from policy.fence.power import PowerState, system_of
from simulator.bmc.bmc import start_bmc
from simulator.bmc.chassis import Chassis
from tests.power.conftest import PASSWORD, USERNAME, Stand, fails, ipmi_driver, within


async def test_a_bmc_that_hangs_while_read_is_unreachable(python_stand: Stand) -> None:
    python_stand.machine.set_faults(hang=True)
    await fails(python_stand.driver().read(within(1.5)), ErrorType.UNREACHABLE, "login succeeded but 'read' was not answered")


async def test_a_slow_bmc_gets_a_command_once(stand: Stand) -> None:
    """S33: a question is asked again when the answer is long in coming, a command never."""
    stand.machine.set_faults(delay=1.1)
    await stand.driver().off(within(10))
    stand.machine.set_faults()
    await stand.driver().read(within(10))  # a BMC takes one after the other, so a copy of the off would be done by now
    assert len(stand.machine.commands("off")) == 1


async def test_a_refusal_is_never_taken_for_success(stand: Stand) -> None:
    """A BMC that says why it refuses has done nothing; one with a mere 'unspecified error' leaves it open."""
    stand.machine.set_faults(refuse=True)
    await fails(stand.driver().off(within(10)), ErrorType.AMBIGUOUS if stand.bmc.kind == "ipmi_sim" else ErrorType.TRANSIENT)
    assert stand.machine.power == "on"


async def test_a_refusal_because_the_machine_is_so_already_is_success(python_stand: Stand) -> None:
    """Some BMCs refuse on for a machine that is on (completion code D5h)."""
    python_stand.machine.set_faults(refuse=True)
    await python_stand.driver().on(within(10))
    assert python_stand.machine.power == "on"


async def test_a_reading_says_whose_it_is_also_once_the_login_alone_tells(stand: Stand) -> None:
    """S39."""
    driver, own = stand.driver(), (system_of(str(stand.bmc.system_uuid)),)
    assert (await driver.read(within(10))).serves == own
    assert (await driver.read(within(10))).serves == own
    assert (await stand.driver(**{"check-system": "false"}).read(within(10))).serves == ()


async def test_a_bmc_whose_address_is_given_to_another_machine_says_so_at_once(chassis: Chassis, tmp_path: Path) -> None:
    """S39: whatever is remembered of the one that was there before."""
    there: list[tuple[str, ...]] = []
    port = 0
    for name in ("node-1", "node-2"):
        chassis.machine(name)
        bmc = await start_bmc(chassis.url, name, USERNAME, PASSWORD, kind="python", state_dir=tmp_path, port=port)
        try:
            port = bmc.port
            there.append((await ipmi_driver(port).read(within(10))).serves)
            assert there[-1] == (system_of(str(bmc.system_uuid)),)
        finally:
            await bmc.stop()
    assert len(set(there)) == 2


@pytest.mark.parametrize("parameters", [{"cipher": "3"}, {"privilege": "operator"}, {"privilege": "administrator"}])
async def test_the_login_can_be_told_cipher_and_privilege(stand: Stand, parameters: dict[str, str]) -> None:
    assert (await stand.driver(**parameters).read(within(10))).state is PowerState.ON


async def test_a_cipher_that_was_asked_for_is_not_replaced_by_a_weaker_one(stand: Stand) -> None:
    await fails(stand.driver(cipher="17").read(within(5)), ErrorType.NOT_SUPPORTED, "cipher suites")
