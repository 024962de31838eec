"""The first tables: effects with their sums, and runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "effects",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("effect_id", sa.String, nullable=False, unique=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("workflow_id", "run_id", "first_run_id")),
        sa.Column("seq", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("kind", "name", "digest", "state")),
        sa.Column("fence", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in (
                "reserved_microusd",
                "reserved_input_tokens",
                "reserved_output_tokens",
                "spend_microusd",
                "spend_tokens",
                "spend_model_calls",
                "spend_tool_calls",
            )
        ),
        sa.Column("outcome_json", sa.Text, nullable=False),
        sa.Column("process_json", sa.Text),
        sa.Column("marker_json", sa.Text, nullable=False),
        sa.Column("late_json", sa.Text, nullable=False),
        sa.Column("created_at", sa.String, nullable=False),
        sa.Column("settled_at", sa.String),
    )
    op.create_index("ix_effects_first_run_id", "effects", ["first_run_id"])
    op.create_table(
        "chain_sums",
        sa.Column("first_run_id", sa.String, primary_key=True),
        sa.Column("state", sa.String, primary_key=True),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in (
                "effects",
                "reserved_microusd",
                "spend_microusd",
                "spend_tokens",
                "spend_model_calls",
                "spend_tool_calls",
            )
        ),
    )
    op.create_table(
        "runs",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False, unique=True),
        sa.Column("first_run_id", sa.String, nullable=False),
        sa.Column("workflow_id", sa.String, nullable=False),
        sa.Column("record_json", sa.Text, nullable=False),
    )
    op.create_index("ix_runs_workflow_id", "runs", ["workflow_id"])
