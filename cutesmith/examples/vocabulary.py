"""The words that describe an example: operations, features, architectures and dtypes, each with its other names.

A record uses only the names that stand here; a query may use any synonym. Names are the field's own terms, written in
lower case with underscores; synonyms are written as people type them, in lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A word of the vocabulary: its name in records, what it means, and what else people call it."""

    name: str
    meaning: str
    synonyms: tuple[str, ...] = ()


def _terms(*terms: Term) -> dict[str, Term]:
    return {term.name: term for term in terms}


OPERATIONS = _terms(
    Term("gemm", "dense matrix multiply, batched or not", ("matmul", "bmm", "mm", "linear", "matrix multiplication")),
    Term("blockscaled_gemm", "one scale for 16 or 32 values along K, applied by the MMA", ("nvfp4 gemm", "mxfp8 gemm")),
    Term("blockwise_gemm", "fp8 with a scale for each 128-wide block, applied in software", ("deepseek fp8 gemm",)),
    Term("grouped_gemm", "many multiplies of different shapes in one launch", ("group gemm", "moe", "ragged gemm")),
    Term("mixed_input_gemm", "operands of different width, one converted on the way", ("w4a16", "weight-only", "w4")),
    Term(
        "gated_mlp",
        "multiply, gate and second multiply of a transformer block",
        ("swiglu", "mlp", "ffn", "glu", "dual gemm"),
    ),
    Term("distributed_gemm", "multiply with a collective over several GPUs in one kernel", ("tensor parallel gemm",)),
    Term("attention", "softmax(QKᵀ)V in one kernel", ("flash attention", "fmha", "sdpa", "mha", "fa2", "fa3", "hstu")),
    Term("attention_backward", "gradients of attention", ("flash attention backward", "fmha bwd", "dq dk dv")),
    Term("mla", "multi-head latent attention", ("multi-head latent attention", "deepseek attention")),
    Term("ssm", "state-space model, chunked scan", ("mamba", "mamba2", "ssd", "selective scan", "linear attention")),
    Term("rnn", "all steps of a recurrent layer", ("lstm", "gru", "recurrent layer", "recurrent neural network")),
    Term("softmax", "softmax over a row", ("log softmax", "softmax backward")),
    Term("cross_entropy", "cross entropy of logits and targets", ("nll loss", "softmax loss", "loss")),
    Term("rmsnorm", "root-mean-square normalisation", ("rms norm", "root mean square", "add rmsnorm")),
    Term("layernorm", "layer normalisation", ("layer norm", "group norm", "normalization", "welford")),
    Term("rotary", "rotary position embedding", ("rope", "rotary embedding", "position embedding")),
    Term("reduction", "sum, max or mean along an axis", ("reduce", "sum", "max", "amax", "argmax", "mean", "row sum")),
    Term("scan", "prefix sum and its like", ("cumsum", "prefix sum", "cumulative")),
    Term("topk", "the k largest of a row", ("top-k", "top k", "router", "moe router", "moe routing", "gating network")),
    Term(
        "hadamard",
        "butterflies along a row: partners are a power of two apart",
        ("butterfly", "butterflies", "walsh", "fast transform"),
    ),
    Term(
        "fft", "Fourier transform of lines", ("fourier transform", "fast fourier transform", "rfft", "spectrum", "stft")
    ),
    Term("sort", "sorting network", ("bitonic sort", "argsort")),
    Term("elementwise", "each output element from one of each input", ("pointwise", "add", "relu", "gelu")),
    Term("convolution", "sliding window product", ("conv", "conv1d", "conv2d", "implicit gemm", "depthwise")),
    Term("quantization", "to fewer bits, with scales", ("quantize", "dequantize", "int8 quantization", "fp8 cast")),
    Term("transpose", "permutation of axes through shared memory", ("permute", "layout change")),
    Term("copy", "moving data, with nothing computed", ("memcpy", "gather", "scatter", "concat")),
    Term("collective", "communication between GPUs without a multiply", ("all reduce", "allreduce", "all gather")),
    Term("hardware_primitive", "one instruction or one barrier, shown alone", ("instruction", "ptx", "intrinsic")),
    Term("synchronization", "barriers and pipelines between warps, shown alone", ("barrier", "producer consumer")),
    Term("layout_algebra", "layouts, composition, tiling, shown on the host", ("layout", "composition", "divide")),
    Term("language", "how the DSL itself works: types, printing, structs, shared memory", ("tutorial", "hello world")),
    Term("integration", "calling kernels from a framework or from C", ("framework", "interop", "export", "wrapper")),
    Term("launch", "launch attributes: dependent, cooperative, events, graphs", ("launch attribute", "stream")),
    Term("tuning", "measuring and choosing configurations", ("autotune", "benchmark", "tuner", "profiling")),
    Term("utility", "helpers that other examples import", ("helper", "scheduler", "reference implementation")),
)

FEATURES = _terms(
    # Moving data
    Term("tma", "tensor copies by the tensor memory accelerator", ("tensor memory accelerator", "bulk tensor copy")),
    Term("tma_store", "results stored by TMA", ("tma epilogue", "bulk store")),
    Term("tma_multicast", "one TMA load delivered to several CTAs of a cluster", ("multicast",)),
    Term("tma_reduce", "TMA store that adds to global memory", ("tma reduction", "reduce-add store")),
    Term("bulk_copy", "cp.async.bulk without a tensor map", ("cp.async.bulk", "1d tma")),
    Term("tensormap_update", "TMA descriptors changed on the device", ("tensormap", "descriptor update")),
    Term("cp_async", "Ampere's asynchronous copies to shared memory", ("cp.async", "async copy", "ldgsts")),
    Term("ldmatrix", "fragments loaded from shared memory by ldmatrix", ("ldsm",)),
    Term("stmatrix", "fragments stored to shared memory by stmatrix", ("stsm",)),
    Term("swizzle", "shared-memory layouts free of bank conflicts", ("bank conflict", "bank conflicts", "padding")),
    Term("vectorized_copy", "wide loads and stores, usually of 128 bits", ("vectorized", "128-bit load", "float4")),
    Term("predication", "bounds handled by predicates", ("predicate", "residue", "boundary", "out of bounds", "tail")),
    Term("broadcast", "an operand repeated along an axis", ("broadcasting", "stride 0")),
    Term("strided", "inputs that are not contiguous", ("non-contiguous", "multi-dimensional", "any strides")),
    Term("gather", "rows picked by an index tensor", ("indexed load", "gather a")),
    Term("prefetch", "data or descriptors brought to L2 ahead", ("l2 prefetch",)),
    Term("smem", "data staged in shared memory", ("shared memory", "shared storage")),
    Term("dsmem", "shared memory of other CTAs in the cluster", ("distributed shared memory", "mapa")),
    Term("tmem", "Blackwell's tensor memory", ("tensor memory",)),
    # Matrix units
    Term("simt", "multiply-adds without tensor cores", ("ffma", "cuda core", "cuda cores", "no tensor cores")),
    Term("mma_sync", "warp-level tensor cores, mma.sync", ("warp mma", "hmma", "mma.sync", "tensor op")),
    Term("wgmma", "Hopper's warpgroup tensor cores", ("warpgroup mma", "gmma", "wgmma.mma_async")),
    Term("tcgen05", "Blackwell's fifth-generation tensor cores", ("umma", "utcmma", "tensor core gen 5")),
    Term("two_cta", "tcgen05 by a pair of CTAs", ("2cta", "2sm", "2 cta", "cta pair", "cta_group::2")),
    Term("block_scaled", "matrix instructions that take scale factors", ("scale factor", "nvfp4", "mxfp8", "mxfp4")),
    Term("fp8_accumulation", "fp8 partial sums promoted to fp32 registers", ("2xacc", "two-level accumulation")),
    # How elements depend on one another
    Term("recurrence", "each step needs the one before it", ("loop-carried", "recurrent", "sequential over time")),
    Term("stencil", "each element from its neighbours", ("halo", "neighbours", "finite difference", "laplacian")),
    Term("scatter", "rows written or added where an index tensor says", ("scatter add", "index add", "index put")),
    # Scheduling
    Term("pipeline", "several stages of loads in flight ahead of use", ("multistage", "double buffering", "stages")),
    Term("warp_specialization", "warps with different roles", ("warp specialized", "producer warp", "dma warp")),
    Term("pingpong", "two math warpgroups that take turns", ("ping-pong", "ping pong")),
    Term("register_reallocation", "setmaxnreg between roles", ("setmaxnreg", "warpgroup_reg_alloc")),
    Term("persistent", "CTAs that stay and take tile after tile", ("persistent kernel", "tile scheduler")),
    Term("dynamic_scheduler", "tiles handed out at run time", ("cluster launch control", "clc", "dynamic persistent")),
    Term("cluster", "thread-block clusters", ("thread block cluster", "cga", "cluster launch")),
    Term("rasterization", "tiles taken in an order that reuses L2", ("raster", "threadblock swizzle", "tile order")),
    Term("split_k", "K shared between CTAs", ("split-k", "splitk", "split kv", "slice-k", "stream-k")),
    Term("mbarrier", "transaction barriers in shared memory", ("memory barrier object", "async barrier")),
    Term("named_barrier", "bar.sync over a subset of the threads", ("bar.sync", "barrier id")),
    Term("task_scheduling", "the experimental task-scheduling API", ("task graph", "tile tasks")),
    # Threads together
    Term(
        "warp_shuffle",
        "values exchanged inside a warp",
        ("shfl", "shuffle", "warp reduce", "warp per row", "butterfly"),
    ),
    Term("warp_vote", "ballots and votes of a warp", ("vote", "ballot", "any all")),
    Term("redux", "redux.sync, one-instruction reductions of a warp", ("redux.sync", "warp redux")),
    Term("elect", "one thread of a warp chosen", ("elect.sync", "elect one")),
    Term("block_reduction", "a value reduced over the CTA", ("cta reduction", "block reduce", "row reduction")),
    Term("cluster_reduction", "a value reduced over a cluster", ("cluster reduce",)),
    Term("atomics", "atomic updates of memory", ("atomic add", "red", "semaphore")),
    Term("grid_sync", "all CTAs of the grid wait", ("cooperative launch", "grid barrier", "cooperative groups")),
    # What is fused or handled
    Term("multiple_outputs", "more than one tensor written", ("several outputs", "auxiliary output", "two outputs")),
    Term("epilogue_fusion", "work on the accumulator before the store", ("fused epilogue", "custom epilogue", "evt")),
    Term("bias", "a bias added", ("bias add", "fused bias")),
    Term("activation", "a non-linear function applied", ("gelu", "relu", "silu", "sigmoid", "tanh", "swiglu", "swish")),
    Term("residual", "a further tensor added to the result", ("residual add", "beta c", "source tensor")),
    Term("alpha_beta", "D = alpha·A·B + beta·C", ("axpby", "scaled accumulate")),
    Term("amax", "largest magnitude found in passing", ("absmax", "abs max")),
    Term("quantized_output", "output scaled to fewer bits", ("fp8 output", "scale factor generation", "output quant")),
    Term("dequantization", "operand converted to a wider type on the way", ("dequant", "weight conversion", "upcast")),
    Term("batched", "a batch mode beside the matrix modes", ("batch", "bmm", "l mode")),
    Term("ptr_array", "operands given as an array of pointers", ("pointer array", "array of pointers")),
    Term("varlen", "sequences or groups of different length", ("variable length", "ragged", "cu_seqlens", "jagged")),
    Term("moe", "routing of tokens to experts", ("mixture of experts", "experts", "expert")),
    Term("online_softmax", "running maximum and sum", ("streaming softmax", "flash", "rescale")),
    Term("causal", "causal masking", ("causal mask", "triangular mask")),
    Term("sliding_window", "local masking", ("local attention", "window size", "attention window", "swa")),
    Term("gqa", "query heads that share key heads", ("grouped query attention", "mqa", "multi-query")),
    Term("paged_kv", "keys and values in pages", ("paged attention", "page table", "kv cache")),
    Term("decode", "one or few query rows", ("decoding", "generation", "flash decoding")),
    Term("backward", "gradients", ("bwd", "gradient", "autograd")),
    Term("dropout", "random dropping or stochastic rounding", ("random", "stochastic rounding", "philox")),
    Term("sparse", "structured sparsity", ("2:4", "sparsity")),
    Term("block_sparse", "only listed blocks are visited", ("flex attention", "block mask")),
    Term("complex", "complex numbers or structures as elements", ("complex number",)),
    # Several GPUs
    Term("multi_gpu", "several GPUs", ("distributed", "nvshmem", "symmetric memory", "nvlink")),
    Term("multimem", "reductions in the switch", ("nvls", "nvlink sharp", "in-switch reduction")),
    # Launch and host
    Term("pdl", "programmatic dependent launch", ("griddepcontrol", "programmatic dependent launch")),
    Term("cuda_graph", "captured in a CUDA graph", ("cuda graphs", "graph capture")),
    Term("tvm_ffi", "called through TVM-FFI", ("tvm-ffi", "ffi")),
    Term("jax", "called from JAX", ("cutlass_call", "xla")),
    Term(
        "torch_op",
        "registered as a torch operator or autograd function",
        ("torch.library", "torch.compile", "custom op"),
    ),
    Term("aot_export", "compiled ahead of time and exported", ("aot", "export_to_c", "object file", "c header")),
    Term("fake_tensor", "compiled with fake tensors", ("make_fake_compact_tensor", "without gpu")),
    Term("dynamic_layout", "shapes known only at run time", ("dynamic shapes", "symbolic shapes", "dynamic loop")),
    Term("pointer_arguments", "raw pointers passed in", ("make_ptr", "bypass dlpack", "data_ptr")),
    Term("autotune", "configurations measured and chosen", ("autotuning", "tuner")),
    Term("benchmark", "timed beside something", ("timing", "throughput")),
    Term("inline_ptx", "instructions as PTX, NVVM or LLVM operations", ("inline asm", "inline assembly", "llvm")),
    Term("struct", "@cute.struct, dataclasses and named tuples", ("cute.struct", "dataclass", "named tuple")),
    Term("fast_math", "approximate instructions", ("fastmath", "approximate", "tanh.approx", "ex2.approx")),
    Term("printing", "values printed while tracing or running", ("print", "printf", "debug", "print_latex")),
    Term("profiling", "instrumented for a timeline", ("iket", "trace", "instrumentation")),
    Term("tensorssa", "arithmetic on TensorSSA values", ("tensor ssa", "vector value")),
    Term("primitives_api", "the experimental primitives API", ("cutlass.experimental", "low-level api")),
)

ARCHS = {
    "sm_80": ("ampere", "a100", "sm80", "8.0"),
    "sm_89": ("ada", "l40", "rtx 4090", "sm89", "8.9"),
    "sm_90a": ("hopper", "h100", "h200", "gh200", "sm90", "sm90a", "sm_90", "9.0"),
    "sm_100a": ("blackwell", "b200", "gb200", "sm100", "sm100a", "sm_100", "10.0"),
    "sm_103a": ("blackwell ultra", "b300", "gb300", "sm103", "sm103a", "sm_103", "10.3"),
    "sm_107a": ("rubin", "sm107", "sm107a", "sm_107"),
    "sm_120a": ("blackwell geforce", "rtx 5090", "rtx pro 6000", "sm120", "sm120a", "sm_120", "12.0"),
    "sm_121a": ("dgx spark", "gb10", "sm121", "sm121a", "sm_121", "12.1"),
}
"""What an example was written for, oldest first; `sm_80` also stands for what runs on any GPU since."""

DTYPES = {
    "float64": ("fp64", "f64", "double"),
    "float32": ("fp32", "f32", "single"),
    "tfloat32": ("tf32",),
    "bfloat16": ("bf16",),
    "float16": ("fp16", "f16", "half"),
    "float8_e4m3fn": ("fp8", "e4m3", "f8", "mxfp8"),
    "float8_e5m2": ("fp8", "e5m2", "f8"),
    "float8_e8m0fnu": ("e8m0", "ue8m0", "mx scale"),
    "float6_e3m2fn": ("fp6", "e3m2"),
    "float6_e2m3fn": ("fp6", "e2m3"),
    "float4_e2m1fn": ("fp4", "e2m1", "nvfp4", "mxfp4"),
    "int64": ("i64", "s64"),
    "int32": ("i32", "s32", "int"),
    "int16": ("i16", "s16"),
    "int8": ("i8", "s8"),
    "uint8": ("u8", "byte"),
    "int4": ("i4", "s4", "w4"),
    "uint32": ("u32",),
    "bool": ("boolean", "mask"),
}
"""torch's names where torch has one (fp4 and fp6 are named as one element, not as torch's packed pair)."""


def canonical(word: str, vocabulary: dict[str, Term]) -> str | None:
    """The vocabulary's name for a word or a synonym, with spaces, dots, hyphens or underscores; None if unknown."""
    for name, term in vocabulary.items():
        if _spoken(word) in map(_spoken, (name, *term.synonyms)):
            return name
    return None


def _spoken(word: str) -> str:
    return " ".join(re.sub(r"[-_.]", " ", word.lower()).split())
