"""Tensor cores: products of warps and warpgroups, their descriptors, fragments, and what is still under way."""
