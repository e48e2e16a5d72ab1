"""What patterns print: expressions, names, sections of a file, templates, the standalone kernel file."""
