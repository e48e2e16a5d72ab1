"""The trusted process: it holds the problem, draws inputs, computes the reference, and compares."""
