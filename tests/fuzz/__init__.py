"""Whatever others may write, answer or send: each time a clear error or a value, and nothing of ours falls over it."""
