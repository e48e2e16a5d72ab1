"""The example index: records of kernels to learn from, searched by `find`, brought by `fetch`."""
