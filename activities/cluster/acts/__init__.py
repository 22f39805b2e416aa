"""The activities themselves, each the implementation of a contract."""
