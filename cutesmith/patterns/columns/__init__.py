"""The column-reduction pattern: reductions along a stride, where the rows lie side by side in memory."""
