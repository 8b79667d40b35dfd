"""Rules of others for secrets, as data: gitleaks' configuration (MIT, see gitleaks.LICENSE) and what runs it."""
