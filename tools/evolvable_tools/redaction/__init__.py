"""Redaction of secrets: gitleaks' rules as data (MIT, see gitleaks.LICENSE), and detectors of our own."""
