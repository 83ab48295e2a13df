"""Tables, session, migration and the Postgres that comes with the package."""
