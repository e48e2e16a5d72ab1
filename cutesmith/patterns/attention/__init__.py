"""Attention: two products of matrices with a softmax between them, in one launch."""
