"""Proposer models: who answers a run's questions, what each role is asked, and what an answer means."""
