"""The state of blocks that run side by side: geometry, frames, allocations, findings."""
