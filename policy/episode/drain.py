"""Which pods of a node a drain evicts, and what stands against it: kubectl's filters, in kubectl's order.

One pod that a filter refuses stops the whole drain before anything is evicted (S29): half a drain does not help. A pod passes
the filters until one of them leaves it out or refuses it; kubectl keeps the last filter's warning only, nodewarden keeps all.
Apart from kubectl's filters, `is_single_writer` withholds pods on a node that does not answer (S36).
`activities/cluster/acts/drain.py` reads the pods and asks for the evictions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

LEAST_GRACE = 1
"""Seconds. With 0 the API server removes a pod at once, whether or not its kubelet has ended it: on a node that is not proven
off another one would run beside it (S1, S30). Kubectl, too, turns `--grace-period=0` without --force into 1."""

SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""Access modes of a volume that another machine may mount while this one still has it. Unknown modes are not among them."""

_YES, _NO = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """Kubectl's flags, with kubectl's defaults.

    grace: replaces the pods' own grace periods, None: theirs; at least LEAST_GRACE (`grace_seconds`). skip_deleting: the drain
    does not wait for pods that have been terminating for longer than this, None: it waits for all.
    """

    force: bool = False
    ignore_daemon_sets: bool = False
    delete_empty_dir: bool = False
    grace: timedelta | None = None
    skip_deleting: timedelta | None = None


def drain_options(parameters: Mapping[str, str]) -> DrainOptions:
    """The options in a method's parameters, which have the names of kubectl's flags. Raises ValueError naming a wrong one."""
    known = ("force", "ignore-daemonsets", "delete-emptydir-data", "grace-period", "skip-wait-for-delete-timeout")
    for name in parameters:
        if name not in known:
            raise ValueError(f"{name}: is not a parameter of drain; expected one of {', '.join(known)}")
    grace, skip = _seconds(parameters, "grace-period"), _seconds(parameters, "skip-wait-for-delete-timeout")
    return DrainOptions(
        force=_flag(parameters, "force"),
        ignore_daemon_sets=_flag(parameters, "ignore-daemonsets"),
        delete_empty_dir=_flag(parameters, "delete-emptydir-data"),
        grace=grace if grace is None or grace >= timedelta(0) else None,
        skip_deleting=skip if skip is not None and skip > timedelta(0) else None,
    )


def grace_seconds(options: DrainOptions, own: int | None) -> int | None:
    """The grace period for an eviction, in seconds; None: the pod's own, which is `own`."""
    if options.grace is not None:
        return max(int(options.grace.total_seconds()), LEAST_GRACE)
    return LEAST_GRACE if own == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPod:
    """The fields of a pod that the filters use.

    finished: its phase is Succeeded or Failed. deleting: its deletionTimestamp. daemon_set: the one that controls it, "" if none
    does; orphaned: that DaemonSet no longer exists. managed: a controller would make it anew.
    """

    name: str
    uid: str
    finished: bool = False
    deleting: datetime | None = None
    daemon_set: str = ""
    orphaned: bool = False
    mirror: bool = False
    empty_dir: bool = False
    managed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainClaim:
    """A PersistentVolumeClaim of a pod. volume: the name of its PersistentVolume, "" while it is bound to none."""

    volume: str
    modes: frozenset[str]


def is_single_writer(claims: Iterable[DrainClaim | None], attached: Collection[str], *, running: bool, inline_disk: bool) -> bool:
    """Whether the pod has a volume to which one machine writes, which its node may still be writing to (S36).

    claims: None for one that is gone, of which nothing is known. attached: names of the PersistentVolumes attached to the node,
    "" for a disk that a pod names in its own spec. What is never attached (NFS, local disks) is in use where its pod runs:
    others would start another writer at once.
    """
    if inline_disk and "" in attached:
        return True
    for claim in claims:
        if claim is None:
            if attached or running:
                return True
        elif claim.volume and (claim.volume in attached or running) and not (claim.modes and claim.modes <= SHARED_MODES):
            return True
    return False


class Fate(StrEnum):
    """What a drain does with a pod. error: nothing at all is evicted."""

    EVICT = "evict"
    SKIP = "skip"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One pod's fate. error: why it stops the drain; warnings: those of all filters that it passed."""

    pod: DrainPod
    fate: Fate
    error: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilterResult:
    """The result of one filter. fate EVICT: this filter lets the pod be evicted, and the next one is asked."""

    fate: Fate = Fate.EVICT
    text: str = ""


_PASS = _FilterResult()


def rule(pod: DrainPod, options: DrainOptions, now: datetime) -> Ruling:
    """Runs the pod through the filters."""
    warnings = list[str]()
    for consult in _FILTERS:
        result = consult(pod, options, now)
        if result.fate is Fate.ERROR:
            return Ruling(pod=pod, fate=Fate.ERROR, error=f"{pod.name}: {result.text}", warnings=tuple(warnings))
        if result.text:
            warnings.append(f"{pod.name}: {result.text}")
        if result.fate is Fate.SKIP:
            return Ruling(pod=pod, fate=Fate.SKIP, warnings=tuple(warnings))
    return Ruling(pod=pod, fate=Fate.EVICT, warnings=tuple(warnings))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """The pods to evict; none while there are errors (S29). skipped: the number of pods that the filters leave in place."""

    evict: tuple[DrainPod, ...]
    skipped: int
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def plan_drain(pods: Iterable[DrainPod], options: DrainOptions, now: datetime) -> DrainPlan:
    """Runs all pods of the node through the filters."""
    rulings = [rule(pod, options, now) for pod in pods]
    errors = tuple(ruling.error for ruling in rulings if ruling.fate is Fate.ERROR)
    evict = tuple(ruling.pod for ruling in rulings if ruling.fate is Fate.EVICT)
    return DrainPlan(
        evict=() if errors else evict,
        skipped=sum(ruling.fate is Fate.SKIP for ruling in rulings),
        warnings=tuple(warning for ruling in rulings for warning in ruling.warnings),
        errors=errors,
    )


def _skip_deleted(pod: DrainPod, options: DrainOptions, now: datetime) -> _FilterResult:
    if pod.deleting is None or options.skip_deleting is None or now - pod.deleting <= options.skip_deleting:
        return _PASS
    return _FilterResult(
        fate=Fate.SKIP, text="terminating for so long that it is not waited for; that does not mean that it stopped"
    )


def _daemon_set(pod: DrainPod, options: DrainOptions, _: datetime) -> _FilterResult:
    if not pod.daemon_set or pod.finished:
        return _PASS
    if pod.orphaned:
        missing = f"its DaemonSet {pod.daemon_set} does not exist"
        return (
            _FilterResult(text=missing) if options.force else _FilterResult(fate=Fate.ERROR, text=f"{missing} (force evicts it)")
        )
    if not options.ignore_daemon_sets:
        return _FilterResult(fate=Fate.ERROR, text=f"belongs to DaemonSet {pod.daemon_set} (ignore-daemonsets leaves it there)")
    return _FilterResult(fate=Fate.SKIP, text=f"left there: it belongs to DaemonSet {pod.daemon_set}")


def _mirror(pod: DrainPod, _: DrainOptions, __: datetime) -> _FilterResult:
    return _FilterResult(fate=Fate.SKIP) if pod.mirror else _PASS


def _empty_dir(pod: DrainPod, options: DrainOptions, _: datetime) -> _FilterResult:
    if not pod.empty_dir or pod.finished:
        return _PASS
    if not options.delete_empty_dir:
        return _FilterResult(fate=Fate.ERROR, text="has data in an emptyDir (delete-emptydir-data gives it up)")
    return _FilterResult(text="the data in its emptyDir is lost")


def _unmanaged(pod: DrainPod, options: DrainOptions, _: datetime) -> _FilterResult:
    if pod.managed or pod.finished:
        return _PASS
    if not options.force:
        return _FilterResult(fate=Fate.ERROR, text="no controller would make it anew (force evicts it)")
    return _FilterResult(text="no controller makes it anew")


_FILTERS: tuple[Callable[[DrainPod, DrainOptions, datetime], _FilterResult], ...] = (
    _skip_deleted,
    _daemon_set,
    _mirror,
    _empty_dir,
    _unmanaged,
)


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    text = parameters.get(name, "false").strip().lower()
    if text not in _YES | _NO:
        raise ValueError(f"{name}: expected true or false, got {parameters[name]!r}")
    return text in _YES


def _seconds(parameters: Mapping[str, str], name: str) -> timedelta | None:
    text = parameters.get(name, "").strip()
    if not text:
        return None
    try:
        return timedelta(seconds=int(text))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: expected a whole number of seconds, got {text!r}") from error
