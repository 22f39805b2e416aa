"""Values in Kubernetes objects: durations, moments, thresholds, selectors, references; how each is read and refused."""
