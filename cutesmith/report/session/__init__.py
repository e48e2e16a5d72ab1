"""The page of a session with a model, gathered from its events."""
