"""Which nodes fence configuration names beside a device: a copying mistake there would switch off the wrong machine (S39).

Written names only: `nodeParameters` of templates and FenceConfigs, and a FenceConfig's `nodeName`. It tells who might claim a
device; whether that node's configuration really gives it that one is resolved by whoever asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from policy.fence.drivers import canonical, parameters_of, same_device
from policy.fence.drivers.contract import DriverParameters, ParameterError
from policy.fence.variables import with_node_name

Written = Mapping[str, Any]


def named_beside(objects: Iterable[Written], endpoints: Collection[str], node: str) -> dict[str, str]:
    """The other nodes that these objects name for one of these devices, each with the device. What can't be read of them is
    refused when it is that node's turn; whatever it means, it is not this device."""
    found: dict[str, str] = {}
    specs = [obj.get("spec") for obj in objects]
    devices = [(spec, *each) for spec in specs for each in _devices(spec)]
    for spec, device, takes in devices:
        alone = spec.get("nodeName") if isinstance(spec, Mapping) else None
        shared, by_node = _values(device.get("parameters")), device.get("nodeParameters")
        own = {str(name): _values(values) for name, values in by_node.items()} if isinstance(by_node, Mapping) else {}
        if isinstance(alone, str):
            own = {alone: own.get(alone, {})}
        if len(devices) == 1 and node in own:
            break  # what one entry says of two nodes is refused when it is read
        for other, values in own.items():
            theirs = _endpoint(takes, {**shared, **values}, other) if other != node else ""
            if theirs and (mine := next((each for each in endpoints if same_device(each, theirs)), "")):
                found.setdefault(other, mine)
    return found


def _devices(value: object) -> Iterator[tuple[Written, DriverParameters]]:
    """Wherever they stand: of power, of a method, of a path."""
    if isinstance(value, Mapping):
        driver = value.get("driver")
        takes = parameters_of(canonical(driver)) if isinstance(driver, str) else None
        if takes is not None:
            yield value, takes
        else:
            for each in value.values():
                yield from _devices(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _devices(each)


def _values(written: object) -> dict[str, str]:
    return {str(key): str(value).strip() for key, value in written.items()} if isinstance(written, Mapping) else {}


def _endpoint(takes: DriverParameters, values: Mapping[str, str], node: str) -> str:
    try:
        return takes.endpoint({key: with_node_name(value, node) for key, value in values.items()})
    except ParameterError:
        return ""
