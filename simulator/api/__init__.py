"""A simulated Kubernetes API server over real HTTP. It knows no nodes that boot and no controllers that build pods:
those live beside it in `simulator/`.
"""

from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer

__all__ = ["Accident", "ApiServer", "Fault"]
