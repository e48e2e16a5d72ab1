"""The row-reduction pattern: reductions over trailing dimensions with pointwise work around them."""

from cutesmith.patterns.rows.plan import RowsPlan, match

__all__ = ["RowsPlan", "match"]
