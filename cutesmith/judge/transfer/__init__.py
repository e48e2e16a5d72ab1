"""Tensors that move between the judge's processes: files, chunks, who may read what, and the memory they take."""
