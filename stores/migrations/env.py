"""Alembic's entry: runs revisions on the connection that ``stores.database.migrate`` has opened, in its transaction."""

from alembic import context

from stores.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
