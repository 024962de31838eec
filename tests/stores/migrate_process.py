"""A process that migrates every database whose URL it is told: ``python -m tests.stores.migrate_process``."""

import sys

from alembic import command  # imported before the start, so that all processes migrate in the same instant

from stores.database import migrate
from tests.stores.intents import say

if __name__ == "__main__":
    say(command.__name__)
    for line in sys.stdin:
        migrate(line.strip())
        say("migrated")
