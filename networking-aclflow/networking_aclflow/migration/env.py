"""What alembic runs for `neutron-db-manage`."""

from __future__ import annotations

from alembic import context
from neutron.db.migration.connection import DBConnection
from neutron_lib.db import model_base

VERSION_TABLE = "alembic_version_aclflow"


def run_migrations() -> None:
    """Bring the tables to the newest version, or write the SQL for that."""
    database = context.config.neutron_config.database
    if context.is_offline_mode():
        context.configure(url=database.connection, version_table=VERSION_TABLE)
        with context.begin_transaction():
            context.run_migrations()
        return
    with DBConnection(database.connection, context.config.attributes.get("connection")) as connection:
        context.configure(
            connection=connection, target_metadata=model_base.BASEV2.metadata, version_table=VERSION_TABLE
        )
        with context.begin_transaction():
            context.run_migrations()


run_migrations()
