"""PTX read: tokens, declarations, bodies, operands and source lines."""
