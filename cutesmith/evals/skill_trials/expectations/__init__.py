"""The tasks of `evals.json`: sessions with and without the skill, and whether each is as it is expected to be."""
