"""Devices to which whoever stands in between may listen, or answer in their place, and what a worker does with one.

IPMI is none of them: it proves the password on both sides and encrypts, as far as `drivers/ipmi.py` lets it. Clouds' APIs are
plain on the loopback only. How a driver is told to go without TLS, or to verify no certificate, is beside its parameters.
"""

from __future__ import annotations

from enum import StrEnum

from policy.fence.drivers import parameters_of
from policy.fence.drivers.contract import ParameterError
from policy.fence.plan import PowerDevice


class InsecureDevices(StrEnum):
    """The setting `worker.insecure_devices`. warn: it is spoken to, and told of in log, fence check and metric."""

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


def insecurity_of(device: PowerDevice) -> str:
    """How it would be spoken to that anybody in between could listen or answer, in words; "" where nobody could. Parameters that
    its driver will refuse anyway say nothing."""
    takes = parameters_of(device.driver)
    try:
        return takes.insecurity(device.parameters) if takes is not None else ""
    except ParameterError:
        return ""
