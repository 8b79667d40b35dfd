"""The benchmark of evolution: whole loops on simulated executors of which the truth is known."""
