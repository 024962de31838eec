"""Who this ledger is, which artifact store belongs to it, and which chains were begun in it."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, with a random name for the ledger, and the chains that have effects already."""
    stores = op.create_table(
        "stores",
        sa.Column("ledger", sa.String, primary_key=True),
        sa.Column("artifacts", sa.String),
    )
    op.bulk_insert(stores, [{"ledger": secrets.token_hex(16)}])
    op.create_table("chains", sa.Column("first_run_id", sa.String, primary_key=True))
    op.execute("INSERT INTO chains (first_run_id) SELECT DISTINCT first_run_id FROM effects")
