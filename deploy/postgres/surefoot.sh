#!/bin/sh
# Runs once, when the database's volume is new: the role and the database of Surefoot's ledger.
set -eu

psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    --set password="$LEDGER_PASSWORD" <<'SQL'
CREATE ROLE surefoot LOGIN PASSWORD :'password';
CREATE DATABASE surefoot OWNER surefoot;
SQL
