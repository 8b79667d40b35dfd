"""Gates: what a change has to show before it goes on, ours and those of others for comparison."""
