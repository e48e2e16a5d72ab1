"""Does it compile: each architecture, registers and spills, errors made readable."""
