"""The selection pattern: sorted lines, and the first of them in that order, along any dimension."""
