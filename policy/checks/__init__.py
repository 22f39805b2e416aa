"""Health checks and fence policies: what they judge, the verdict of each, and when a circuit breaker is open."""
