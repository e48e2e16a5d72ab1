"""The agent loop: a model drafts and edits, the judge decides, and no working kernel is ever lost."""
