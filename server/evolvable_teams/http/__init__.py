"""Serve a library over HTTP, and pass one on to a client over stdio."""
