"""What we stand on, and what others install: `make sbom`, `make audit`, `make chart`. No part of the product."""
