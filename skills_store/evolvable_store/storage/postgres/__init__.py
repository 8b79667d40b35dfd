"""The second storage: one project in a PostgreSQL database, which servers on several machines read and write."""
