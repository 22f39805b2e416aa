"""Objects of the API as they are read, and the parts of them that we write."""
