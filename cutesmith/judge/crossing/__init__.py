"""Tensors on their way between the judge's processes: files, pieces, who may read what, and the memory they take."""
