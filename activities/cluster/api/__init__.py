"""The Kubernetes API: connections, credentials, paths, refusals, Leases, Events."""
