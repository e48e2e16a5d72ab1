"""The DSL's real host code without a GPU: compiled for a real architecture, launches recorded, none executed.

`open_session.session(arch)` runs a kernel file unchanged; `facade.cuda_as_cpu()` alone lets torch code that asks for
`device="cuda"` run on CPU tensors; `cubin.read_cubin` and `ptx.read_ptx` read what the compiler made.
"""
