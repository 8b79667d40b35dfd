"""Who can think: a model behind an API, or a command the user has. A server starts without importing any of them."""
