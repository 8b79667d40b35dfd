"""Resources, their versions, and how they change. Knows no client, no model and no settings."""

__version__ = "0.1.0"
