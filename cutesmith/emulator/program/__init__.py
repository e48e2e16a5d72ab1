"""A PTX function made ready to run: basic blocks, calls inlined, parameters placed, liveness."""
