"""Whether a problem file is worth solving: it runs, is deterministic, and every input matters."""
