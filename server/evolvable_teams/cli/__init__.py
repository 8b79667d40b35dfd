"""The commands of the annex for teams."""
