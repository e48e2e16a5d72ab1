"""One graph, cut into launches: products claim the pointwise work around them, other patterns take what is left."""
