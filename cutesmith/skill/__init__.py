"""The agent skill: its manifest checked, and its folder put where each client looks for skills."""
