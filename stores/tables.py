"""The tables of the ledger's database. Times are records for people; nothing is decided by them."""

from sqlalchemy import BigInteger, Column, Executable, Integer, MetaData, String, Table, Text, false, select

METADATA = MetaData()
# SQLite numbers the rows itself only where the key's type is spelled INTEGER
NUMBER = BigInteger().with_variant(Integer(), "sqlite")

EFFECTS = Table(
    "effects",
    METADATA,
    # the order in which effects were claimed
    Column("number", NUMBER, primary_key=True),
    Column("effect_id", String, nullable=False, unique=True),
    Column("workflow_id", String, nullable=False),
    Column("run_id", String, nullable=False),
    Column("first_run_id", String, nullable=False, index=True),
    Column("seq", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("state", String, nullable=False),
    # the number of the claim: only the holder of the greatest may write
    Column("fence", Integer, nullable=False),
    Column("reserved_microusd", BigInteger, nullable=False),
    Column("reserved_input_tokens", BigInteger, nullable=False),
    Column("reserved_output_tokens", BigInteger, nullable=False),
    # what the effect counts now: its reservation while it is open, nothing once released, else what was charged
    Column("spend_microusd", BigInteger, nullable=False),
    Column("spend_tokens", BigInteger, nullable=False),
    Column("spend_model_calls", BigInteger, nullable=False),
    Column("spend_tool_calls", BigInteger, nullable=False),
    Column("outcome_json", Text, nullable=False),
    Column("process_json", Text),
    Column("marker_json", Text, nullable=False),
    # JSON array of the results that came too late
    Column("late_json", Text, nullable=False),
    Column("created_at", String, nullable=False),
    Column("settled_at", String),
)

# what the effects of a chain in one state add up to, kept by the transactions that move an effect from state to state:
# summing the effects themselves would make every claim of a long chain dearer than the one before
CHAIN_SUMS = Table(
    "chain_sums",
    METADATA,
    Column("first_run_id", String, primary_key=True),
    Column("state", String, primary_key=True),
    Column("effects", BigInteger, nullable=False),
    Column("reserved_microusd", BigInteger, nullable=False),
    Column("spend_microusd", BigInteger, nullable=False),
    Column("spend_tokens", BigInteger, nullable=False),
    Column("spend_model_calls", BigInteger, nullable=False),
    Column("spend_tool_calls", BigInteger, nullable=False),
)

RUNS = Table(
    "runs",
    METADATA,
    Column("number", NUMBER, primary_key=True),
    Column("run_id", String, nullable=False, unique=True),
    Column("first_run_id", String, nullable=False),
    Column("workflow_id", String, nullable=False, index=True),
    Column("record_json", Text, nullable=False),
)

# one row: the random name of this ledger, and the fingerprint of the artifact store that belongs to it
STORES = Table(
    "stores",
    METADATA,
    Column("ledger", String, primary_key=True),
    # null until the first worker starts
    Column("artifacts", String),
)

# the chains that were begun in this ledger: no worker of another one goes on with them
CHAINS = Table("chains", METADATA, Column("first_run_id", String, primary_key=True))


def _no_rows(table: Table) -> tuple[Executable, Executable]:
    """Return an insert and an update of no rows: they need all that the real ones need."""
    columns = list(table.c)
    update = table.update().where(false()).values({column: column for column in columns})
    return table.insert().from_select(columns, select(*columns).where(false())), update


NO_ROWS_READ = select(EFFECTS.c.number).where(false())
NO_ROWS_WRITTEN = (*_no_rows(EFFECTS), *_no_rows(CHAIN_SUMS), _no_rows(RUNS)[0], _no_rows(CHAINS)[0])
"""What tells whether the ledger can be read or written, and changes nothing."""
