"""`FencingTemplate` (nodewarden.io/v1alpha1): how nodes are fenced, written once for many nodes, resolved here for one.

The result is a `FencingPlan` without secrets. Whatever is doubtful is refused: a template is read when a node is about to lose
its power, which is no moment for guesses. Reading the object is `activities/cluster/plans.py`; the schema that an API
server checks beforehand is `deploy/crds/fencingtemplates.nodewarden.io.yaml`; power devices are `policy/power_devices.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from policy.fields import Fields
from policy.healthcheck import ObjectRef
from policy.limits import (
    LONGEST_ACT,
    LONGEST_BOOT,
    LONGEST_FREEING,
    LONGEST_OFF,
    LONGEST_RETRY_INTERVAL,
    LONGEST_WAIT,
    MOST_RESTARTS,
    MOST_TRIES,
)
from policy.nodes import NodeView
from policy.plan import FencingPlan, Freeing
from policy.power_devices import DeviceReader

GROUP = "nodewarden.io"
VERSION = "v1alpha1"
KIND = "FencingTemplate"

_SECOND = timedelta(seconds=1)

PLAN_FIELDS = (
    "waitBeforePower",
    "tries",
    "restarts",
    "retryInterval",
    "actDeadline",
    "offTimeout",
    "freeTimeout",
    "bootTimeout",
    "freeing",
    "power",
)


def is_fencing_template(reference: ObjectRef) -> bool:
    """Whether a reference names our own kind of template, in whatever version."""
    return reference.kind == KIND and reference.api_version.partition("/")[0] == GROUP


def parse_fencing_template(obj: Mapping[str, object], node: NodeView, *, taint_honoured: bool = True) -> FencingPlan:
    """The plan for one node. Raises PolicyError naming the template, the field and what was expected.

    taint_honoured: whether this cluster's controllers act on the out-of-service taint (Kubernetes 1.26 and newer).
    """
    metadata = Fields(obj, subject=KIND).within("metadata")
    name, namespace = metadata.text("name"), metadata.text("namespace")
    subject = f"{KIND}/{namespace}/{name}"
    fields = Fields(obj, subject=subject)
    for field, expected in (("apiVersion", f"{GROUP}/{VERSION}"), ("kind", KIND)):
        if (found := fields.text(field)) != expected:
            raise fields.refuse(field, f"expected {expected}, got {found!r}")
    spec = fields.within("spec").within("template").within("spec")
    spec.only(*PLAN_FIELDS)
    default = FencingPlan(source=subject, levels=())
    freeing = _freeing(spec, taint_honoured=taint_honoured)
    return FencingPlan(
        source=subject,
        levels=(DeviceReader(node=node, namespace=namespace).read(spec, "power"),),
        wait_before_power=spec.duration("waitBeforePower", default.wait_before_power, maximum=LONGEST_WAIT),
        tries=spec.whole("tries", default.tries, minimum=1, maximum=MOST_TRIES),
        restarts=spec.whole("restarts", default.restarts, minimum=0, maximum=MOST_RESTARTS),
        retry_interval=spec.duration("retryInterval", default.retry_interval, maximum=LONGEST_RETRY_INTERVAL),
        act_deadline=spec.duration("actDeadline", default.act_deadline, minimum=_SECOND, maximum=LONGEST_ACT),
        off_timeout=spec.duration("offTimeout", default.off_timeout, minimum=_SECOND, maximum=LONGEST_OFF),
        free_timeout=spec.duration("freeTimeout", default.free_timeout, minimum=_SECOND, maximum=LONGEST_FREEING),
        boot_timeout=spec.duration("bootTimeout", default.boot_timeout, minimum=_SECOND, maximum=LONGEST_BOOT),
        freeing=freeing,
        taint_honoured=taint_honoured,
        warnings=("freeing is none: what ran on the node stays bound to it",) if freeing is Freeing.NONE else (),
    )


def _freeing(spec: Fields, *, taint_honoured: bool) -> Freeing:
    written = spec.text("freeing", Freeing.AUTOMATIC.value)
    if written not in set(Freeing):
        raise spec.refuse("freeing", f"expected one of {', '.join(Freeing)}, got {written!r}")
    if written == Freeing.OUT_OF_SERVICE_TAINT and not taint_honoured:
        problem = "this cluster's controllers do not act on the out-of-service taint; expected automatic or deletion"
        raise spec.refuse("freeing", problem)
    return Freeing(written)
