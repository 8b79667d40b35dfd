"""Transports: stdio for one client, streamable HTTP for several, with their access and limits."""
