"""Scorers: they say how good an answer is. A scorer that cannot say raises ScorerError and never returns 0."""
