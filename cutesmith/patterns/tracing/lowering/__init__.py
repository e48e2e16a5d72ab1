"""ATen operations as nodes of the pattern graph, by family."""
