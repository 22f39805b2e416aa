"""What a contributor asks of the packages that we stand on. No part of the product: `make sbom`, `make audit`."""
