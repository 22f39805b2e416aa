"""A machine is isolated, switched off and proven off; its pods are freed; it comes back. By itself, or as a step of a ladder."""
