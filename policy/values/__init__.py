"""What is written in objects: durations, moments, thresholds, selectors, references; how each is read and refused."""
