"""What a worker that serves a cluster and its devices loads before the first node fails there, and how it lives with it.

A cloud's client library takes more than a second of a core to import. Left to the first act, it is imported while nodes wait to
be isolated, and the whole worker stands still with them. Which libraries a cluster needs, its fence configuration says.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence

from temporalio.exceptions import ApplicationError

from activities.contracts.device_check import FenceDeviceActivities, FenceDevicesRequest
from activities.power.registry import load

_log = logging.getLogger(__name__)

COLLECT_AFTER = (10_000, 20, 20)
"""New objects before the youngest are looked through, and how many such rounds before the older ones are."""


async def load_drivers(
    cluster: str, devices: FenceDeviceActivities, nodes: Sequence[str], *, loads: Callable[[str], None] = load
) -> None:
    """Load what the drivers of these nodes' devices need. devices: finds them. What can't be found out now, the first act
    loads."""
    try:
        found = await devices.find_devices(FenceDevicesRequest(cluster=cluster, nodes=tuple(nodes)))
    except ApplicationError as error:
        _log.info("cluster %s: no power driver is loaded yet: %s", cluster, error.message)
        return
    for driver in sorted({each.device.driver for node in found.nodes for each in node.devices}):
        await asyncio.to_thread(loads, driver)


def spare_collector() -> None:
    """What is loaded by now stays for as long as the process: the garbage collector need not look through it again and again.

    With the interpreter's own thresholds that took about a tenth of the worker's CPU (`python -m benchmarks.episode`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
