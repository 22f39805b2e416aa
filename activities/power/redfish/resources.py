"""What `child.py` reads of a Redfish service, declared with sushy's fields: little, so that little can be in the way.

sushy's own `System` asks the service for more than is needed, and shows no power state where, say, the time of the last boot
is malformed.
"""

from __future__ import annotations

import importlib.util
import logging
import sys

# The package without its __init__, which would load all of it and `requests`: 250 ms and memory instead of 50 ms.
_package = importlib.util.find_spec("sushy")
assert _package is not None
sys.modules.setdefault("sushy", importlib.util.module_from_spec(_package))
logging.getLogger("sushy").addHandler(logging.NullHandler())  # as that __init__ does: what it would write down are answers

from sushy.resources import base, common  # noqa: E402 - see above


class Systems(base.ResourceBase):
    """The collection of all systems; `count` may say that it goes on."""

    members = base.Field("Members", default=[])
    count = base.Field("Members@odata.count", default=0)


class System(base.ResourceBase):
    """One machine: its state and what it is."""

    own_path = base.Field("@odata.id")
    power_state = base.Field("PowerState")
    uuid = base.Field("UUID")
    serial_number = base.Field("SerialNumber")
    model = base.Field("Model")
    manufacturer = base.Field("Manufacturer")


class _Actions(base.CompositeField):
    reset = common.ResetActionField("#ComputerSystem.Reset")


class SystemActions(base.ResourceBase):
    """What can be asked of it."""

    actions = _Actions("Actions")


class SystemManagers(base.ResourceBase):
    """Who manages it."""

    managers = base.Field(["Links", "ManagedBy"], default=[])


class Manager(base.ResourceBase):
    """A management controller."""

    firmware = base.Field("FirmwareVersion")


class LogHolder(base.ResourceBase):
    """Whoever may keep logs: a system, or its manager."""

    log_services = base.Field(["LogServices", "@odata.id"], default=None)


class LogService(base.ResourceBase):
    """One log."""

    entries = base.Field(["Entries", "@odata.id"], default=None)


class Collection(base.ResourceBase):
    """A collection, or one page of it; `further` is where it goes on."""

    members = base.Field("Members", default=[])
    further = base.Field("Members@odata.nextLink", default=None)
