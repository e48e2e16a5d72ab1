"""The row-reduction pattern: reductions over trailing dimensions with pointwise work around them."""
