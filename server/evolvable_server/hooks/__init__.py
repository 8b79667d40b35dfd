"""Hooks of clients: offer the skill that fits a prompt, note what was opened, queue a session for review."""
