"""The workflows that a worker registers, each a shell round its story: Temporal loads these anew for every episode."""
