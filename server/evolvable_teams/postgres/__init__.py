"""The second storage: one project in a PostgreSQL database, which several machines share."""

import importlib
from types import ModuleType

from evolvable_store.errors import LibraryError


def import_postgres(module: str) -> ModuleType:
    """Return a module of the storage over PostgreSQL. Raise LibraryError without the extra."""
    try:
        return importlib.import_module(f"evolvable_teams.postgres.{module}")
    except ImportError as error:
        raise LibraryError(
            f"PostgreSQL needs {error.name or 'psycopg'}, which is not installed.",
            "pip install '.[postgres]' in your clone",
        ) from error
