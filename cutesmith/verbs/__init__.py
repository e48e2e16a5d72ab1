"""What the verbs take, described once: the command line, the MCP server and the agent's tools derive from it."""
