"""Is it right: cases, the candidate in its process, the reference in another, comparison, cheats."""
