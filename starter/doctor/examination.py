"""All checks of an installation, side by side. One that fails is a finding of its own and hides no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from temporalio.exceptions import ApplicationError

from policy.fence.power import InsecureDevices
from starter.client import Nodewarden
from starter.doctor import cluster as surroundings
from starter.doctor import temporal
from starter.doctor.cluster import definitions, rights
from starter.doctor.findings import Check, Checks, Finding, Level, ok, problem, warning
from starter.doctor.health_checks import credentials, health_checks
from workers.configuration.clusters import open_cluster
from workers.configuration.setting_sources import SettingsError
from workers.configuration.settings import Settings
from workers.errors import NamespaceMissingError, TemporalUnreachableError

CHECK_WITHIN = 60.0
"""Seconds. One that takes longer is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What one check has found."""

    check: str
    findings: tuple[Finding, ...]


async def examine(settings: Settings, cluster: str, *, fix: bool = False) -> tuple[Examined, ...]:
    """Everything, in the order in which people would look. fix: mend what is ours and harmless."""
    ours, theirs, open_to_others = await asyncio.gather(
        _temporal(settings, cluster, fix=fix),
        _kubernetes(settings, cluster, fix=fix),
        _one("protection", partial(protection, settings)),
    )
    return (*ours, *theirs, open_to_others)


def has_problems(found: tuple[Examined, ...]) -> bool:
    """Whether something will not be done."""
    return any(each.level is Level.PROBLEM for examined in found for each in examined.findings)


async def _temporal(settings: Settings, cluster: str, *, fix: bool) -> list[Examined]:
    try:
        async with Nodewarden.connect(settings) as warden:
            reached = Examined(check="Temporal", findings=(ok(f"it answers, namespace {warden.client.namespace!r}"),))
            checks: Checks = {
                "search attributes": partial(temporal.search_attributes, warden, fix=fix),
                "memory": partial(temporal.memory, warden),
                "workers": partial(temporal.workers, warden, cluster, settings.sites),
                "scanner": partial(temporal.scanner, warden, cluster),
                "fence devices": partial(temporal.devices, warden, cluster),
            }
            return [reached, *await _all(checks)]
    except (TemporalUnreachableError, NamespaceMissingError, SettingsError) as error:
        return [
            Examined(check="Temporal", findings=(problem(str(error), "nothing is begun without it; start it, or correct that"),))
        ]


async def _kubernetes(settings: Settings, cluster: str, *, fix: bool) -> list[Examined]:
    known = settings.connections().get(cluster)
    if known is None:
        what = f"how the API of {cluster} is reached is not known here: nothing of it was looked at"
        return [Examined(check="Kubernetes", findings=(warning(what, "name it under `clusters` in nodewarden.yaml"),))]
    async with open_cluster(cluster, known) as (connection, machines):
        reached = await _one("Kubernetes", partial(surroundings.reached, connection))
        if any(each.level is Level.PROBLEM for each in reached.findings):
            return [reached]
        checks: Checks = {
            "clocks": partial(surroundings.clocks, connection),
            "rights": partial(rights, connection),
            "definitions": partial(definitions, connection, fix=fix),
            "people's words": partial(surroundings.people, connection, required=settings.worker.words == "verified"),
            "health checks": partial(health_checks, settings, connection, machines),
            "credentials": partial(credentials, connection, machines, settings.policy_source())
            if settings.secrets_directory is None
            else partial(_mounted, settings.secrets_directory),
            "other controllers": partial(surroundings.operators, connection, takeover=settings.scan.takeover),
            "forced detachment": partial(
                surroundings.force_detach, connection, cluster=cluster, expected=known.force_detach_on_timeout
            ),
        }
        return [reached, *await _all(checks)]


async def _mounted(directory: Path) -> list[Finding]:
    return [ok(f"power workers read them below {directory} (secrets_directory); `nodewarden fence check` uses them")]


async def _all(checks: Checks) -> list[Examined]:
    return list(await asyncio.gather(*(_one(name, check) for name, check in checks.items())))


async def _one(name: str, check: Check) -> Examined:
    try:
        async with asyncio.timeout(CHECK_WITHIN):
            findings = await check()
    except TimeoutError:
        findings = [problem(f"no answer within {CHECK_WITHIN:.0f} s", "try again")]
    except ApplicationError as error:
        findings = [problem(error.message, "see what the API server says")]
    except Exception as error:  # noqa: BLE001 - an unforeseen error in one check hides nothing that others have found
        findings = [problem(f"this check failed: {' '.join(str(error).split()) or type(error).__name__}", "report it")]
    return Examined(check=name, findings=tuple(findings))


async def protection(settings: Settings) -> list[Finding]:
    """What the settings leave open, each by its name. By those that are read here; a worker elsewhere may have others."""
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


# What the doctor has found, as people and programs read it.

STYLE = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def as_table(found: Sequence[Examined]) -> RenderableType:
    """A line for each finding, and below it what to do about it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for examined in found:
        for first, finding in enumerate(examined.findings):
            name = examined.check if first == 0 else ""
            table.add_row(name, Text(finding.level.value, style=STYLE[finding.level]), _rendered(finding))
    return table


def _rendered(finding: Finding) -> Text:
    text = Text(finding.what)
    return text.append(f"\n> {finding.do}", style="dim") if finding.do else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One line: which check, how bad it is, what it is, and what to do about it ("" for nothing)."""

    check: str
    level: Level
    what: str
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAnswer:
    """What was found of an installation."""

    cluster: str
    findings: tuple[DoctorFinding, ...]


def as_model(cluster: str, found: Sequence[Examined]) -> DoctorAnswer:
    """For programs."""
    return DoctorAnswer(
        cluster=cluster,
        findings=tuple(
            DoctorFinding(check=examined.check, level=each.level, what=each.what, do=each.do)
            for examined in found
            for each in examined.findings
        ),
    )
