"""Problem to kernel without a model: trace, match, render, and walk the stages."""
