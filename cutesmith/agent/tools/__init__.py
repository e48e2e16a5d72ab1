"""What the model can do, one module a family: files, look-ups, judging, notes."""
