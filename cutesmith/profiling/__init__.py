"""Where a kernel's time goes: ncu on a GPU, else the emulated one's counts."""
