"""Restructuring of agents: what the traces say of the structure, and the gate that decides on one edit."""
