"""Algorithms of other systems, simulated worlds and scripted models: for benchmarks and
tests only.
"""
