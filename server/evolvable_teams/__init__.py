"""The annex for teams: HTTP serving, tokens, sign-in, git remotes, libraries in PostgreSQL."""
