"""From a sentence or a file to a problem that passed its audit."""
