"""The data and rules of an episode: its need and target, its proofs, and what keeps it from acting."""
