"""Look after an installation: what doctor reports, archives and backups, uninstalling."""
