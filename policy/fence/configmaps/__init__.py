"""Fence configuration in the ConfigMaps and Secrets of the node-fencing proposal."""
