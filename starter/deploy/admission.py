"""What `nodewarden deploy admission` prints, and deploy/admission.yaml holds: our admission policies, each a module.

Without them everything works, and a worker that was taken over can do more. They need Kubernetes 1.30.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from starter.deploy.node_patches import node_patches


def admission(*, taints: Collection[str] = ()) -> list[dict[str, Any]]:
    """taints: keys of those that fence configurations name with the method `taint`. Raises PolicyError for one that is none."""
    policies = (node_patches(taints),)
    return [each for policy in policies for each in policy.objects()]
