"""The environment that Alembic runs: the migrations, in the transaction that `store.migrate` hands over."""

from __future__ import annotations

from alembic import context

from orchestrator.store.schema.core import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
