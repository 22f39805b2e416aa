"""Where settings come from, and what they name: clusters, credentials, keys."""
