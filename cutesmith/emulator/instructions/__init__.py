"""The table of instructions: their forms, and which operands they read and write."""
