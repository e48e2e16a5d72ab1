"""The pattern graph while it is built: nodes, folding, views, shapes, run-time numbers."""
