"""Operations on a library: the verbs that MCP, the command line and the dashboard share."""
