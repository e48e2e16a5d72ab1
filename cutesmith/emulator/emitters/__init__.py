"""Instructions that compute or access memory, as LLVM IR for one lane."""
