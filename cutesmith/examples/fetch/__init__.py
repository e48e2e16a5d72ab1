"""An example brought here from wherever it is, checked by its hash."""
