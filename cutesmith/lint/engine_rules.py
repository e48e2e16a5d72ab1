"""CS430–CS437: the asynchronous engines (TMA, tcgen05) and who issues to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith.lint.one_thread import BLOCK_INDEX, ELECT, GRID_SIZE, alone, called_helpers, election, is_index
from cutesmith.lint.parts_of_tensors import parts_of
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

COPY = "cutlass.cute.copy"
COPIES = (COPY, "cutlass.cute.autovec_copy")
COMMIT = "cutlass.cute.nvgpu.tcgen05.commit"
PARTITION = ("cutlass.cute.nvgpu.cpasync.tma_partition",)
PARTICIPANTS = ("make_participants", "make_producer", "make_consumer")
STORES = "cutlass.cute.arch.cp_async_bulk_commit_group"
PIPELINE_CALLS = frozenset(
    "producer_acquire producer_commit producer_tail consumer_wait consumer_release producer_try_acquire "
    "acquire acquire_and_advance wait_and_advance try_acquire try_wait commit release tail".split()
)
TMA_PIPELINE = re.compile(r"cutlass\.pipeline\.(\w+\.)?PipelineTma\w*\.create$")
FENCES = re.compile(r"fence_proxy|fence_view_async_shared|proxy\.async")
NOT_TCGEN05 = re.compile(r"\bsm_?12[01][af]?\b")
ARCHITECTURE = re.compile(r"(?:^|--gpu-arch[ =])sm_?\d+[af]?\b")


def check(source: Source) -> Iterator[Finding]:
    """Findings of CS430–CS437 in one file."""
    for call in source.all(ast.Call):
        name = source.dotted(call.func)
        if what := _elects(source, call):
            yield from _alone(source, call, what)
        elif name == COMMIT:
            yield from _commit(source, call)
        elif name in PARTITION:
            yield from _partition(source, call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in PIPELINE_CALLS:
            yield from _pipeline_call(source, call, call.func)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "set_name_prefix":
            yield from _prefix(call)
        else:
            yield from _helper_alone(source, call)
    fenced = any(FENCES.search(word) for word in _words(source))
    for function, kind in source.traced.items():
        if not fenced:
            yield from _store_without_fence(source, function)
        if kind == "kernel" and "cutlass" in (name := _kernel_name(source, function)).lower():
            yield finding(CS437, function, f"`{name}`: ptxas treats kernels of such a name differently.")
    for node in source.all(ast.BinOp):
        yield from _narrow_offset(source, node)
    yield from _without_tensor_memory(source)


def _elects(source: Source, call: ast.Call) -> str:
    """What a call is that elects a thread of a whole warp; "" for another."""
    name = source.dotted(call.func)
    if name == ELECT:
        return "elect_one"
    return "a TMA copy" if name == COPY and any(keyword.arg == "tma_bar_ptr" for keyword in call.keywords) else ""


def _alone(source: Source, call: ast.Call, what: str) -> Iterator[Finding]:
    """An election for a whole warp where one lane is."""
    if where := alone(source, call):
        yield finding(CS430, call, f"{what} {where}: one lane waits for its warp.")


def _helper_alone(source: Source, call: ast.Call) -> Iterator[Finding]:
    """A call of a helper that elects, where one lane is."""
    if source.traced_of(call) is None or not (where := alone(source, call)):
        return
    for helper in called_helpers(source, call):
        for inner in walk_function(helper):
            if isinstance(inner, ast.Call) and (what := _elects(source, inner)):
                text = f"`{helper.name}`, which has {what} in line {inner.lineno}, is called {where}"
                yield finding(CS430, call, f"{text}: one lane waits for its warp.")
                return


def _commit(source: Source, call: ast.Call) -> Iterator[Finding]:
    """A commit that the whole warp executes; helpers may be called by one thread, so only kernels are judged."""
    function = source.function_of(call)
    if function is None or source.traced.get(function) != "kernel" or election(source, call) is not None:
        return
    tests = [ast.unparse(a.test) for a in source.ancestors(call) if isinstance(a, ast.If)]
    if not any(re.search(r"elect|lane|thread|tid", test) for test in tests):
        yield finding(CS431, call, "tcgen05.commit without elect_one: each of 32 lanes commits.")


def _partition(source: Source, call: ast.Call) -> Iterator[Finding]:
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("smem_tensor", "gmem_tensor")]
    for tensor in (*call.args[3:5], *named):
        modes = _tile_modes(source, follow(source, tensor))
        if modes > 1:
            text = f"`{ast.unparse(tensor)}` is a tile of {modes} modes: group them first."
            yield finding(CS432, tensor, text, f"cute.group_modes({ast.unparse(tensor)}, 0, {modes})")


def _tile_modes(source: Source, made: ast.expr) -> int:
    """How many modes a tile of `local_tile` has; 0 for another expression."""
    if not (isinstance(made, ast.Call) and source.dotted(made.func) == "cutlass.cute.local_tile"):
        return 0
    named = [keyword.value for keyword in made.keywords if keyword.arg == "tiler"]
    tilers = [follow(source, tiler) for tiler in (*made.args[1:2], *named)]
    return len(tilers[0].elts) if tilers and isinstance(tilers[0], ast.Tuple) else 0


def follow(source: Source, node: ast.expr) -> ast.expr:
    """The expression that a name stands for where it is bound once, in `a, b = (f(m) for m in (x, y))` too."""
    home = source.scopes.scope_of(node).find(node.id) if isinstance(node, ast.Name) else None
    bound = home.bindings[node.id] if home is not None and isinstance(node, ast.Name) else []
    if len(bound) == 1 and isinstance(bound[0], ast.expr):
        return bound[0]
    made = [value for value in _tuples(source, node) if len(bound) == 1] if isinstance(node, ast.Name) else []
    return made[0].elt if len(made) == 1 and isinstance(made[0], ast.GeneratorExp) else node


def _pipeline_call(source: Source, call: ast.Call, function: ast.Attribute) -> Iterator[Finding]:
    """A call of a TMA pipeline, or of a participant of one, where one lane is."""
    made = _maker(source, function.value)
    if made is None or not TMA_PIPELINE.search(source.dotted(made.func) or ""):
        return
    if where := alone(source, call):
        yield finding(CS433, call, f"`{ast.unparse(function)}` {where}: one lane of its warp.")


def _maker(source: Source, node: ast.expr) -> ast.Call | None:
    """The call that made a pipeline, or the pipeline of a participant, which `make_participants` gives in pairs."""
    made = follow(source, node)
    if made is node and isinstance(node, ast.Name):
        made = next((pair for pair in _tuples(source, node) if isinstance(pair, ast.Call)), node)
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in PARTICIPANTS:
        made = follow(source, made.func.value)
    return made if isinstance(made, ast.Call) else None


def _tuples(source: Source, name: ast.Name) -> Iterator[ast.expr]:
    """Values of `…, name, … = value` in the function of a name."""
    function = source.function_of(name)
    for node in walk_function(function) if function is not None else ():
        if not isinstance(node, ast.Assign):
            continue
        parts = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else ()
        if any(isinstance(part, ast.Name) and part.id == name.id for part in parts):
            yield node.value


def _kernel_name(source: Source, function: FunctionNode) -> str:
    """The name of a kernel, that of its class before it: the DSL puts both into the symbol."""
    above = source.parents[function]
    return f"{above.name}.{function.name}" if isinstance(above, ast.ClassDef) else function.name


def _prefix(call: ast.Call) -> Iterator[Finding]:
    """A prefix of a kernel's name."""
    for part in call.args[:1]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and "cutlass" in part.value.lower():
            yield finding(CS437, call, f"`{part.value}`: ptxas treats kernels of such a name differently.")


def _store_without_fence(source: Source, function: FunctionNode) -> Iterator[Finding]:
    """A TMA store of shared memory that threads wrote, in a file that nowhere names a proxy fence."""
    nodes = list(walk_function(function))
    views = parts_of(nodes, _allocates)
    commits, writes = [], []
    for node in nodes:
        if isinstance(node, ast.Call) and source.dotted(node.func) == STORES:
            commits.append(node)
        elif isinstance(node, ast.Call) and source.dotted(node.func) in COPIES:
            writes += _copied(node, views)
        elif isinstance(node, ast.Assign):
            targets = [t.value for t in node.targets if isinstance(t, ast.Subscript)]
            writes += [t for t in targets if isinstance(t, ast.Name) and t.id in views]
    if commits and writes:
        text = f"`{writes[0].id}` (line {writes[0].lineno}) is written by threads and stored by TMA, without a fence."
        yield finding(CS434, commits[0], text)


def _words(source: Source) -> Iterator[str]:
    """Names and texts of a file, without its comments."""
    for node in source.nodes:
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _copied(call: ast.Call, views: set[str]) -> list[ast.Name]:
    """The shared memory that a copy by threads writes: TMA's names a barrier."""
    if any(keyword.arg in ("tma_bar_ptr", "mbar_ptr") for keyword in call.keywords) or len(call.args) < 2:
        return []
    names = [node for node in ast.walk(call.args[-1]) if isinstance(node, ast.Name)]
    return [name for name in names[:1] if name.id in views]


def _allocates(value: ast.expr) -> bool:
    """Whether an expression allocates a tensor in shared memory."""
    call = value.func if isinstance(value, ast.Call) else None
    return isinstance(call, ast.Attribute) and call.attr in ("allocate_tensor", "get_tensor")


def _narrow_offset(source: Source, node: ast.BinOp) -> Iterator[Finding]:
    """`tensor.iterator + bidx * n` in a traced function, either way round, the product under a name too."""
    if not isinstance(node.op, ast.Add) or source.traced_of(node) is None:
        return
    sides = (node.left, node.right)
    for pointer, offset in (sides, sides[::-1]):
        if not (isinstance(pointer, ast.Attribute) and pointer.attr == "iterator"):
            continue
        for product in ast.walk(follow(source, offset)):
            factors = (product.left, product.right) if isinstance(product, ast.BinOp) else ()
            if not isinstance(getattr(product, "op", None), ast.Mult):
                continue
            if any(is_index(source, factor, GRID_SIZE) for factor in factors):
                continue  # the number of a block
            if any(is_index(source, factor, BLOCK_INDEX) for factor in factors):
                yield finding(CS435, node, f"`{ast.unparse(product)}` is computed with 32 bits.")
                return


def _without_tensor_memory(source: Source) -> Iterator[Finding]:
    """tcgen05 in a file that compiles for sm_12x alone."""
    texts = [str(node.value) for node in source.all(ast.Constant) if isinstance(node.value, str)]
    asked = [match[0] for text in texts if "\n" not in text and (match := ARCHITECTURE.search(text))]
    if not asked or not all(NOT_TCGEN05.search(text) for text in asked):
        return
    for node in source.all(ast.Attribute):
        if (source.dotted(node) or "").startswith("cutlass.cute.nvgpu.tcgen05."):
            named = re.split("[ =]", asked[0])[-1]
            yield finding(CS436, node, f"tcgen05 does not exist on {named}, which this file compiles for.")
            return
