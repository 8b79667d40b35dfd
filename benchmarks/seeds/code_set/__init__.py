"""Sixty small programming problems that are really executed, and a program that stands in for a
model.
"""
