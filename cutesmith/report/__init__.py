"""The pages that people read: what `generate`, a session with a model, and runs of tasks came to."""
