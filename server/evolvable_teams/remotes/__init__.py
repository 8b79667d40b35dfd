"""The library as an ordinary git repository: commits out of operations, and what commits of others would change."""
