"""What the settings leave open, each by the name of its setting."""

from __future__ import annotations

from policy.fence.insecure_devices import InsecureDevices
from starter.doctor.findings import Finding, ok, warning
from workers.configuration.settings import Settings


async def protection(settings: Settings) -> list[Finding]:
    """By the settings that are read here; a worker elsewhere may have others."""
    worker, temporal = settings.worker, settings.temporal
    hosts = worker.credential_hosts
    insecure = worker.insecure_devices is not InsecureDevices.REFUSE
    has_keys = bool(temporal.payload_keys_file or temporal.payload_keys_secret)
    found: list[tuple[bool, str, str]] = [
        (worker.words == "any", "worker.words: verified", "any client of Temporal can fence a healthy machine, in any name"),
        (
            not hosts or "*" in hosts,
            "worker.credential_hosts: [NETWORK]",
            "a Secret without hosts goes where it first went",
        ),
        (insecure, "worker.insecure_devices: refuse", "passwords may travel unencrypted"),
        (not has_keys, "temporal.payload_keys_secret: NAMESPACE/NAME", "readers of Temporal read names, addresses and reasons"),
        (temporal.insecure, "temporal.insecure: false", "an attacker between us and Temporal is a client of Temporal"),
    ]
    open_ones = [
        warning(f"{to_set.partition(':')[0]}: {what}", f"set {to_set} (docs/security.md)")
        for is_open, to_set, what in found
        if is_open
    ]
    return open_ones or [ok("no setting leaves open what it could close")]
