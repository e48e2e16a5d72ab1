"""Machine code of this host: regions of a program built as LLVM IR, compiled, and called over lanes."""
