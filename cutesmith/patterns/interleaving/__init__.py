"""The interleaving pattern: positions of transposed convolutions from the products of their phases, in one launch."""
