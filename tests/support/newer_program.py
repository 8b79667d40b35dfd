"""The `evolvable` command of a program that knows one step of the schema more than this one; run as
a script.
"""

from typing import Any

from evolvable_server.cli import main
from evolvable_store.storage import migrations


def m999_later(db: Any) -> None:
    db.conn.execute("CREATE TABLE later (x TEXT) STRICT")


migrations.STEPS = (*migrations.STEPS, m999_later)
migrations.LATEST = len(migrations.STEPS)

if __name__ == "__main__":
    main()
