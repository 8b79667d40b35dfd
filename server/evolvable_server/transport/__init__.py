"""Streamable HTTP for several clients: who may come in, what each may do, and how much of it at once."""
