#!/bin/sh
# Creates Temporal's two databases and brings their schemas to this server's version. Every step finds what is there already, so
# it runs before each start, and an upgrade needs only new image tags. Connection: the tool's SQL_* variables.
set -eu

for database in temporal temporal_visibility; do
    schema="/etc/temporal/schema/postgresql/v12/${database#temporal_}/versioned"
    temporal-sql-tool --db "$database" create-database
    temporal-sql-tool --db "$database" setup-schema --version 0.0
    temporal-sql-tool --db "$database" update-schema --schema-dir "$schema"
done
