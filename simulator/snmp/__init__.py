"""Power distribution units that speak SNMP. Needs pysnmp, which comes with the development packages only."""
