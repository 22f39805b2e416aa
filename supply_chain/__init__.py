"""What a contributor asks of the packages that we stand on, and makes by them. No part of the product: `make sbom`, `make audit`,
`python -m supply_chain.dashboard`."""
