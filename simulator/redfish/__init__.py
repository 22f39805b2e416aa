"""Simulated Redfish services that real clients talk to over HTTPS, before the machines of `simulator/bmc/chassis.py`."""
