"""CS430–CS437: the asynchronous engines (TMA, tcgen05) and who issues to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import walk_function
from cutesmith.verdicts import Finding

_TMA = "from cutlass.cute.nvgpu import cpasync\n"


def _kernel(body: str, before: str = _TMA) -> str:
    """An example: a kernel whose parameters are a TMA atom, tensors and a barrier."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"{before}\n@cute.kernel\ndef kernel(tma, mX, sX, bar):\n{lines}"


CS430 = Rule(
    "CS430",
    "error",
    "one thread alone issues what elects its own thread",
    "A TMA tensor copy and `elect_one` execute `elect.sync` for the whole warp: within `elect_one`, or below a test "
    "for one thread, 31 lanes never come to it and the warp hangs.",
    "Give TMA copies a whole warp (`if warp_idx == 0:`), outside of elect_one; keep expect_tx alone in elect_one.",
    _kernel("with cute.arch.elect_one():\n    cute.copy(tma, mX, sX, tma_bar_ptr=bar)"),
    _kernel(
        "with cute.arch.elect_one():\n    cute.arch.mbarrier_arrive_and_expect_tx(bar, 4096)\n"
        "cute.copy(tma, mX, sX, tma_bar_ptr=bar)"
    ),
)

CS431 = Rule(
    "CS431",
    "error",
    "every thread of the warp commits",
    "`tcgen05.commit` has no election of its own in the DSL: each of 32 lanes commits, and a barrier that counts one "
    "arrival runs ahead of the matrix product.",
    "`with cute.arch.elect_one(): tcgen05.commit(…)`.",
    _kernel("tcgen05.commit(bar)", "from cutlass.cute.nvgpu import tcgen05\n"),
    _kernel("with cute.arch.elect_one():\n    tcgen05.commit(bar)", "from cutlass.cute.nvgpu import tcgen05\n"),
)

_PARTITION = "s, g = cpasync.tma_partition(tma, 0, cute.make_layout(1), {}, {})"
CS432 = Rule(
    "CS432",
    "error",
    "tma_partition of a tile whose modes are not grouped",
    "Mode 0 of both tensors is what one instruction moves. A tile of two dimensions has its rows there: "
    "IR verification failed, or copies of single rows.",
    "`cute.group_modes(tile, 0, 2)`, for the shared and the global tensor.",
    _kernel("gX = cute.local_tile(mX, (32, 32), (0, 0))\n" + _PARTITION.format("cute.group_modes(sX, 0, 2)", "gX")),
    _kernel(
        "gX = cute.local_tile(mX, (32, 32), (0, 0))\n"
        + _PARTITION.format("cute.group_modes(sX, 0, 2)", "cute.group_modes(gX, 0, 2)")
    ),
)

_PIPELINE = "import cutlass.pipeline as pipeline\n\n"
_MADE = "line = pipeline.PipelineTmaAsync.create(num_stages=2, barrier_storage=bar)\nt, _, _ = cute.arch.thread_idx()\n"
_ACQUIRE = "line.producer_acquire(mX)"
CS433 = Rule(
    "CS433",
    "error",
    "one thread alone calls a TMA pipeline",
    "Its calls elect a thread of the whole warp, or count an arrival of each warp: below a dynamic `if` for one thread "
    "the warp hangs, or the barrier misses arrivals.",
    "Test the warp (`if warp_idx == producer_warp:`), and let all its lanes call the pipeline.",
    _kernel(f"{_MADE}if t == 0:\n    {_ACQUIRE}", _PIPELINE),
    _kernel(
        f"{_MADE}warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())\nif warp == 0:\n    {_ACQUIRE}", _PIPELINE
    ),
)

_STAGED = (
    "t, _, _ = cute.arch.thread_idx()\n"
    "buffer = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 128)\n"
)
_STORE = "cute.arch.sync_threads()\ncute.copy(tma, buffer, mX)\ncute.arch.cp_async_bulk_commit_group()\n"
CS434 = Rule(
    "CS434",
    "warning",
    "a TMA store of what threads wrote, without a proxy fence",
    "TMA reads shared memory through the async proxy: ordinary stores are not visible there, whatever barrier follows, "
    "until the threads that wrote have executed fence.proxy.async.",
    'Between the writes and the barrier: `cute.arch.fence_proxy("async.shared", space="cta")`, by every thread.',
    _kernel(f"{_STAGED}buffer[t] = mX[t]\n{_STORE}"),
    _kernel(f'{_STAGED}buffer[t] = mX[t]\ncute.arch.fence_proxy("async.shared", space="cta")\n{_STORE}'),
)

_BLOCK = "bidx, _, _ = cute.arch.block_idx()\n"
CS435 = Rule(
    "CS435",
    "note",
    "an offset of 32 bits that grows with the grid",
    "Block indices are Int32, and so are their products: beyond 2^31 elements the address wraps.",
    "Multiply as 64 bits (`cutlass.Int64(bidx) * …`), or index the tensor, whose strides are 64 bits wide.",
    _kernel(f"{_BLOCK}row = cute.make_tensor(mX.iterator + bidx * 4096, cute.make_layout(4096))", ""),
    _kernel(f"{_BLOCK}row = cute.make_tensor(mX.iterator + cutlass.Int64(bidx) * 4096, cute.make_layout(4096))", ""),
)

CS436 = Rule(
    "CS436",
    "error",
    "tcgen05 for an architecture without tensor memory",
    "sm_120 and sm_121 (GeForce Blackwell) have no tcgen05 and no TMEM; their tensor cores are those of mma.sync.",
    "Use `cute.nvgpu.warp` there, also for block-scaled types; tcgen05 is for sm_100a, sm_103a and sm_110a.",
    "from cutlass.cute.nvgpu import tcgen05\n\nOPTIONS = '--gpu-arch sm_120a'\nGROUP = tcgen05.CtaGroup.ONE\n",
    "from cutlass.cute.nvgpu import tcgen05\n\nOPTIONS = '--gpu-arch sm_100a'\nGROUP = tcgen05.CtaGroup.ONE\n",
)

CS437 = Rule(
    "CS437",
    "note",
    'a kernel\'s own name contains "cutlass"',
    "ptxas chooses its optimisations by it: a tcgen05 kernel for sm_100a was given 80 registers in place of 168, and "
    "spilled (NVIDIA/cutlass #3389). `set_name_prefix` takes only the part away that the DSL adds.",
    'Choose another name, and call `kernel.set_name_prefix("", remove_cutlass_symbol=True)`.',
    "@cute.kernel\ndef cutlass_gemm(mX: cute.Tensor):\n    mX[0] = mX[1]\n",
    "@cute.kernel\ndef gemm(mX: cute.Tensor):\n    mX[0] = mX[1]\n",
)

ELECT = "cutlass.cute.arch.elect_one"
COPY = "cutlass.cute.copy"
COMMIT = "cutlass.cute.nvgpu.tcgen05.commit"
PARTITION = ("cutlass.cute.nvgpu.cpasync.tma_partition",)
THREAD_INDEX = "cutlass.cute.arch.thread_idx"
BLOCK_INDEX = "cutlass.cute.arch.block_idx"
STORES = "cutlass.cute.arch.cp_async_bulk_commit_group"
PIPELINE_CALLS = frozenset(
    "producer_acquire producer_commit producer_tail consumer_wait consumer_release producer_try_acquire".split()
)
TMA_PIPELINE = re.compile(r"cutlass\.pipeline\.(\w+\.)?PipelineTma\w*\.create$")
FENCES = ("fence_proxy", "fence_view_async_shared", "proxy.async")
NOT_TCGEN05 = re.compile(r"\bsm_?12[01][af]?\b")


def check(source: Source) -> Iterator[Finding]:
    """Findings of CS430–CS437 in one file."""
    for call in source.all(ast.Call):
        name = source.dotted(call.func)
        if name == ELECT or (name == COPY and any(keyword.arg == "tma_bar_ptr" for keyword in call.keywords)):
            yield from _alone(source, call, name)
        elif name == COMMIT:
            yield from _commit(source, call)
        elif name in PARTITION:
            yield from _partition(source, call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in PIPELINE_CALLS:
            yield from _pipeline_call(source, call, call.func)
    for function, kind in source.traced.items():
        yield from _store_without_fence(source, function)
        if kind == "kernel" and "cutlass" in function.name.lower():
            yield finding(CS437, function, f"`{function.name}`: ptxas treats kernels of such a name differently.")
    for node in source.all(ast.BinOp):
        yield from _narrow_offset(source, node)
    yield from _without_tensor_memory(source)


def _alone(source: Source, call: ast.Call, name: str) -> Iterator[Finding]:
    """An election for a whole warp where one lane is."""
    what = "a TMA copy" if name == COPY else "elect_one"
    around = _election(source, call)
    if around is not None:
        yield finding(CS430, call, f"{what} within elect_one (line {around.lineno}): one lane waits for its warp.")
    elif (test := _one_thread(source, call)) is not None:
        text = f"{what} below `if {ast.unparse(test)}`: one lane waits for its warp."
        yield finding(CS430, call, text)


def _election(source: Source, node: ast.AST) -> ast.With | None:
    """The innermost `with elect_one():` that a node of the same function lies in, its own apart."""
    below = node
    for above in source.ancestors(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(above, ast.With) and below in above.body:
            for item in above.items:
                context = item.context_expr
                if isinstance(context, ast.Call) and source.dotted(context.func) == ELECT:
                    return above
        below = above
    return None


def _one_thread(source: Source, node: ast.AST) -> ast.expr | None:
    """The test of an `if` around a node that one thread of the block passes: `tidx == 0`."""
    below = node
    for above in source.ancestors(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(above, ast.If) and below in above.body and _is_one_thread(source, above.test):
            return above.test
        below = above
    return None


def _is_one_thread(source: Source, test: ast.expr) -> bool:
    """`tidx == constant`, with `tidx` bound to nothing but an x index of thread_idx()."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    left, right = test.left, test.comparators[0]
    return isinstance(left, ast.Name) and isinstance(right, ast.Constant) and _is_index(source, left, THREAD_INDEX)


def _is_index(source: Source, name: ast.Name, of: str) -> bool:
    """Whether the first target of `name, _, _ = of()` is the only thing that binds the name."""
    function = source.function_of(name)
    if function is None:
        return False
    bound = [
        node
        for node in walk_function(function)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)) and _binds(node, name.id)
    ]
    if len(bound) != 1 or not isinstance(bound[0], ast.Assign) or not isinstance(bound[0].value, ast.Call):
        return False
    (target,) = bound[0].targets if len(bound[0].targets) == 1 else (None,)
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    return isinstance(first, ast.Name) and first.id == name.id and source.dotted(bound[0].value.func) == of


def _binds(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    return any(isinstance(n, ast.Name) and n.id == name for target in targets for n in ast.walk(target))


def _commit(source: Source, call: ast.Call) -> Iterator[Finding]:
    """A commit that the whole warp executes; helpers may be called by one thread, so only kernels are judged."""
    function = source.function_of(call)
    if function is None or source.traced.get(function) != "kernel" or _election(source, call) is not None:
        return
    tests = [ast.unparse(a.test) for a in source.ancestors(call) if isinstance(a, ast.If)]
    if not any(re.search(r"elect|lane|thread|tid", test) for test in tests):
        yield finding(CS431, call, "tcgen05.commit without elect_one: each of 32 lanes commits.")


def _partition(source: Source, call: ast.Call) -> Iterator[Finding]:
    for tensor in call.args[3:5]:
        made = _follow(source, tensor)
        if isinstance(made, ast.Call) and source.dotted(made.func) == "cutlass.cute.local_tile" and len(made.args) > 1:
            tiler = made.args[1]
            if isinstance(tiler, ast.Tuple) and len(tiler.elts) > 1:
                text = f"`{ast.unparse(tensor)}` is a tile of {len(tiler.elts)} modes: group them first."
                yield finding(CS432, tensor, text, f"cute.group_modes({ast.unparse(tensor)}, 0, {len(tiler.elts)})")


def _follow(source: Source, node: ast.expr) -> ast.expr:
    """The expression that a name stands for where it is bound once."""
    home = source.scopes.scope_of(node).find(node.id) if isinstance(node, ast.Name) else None
    bound = home.bindings[node.id] if home is not None and isinstance(node, ast.Name) else []
    return bound[0] if len(bound) == 1 and isinstance(bound[0], ast.expr) else node


def _pipeline_call(source: Source, call: ast.Call, function: ast.Attribute) -> Iterator[Finding]:
    made = _follow(source, function.value)
    if not isinstance(made, ast.Call) or not TMA_PIPELINE.search(source.dotted(made.func) or ""):
        return
    test = _one_thread(source, call)
    if test is not None:
        yield finding(CS433, call, f"`{ast.unparse(function)}` below `if {ast.unparse(test)}`: one lane of its warp.")


def _store_without_fence(source: Source, function: FunctionNode) -> Iterator[Finding]:
    if any(fence in source.text for fence in FENCES):
        return
    buffers = {name for node in walk_function(function) if (name := _shared_buffer(node))}
    commits, writes = [], []
    for node in walk_function(function):
        if isinstance(node, ast.Call) and source.dotted(node.func) == STORES:
            commits.append(node)
        elif isinstance(node, ast.Assign):
            targets = [t.value for t in node.targets if isinstance(t, ast.Subscript)]
            writes += [t for t in targets if isinstance(t, ast.Name) and t.id in buffers]
    if commits and writes:
        text = f"`{writes[0].id}` (line {writes[0].lineno}) is written by threads and stored by TMA, without a fence."
        yield finding(CS434, commits[0], text)


def _shared_buffer(node: ast.AST) -> str:
    """The name that a statement gives to a tensor in shared memory."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1):
        return ""
    call, target = node.value.func, node.targets[0]
    allocates = isinstance(call, ast.Attribute) and call.attr in ("allocate_tensor", "get_tensor")
    return target.id if allocates and isinstance(target, ast.Name) else ""


def _narrow_offset(source: Source, node: ast.BinOp) -> Iterator[Finding]:
    """`tensor.iterator + bidx * n` in a traced function."""
    if not (isinstance(node.op, ast.Add) and isinstance(node.left, ast.Attribute) and node.left.attr == "iterator"):
        return
    if source.traced_of(node) is None:
        return
    for product in ast.walk(node.right):
        if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
            for side in (product.left, product.right):
                if isinstance(side, ast.Name) and _is_index(source, side, BLOCK_INDEX):
                    yield finding(CS435, node, f"`{ast.unparse(product)}` is computed with 32 bits.")
                    return


def _without_tensor_memory(source: Source) -> Iterator[Finding]:
    """tcgen05 in a file that compiles for sm_12x alone."""
    texts = [str(node.value) for node in source.all(ast.Constant) if isinstance(node.value, str)]
    asked = [text for text in texts if re.fullmatch(r"(--gpu-arch[ =])?sm_?\d+[af]?", text)]
    if not asked or not all(NOT_TCGEN05.search(text) for text in asked):
        return
    for node in source.all(ast.Attribute):
        if (source.dotted(node) or "").startswith("cutlass.cute.nvgpu.tcgen05."):
            yield finding(
                CS436, node, f"tcgen05 does not exist on {asked[0].split()[-1]}, which this file compiles for."
            )
            return
