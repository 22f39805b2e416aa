"""Simulated BMCs that real IPMI clients talk to over UDP, and the truth about power behind them."""
