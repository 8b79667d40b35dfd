"""Clients that can be connected: their configuration files, and our entry in them."""
