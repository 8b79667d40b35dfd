"""Who supplies the thinking of a run: the calling agent, an API, a command, or a script."""
