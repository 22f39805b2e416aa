"""What an episode pins of a machine and of its devices, for requests to them."""

from __future__ import annotations

from collections.abc import Mapping

from activities.contracts.target import Target
from activities.power.registry import factory_of
from policy.episode.messages import Pinned
from policy.fence.plan import PowerDevice


def target_with(device: PowerDevice) -> Target:
    """One whose only device is pinned."""
    return Target(
        cluster="prod",
        pinned=Pinned(node="node-7", uid="uid-1", endpoints=(device.endpoint,), levels=((device.endpoint,),)),
        incident="incident-1",
        kind="Fencing",
        workflow_id="episode/prod/node-7",
        run_id="run-1",
    )


def endpoint_of(driver: str, parameters: Mapping[str, str]) -> str:
    """As the driver itself says it."""
    return factory_of(driver).endpoint_of(parameters)
