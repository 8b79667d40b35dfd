"""The clients that can be connected: where each keeps its configuration, and how ours gets into it without loss."""
