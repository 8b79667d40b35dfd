"""Agents that plan together: a planner that never executes, a bus of messages, and workers on the trial backends."""
