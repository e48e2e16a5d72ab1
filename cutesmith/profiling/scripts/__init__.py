"""Somebody else's script, or pytest suite, on the emulated GPU."""
