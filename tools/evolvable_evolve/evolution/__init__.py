"""Evolution: searching for better resources with tasks, and promoting only what a sealed test carries."""
