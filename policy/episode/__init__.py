"""What an episode knows, says and asks: why it exists, whom it holds, what it has proven, what stands against it."""
