"""`FencingTemplate` (nodewarden.io/v1alpha1): how nodes are fenced, written once for many nodes, resolved here for one.

The result is a `FencingPlan` without secrets. Whatever is doubtful is refused: a template is read when a node is about to lose
its power, which is no moment for guesses. Reading the object is `activities/cluster/live/plans.py`; the schema that an API server
checks beforehand is `deploy/crds/fencingtemplates.nodewarden.io.yaml`; steps, devices and settings are `policy/fence/specs.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from policy.fence.config import FenceConfig
from policy.fence.specs import GROUP, SPEC_FIELDS, VERSION, read_spec
from policy.objects.nodes import NodeView
from policy.values.fields import Fields
from policy.values.object_refs import ObjectRef

KIND = "FencingTemplate"
MACHINE_DELETION = "MachineDeletionTemplate"
REBOOT = "RebootTemplate"
VOLUME_DETACHMENT = "VolumeDetachmentTemplate"
OWN_KINDS = (KIND, MACHINE_DELETION, REBOOT, VOLUME_DETACHMENT)
"""Templates that nodewarden carries out itself: what a ladder names makes no object of ours, and asks no other controller."""

PLAN_FIELDS = SPEC_FIELDS
"""Of `spec.template.spec`."""


def is_fencing_template(reference: ObjectRef) -> bool:
    """Whether a reference names our own kind of template, in whatever version."""
    return reference.kind == KIND and reference.api_version.partition("/")[0] == GROUP


def is_own_template(reference: ObjectRef) -> bool:
    """Whether nodewarden itself carries out what the template says, instead of the controller of another kind of object."""
    return reference.kind in OWN_KINDS and reference.api_version.partition("/")[0] == GROUP


def why_untrusted(reference: ObjectRef, trusted: Collection[str]) -> str:
    """Why a FencingTemplate of that namespace does not count, "" where it does or is another kind (S40)."""
    if not is_fencing_template(reference) or reference.namespace in trusted:
        return ""
    return f"templates count in {', '.join(filter(None, trusted)) or 'no namespace'} (setting template_namespaces)"


def read_fencing_template(obj: Mapping[str, object], node: NodeView) -> FenceConfig:
    """The configuration for one node. Raises PolicyError naming the template, the field and what was expected."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    name, namespace = metadata.text("name"), metadata.text("namespace")
    subject = f"{KIND}/{namespace}/{name}"
    fields = Fields(obj, subject=subject)
    fields.must_be(f"{GROUP}/{VERSION}", KIND)
    spec = fields.within("spec").within("template").within("spec")
    spec.only(*PLAN_FIELDS)
    return read_spec(spec, node=node, name=name, kind=KIND, subject=subject, namespace=namespace, cordon=True)
