"""A wave that runs: its scheduler, memory, barriers and suspension points."""
