#!/bin/sh
# Makes Temporal's two databases, or brings them to the schema of this release of admin-tools. Harmless when repeated.
# The password comes from SQL_PASSWORD.
set -eu

for database in temporal temporal_visibility; do
    set -- temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p "$DB_PORT" -u "$POSTGRES_USER" --db "$database"
    "$@" create
    "$@" setup-schema -v 0.0
    "$@" update-schema -d "/etc/temporal/schema/postgresql/v12/${database#temporal_}/versioned"
done
