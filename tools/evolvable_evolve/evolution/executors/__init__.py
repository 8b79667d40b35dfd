"""Executors: what runs a task under a program. Each is a module of its own, imported when it is asked for."""
