"""A reference function as a small graph: traced, lowered, its constants tied to sizes, and evaluated again."""
