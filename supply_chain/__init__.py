"""What we stand on, and what others install: `make sbom`, `make audit`, `make chart`, `python -m supply_chain.dashboard`.
No part of the product."""
