"""What nodewarden saw and did not repair, and what became of it."""
