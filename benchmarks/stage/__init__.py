"""What benchmarks of the whole system share: how it is started, which clocks are read, and how figures are printed.

A folder of its own, because `make bench` runs every module beside it.
"""
