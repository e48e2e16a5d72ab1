"""Static signs that a kernel file does not do its own work (rules W1 to W4, T2, T4, T5, H1, H3, H6, H7), off its AST.

Looked at is what can run on behalf of the kernel: module-level code and every function that `kernel_fn` reaches; the
reference, the inputs and `if __name__ == "__main__":` are not. What hides from this is met again at run time (the
dispatch mode of `candidate_side.watching`, the missing reference, the refused system calls): to pass here shows nothing
alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutesmith.problems import contract
from cutesmith.verdicts import Mechanism, Rule, Violation

REFERENCE_NAMES = frozenset(contract.PROBLEM_NAMES) - {"TOLERANCE"}

# Dotted torch names that `kernel_fn` may use: allocation, views, and questions about tensors and devices.
TORCH_ALLOWED = frozenset(
    """
    empty empty_like empty_strided zeros zeros_like full full_like ones ones_like
    as_strided broadcast_shapes broadcast_tensors is_tensor numel is_floating_point is_complex
    device dtype Tensor Size finfo iinfo promote_types result_type get_default_dtype
    no_grad inference_mode version __version__ strided contiguous_format preserve_format
    transpose permute movedim squeeze unsqueeze flatten view_as_real view_as_complex
    cuda memory_format set_grad_enabled typing layout
    """.split()
)
TORCH_DTYPES = ("float", "bfloat", "int", "uint", "bool", "half", "double", "long", "short", "complex")
_NOT_DTYPES = frozenset({"float_power", "complex", "bool_", "int_repr"})
CUDA_ALLOWED = frozenset(
    """
    current_stream current_device get_device_properties get_device_capability device Stream stream Event
    get_device_name is_available device_count device_of
    """.split()
)
# Methods that only compute; names that lists, sets or dicts have too are left to the dispatch mode.
COMPUTE_METHODS = frozenset(
    """
    softmax log_softmax matmul mm bmm addmm baddbmm mean sum amax amin argmax argmin relu relu_ sigmoid tanh exp log
    sqrt rsqrt cumsum cumprod topk std var norm logsumexp masked_fill masked_fill_ scatter gather index_select
    einsum clamp mul_ add_ sub_ div_ item tolist cpu numpy half bfloat16
    """.split()
)
FOREIGN = frozenset(
    """
    triton cupy numba jax flash_attn xformers quack apex transformer_engine vllm bitsandbytes cublas cudnn nvmath
    flashinfer liger_kernel deep_gemm cutlass_library cutlass_operators thunderkittens helion tilelang torchvision
    onnxruntime tensorrt
    """.split()
)


def _by_name(names: dict[Rule, str]) -> dict[str, Rule]:
    return {name: rule for rule, listed in names.items() for name in listed.split()}


EVASIVE_MODULES = _by_name(
    {
        Rule.H7: "ctypes cffi pickle marshal dill cloudpickle gc inspect importlib builtins code codeop runpy mmap "
        "signal base64 zlib tracemalloc subprocess multiprocessing pty",
        Rule.H6: "socket socketserver ssl urllib urllib3 requests http ftplib pip",
        Rule.T2: "threading _thread concurrent asyncio queue",
        Rule.H1: "cutesmith pytest unittest",
    }
)
EVASIVE_CALLS = frozenset({"exec", "eval", "compile", "__import__", "globals", "vars", "setattr", "delattr"})
EVASIVE_ATTRIBUTES = _by_name(
    {
        Rule.H1: "__code__ __globals__ __closure__ __subclasses__ __builtins__ __dict__ f_back f_locals f_globals "
        "tb_frame gi_frame _getframe _current_frames settrace setprofile modules addaudithook",
        Rule.H3: "extract_stack format_stack print_stack walk_stack currentframe",
        Rule.H7: "system popen execv execve spawnv posix_spawn memfd_create",
    }
)
# Of CUDA's own API a kernel needs a stream's type, device attributes and events; the rest works without the DSL.
CUDA_API_ALLOWED = frozenset(
    """
    CUstream CUdevice CUdevice_attribute CUresult CUevent CUdeviceptr cuInit cuDeviceGet cuDeviceGetAttribute
    cuCtxGetDevice cuGetErrorString cudaStream_t cudaError_t cudaEvent_t cudaGetDevice cudaDeviceGetAttribute
    cudaDeviceAttr driver runtime cuStreamWaitEvent cuEventCreate cuEventRecord cuEventDestroy CUevent_flags
    CUstream_flags cuStreamCreate cuStreamDestroy
    """.split()
)
CACHE_SETTINGS = ("Limit", "Persisting", "accessPolicy", "StreamSetAttribute", "StreamAttr")
PATCHABLE = frozenset({"torch", "time", "builtins", "json", "os", "sys", "cutlass", "math", "functools"})
KERNEL_DECORATORS = ("cutlass.cute.kernel", "cutlass.cute.core.kernel")
TRACED_DECORATORS = ("cutlass.cute.kernel", "cutlass.cute.jit", "cutlass.jit")
PUBLIC_VARIABLES = ("CUTE_DSL_", "CUDA_", "CUTLASS_")


@dataclass(frozen=True)
class _Sign:
    """What one line shows, and what to write instead."""

    line: int
    column: int
    rule: Rule
    message: str
    fix: str


def find_cheats(source: str, path: Path) -> list[Violation]:
    """What the source shows, in the order of its lines; each means that the kernel is rejected."""
    scope = _Scope(contract.parse(source, path))
    signs = [sign for node in scope.module_level for sign in _Reader(scope, "module").read(node)]
    for kind, function in scope.reached:
        signs += _Reader(scope, kind).read(function)
    if "kernel_fn" in scope.definitions and not scope.has_device_function:
        line = scope.definitions["kernel_fn"][-1].lineno
        message = "kernel_fn launches no CuTe kernel: the file has no function decorated with @cute.kernel"
        signs.append(_Sign(line, 0, Rule.W1, message, "write the computation as a @cute.kernel"))
    return [
        Violation(sign.rule, Mechanism.STATIC_CHECK, f"{path.name}:{sign.line}: {sign.message}; {sign.fix}")
        for sign in sorted(dict.fromkeys(signs), key=lambda sign: (sign.line, sign.column))
    ]


class _Scope:
    """The file's definitions, its import names, and what `kernel_fn` and module-level code reach."""

    def __init__(self, tree: ast.Module) -> None:
        self.imports = dict(_imported(tree))
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.module_level: list[ast.stmt] = []
        for statement in tree.body:
            self._take(statement)
        functions = [d for group in self.definitions.values() for d in group]
        nodes = [node for function in functions for node in ast.walk(function)]
        self.has_device_function = any(self.decorated(node, KERNEL_DECORATORS) for node in nodes)
        self.reached = self._reach()

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if statement.name not in REFERENCE_NAMES:
                self.definitions.setdefault(statement.name, []).append(statement)
        elif not _is_main_guard(statement):
            names = list(contract.defined_names(statement))
            if names and all(name in contract.PROBLEM_NAMES for name in names):
                return
            self.module_level.append(statement)
            for name in [] if isinstance(statement, (ast.Import, ast.ImportFrom)) else names:
                self.definitions.setdefault(name, []).append(statement)

    def _reach(self) -> list[tuple[str, ast.stmt]]:
        """("host" | "device", definition): what host code reaches, then what only traced code does."""
        host = self._closure([*self.definitions.get("kernel_fn", ()), *self.module_level], into_device=False)
        both = self._closure(host, into_device=True)
        kinds = [("device" if s not in host or self.decorated(s, TRACED_DECORATORS) else "host", s) for s in both]
        functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return [(kind, statement) for kind, statement in kinds if isinstance(statement, functions)]

    def _closure(self, todo: Sequence[ast.stmt], *, into_device: bool) -> list[ast.stmt]:
        remaining, seen = list(todo), dict[ast.stmt, None]()
        while remaining:
            statement = remaining.pop()
            if statement in seen:
                continue
            seen[statement] = None
            if into_device or not self.decorated(statement, TRACED_DECORATORS):
                names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
                remaining += [definition for name in names for definition in self.definitions.get(name, ())]
        return list(seen)

    def decorated(self, node: ast.AST, names: Sequence[str]) -> bool:
        """Whether a definition has one of these decorators, called or not."""
        found = [d.func if isinstance(d, ast.Call) else d for d in getattr(node, "decorator_list", [])]
        return any(self.dotted(decorator) in names for decorator in found)

    def dotted(self, node: ast.AST) -> str:
        """`F.softmax` as `torch.nn.functional.softmax`; empty when the expression is not a dotted imported name."""
        parts: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name) or root.id not in self.imports:
            return ""
        return ".".join([self.imports[root.id], *reversed(parts)])


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every imported name of the file with the dotted name that it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _is_main_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    return any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(statement.test))


class _Reader:
    """Reads one statement: "module" (runs at import), "host" (runs for kernel_fn) or "device" (traced by the DSL)."""

    def __init__(self, scope: _Scope, kind: str) -> None:
        self.scope, self.kind = scope, kind

    def read(self, root: ast.AST) -> list[_Sign]:
        """Everything that the statement shows."""
        return [sign for node in self._nodes(root) for sign in self._check(node)]

    def _nodes(self, root: ast.AST) -> Iterator[ast.AST]:
        """All nodes, without annotations and nested device functions."""
        yield root
        for name, value in ast.iter_fields(root):
            if name in ("annotation", "returns", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and (child is root or not self.scope.decorated(child, TRACED_DECORATORS)):
                    yield from self._nodes(child)

    def _check(self, node: ast.AST) -> Iterator[_Sign]:
        yield from self._imports(node)
        yield from self._evasion(node)
        yield from self._cuda_api(node)
        yield from self._reference(node)
        yield from self._patching(node)
        yield from self._environment(node)
        if self.kind != "device":
            yield from self._fallback(node)
        if self.kind == "host":
            yield from self._computing(node)

    def _at(self, node: ast.AST, rule: Rule, message: str, fix: str) -> _Sign:
        return _Sign(getattr(node, "lineno", 0), getattr(node, "col_offset", 0), rule, message, fix)

    def _imports(self, node: ast.AST) -> Iterator[_Sign]:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        names = (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [f"{node.module}.{node.names[0].name}"]
        )
        for name in names:
            package = name.split(".")[0]
            if rule := EVASIVE_MODULES.get(package):
                yield self._at(node, rule, f"a kernel has no use for {package}", "remove the import")
            elif package in FOREIGN or name.startswith(("torch.utils.cpp_extension", "torch._inductor")):
                yield self._at(node, Rule.W1, f"{name} is not CuTe DSL", "write the computation as a @cute.kernel")

    def _evasion(self, node: ast.AST) -> Iterator[_Sign]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EVASIVE_CALLS:
            yield self._at(node, Rule.H7, f"{node.func.id}() hides what the kernel does", "write the code out")
        elif isinstance(node, ast.Attribute) and node.attr in EVASIVE_MODULES and self.scope.dotted(node):
            text = f"{self.scope.dotted(node)} is a module that a kernel has no use for"
            yield self._at(node, EVASIVE_MODULES[node.attr], text, "remove it")
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_cutesmith"):
            yield self._at(node, Rule.H1, f".{node.attr} is the judge's own", "remove it")
        elif isinstance(node, ast.Attribute) and node.attr in EVASIVE_ATTRIBUTES:
            rule = EVASIVE_ATTRIBUTES[node.attr]
            rooted = self.scope.dotted(node).split(".")[0]
            of_module = rooted in ("sys", "os", "traceback")
            if of_module or node.attr.startswith(("_", "f_", "tb_", "gi_")):
                yield self._at(node, rule, f".{node.attr} reaches beyond the kernel", "remove it")

    def _cuda_api(self, node: ast.AST) -> Iterator[_Sign]:
        """CUDA beside the DSL: other kernels (W2), or settings of the cache (T5)."""
        dotted = self.scope.dotted(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
        parts = dotted.split(".")
        if parts[:2] != ["cuda", "bindings"] or len(parts) < 3 or CUDA_API_ALLOWED.issuperset(parts[2:4]):
            return
        rule = Rule.T5 if any(word in dotted for word in CACHE_SETTINGS) else Rule.W2
        message = f"the kernel uses {dotted}, which works beside the CuTe kernel"
        yield self._at(node, rule, message, "launch the @cute.kernel, and leave the driver alone")

    def _reference(self, node: ast.AST) -> Iterator[_Sign]:
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ""
        name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else name
        if name in REFERENCE_NAMES:
            yield self._at(node, Rule.W4, f"the kernel uses {name}", "compute the result in the CuTe kernel")

    def _patching(self, node: ast.AST) -> Iterator[_Sign]:
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            owner = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else None
            dotted = self.scope.dotted(owner) if owner is not None else ""
            if dotted.split(".")[0] in PATCHABLE and dotted != "os.environ":
                name = self.scope.dotted(target) or dotted
                yield self._at(node, Rule.T4, f"the kernel replaces {name}", "leave other modules as they are")

    def _environment(self, node: ast.AST) -> Iterator[_Sign]:
        if isinstance(node, ast.Attribute) and self.scope.dotted(node) == "sys.argv":
            yield self._at(node, Rule.H3, "the kernel reads sys.argv", "a kernel must not know how it is run")
        key = _environment_key(node, self.scope)
        if key is not None and not key.startswith(PUBLIC_VARIABLES):
            what = f"the environment variable {key}" if key else "the environment"
            yield self._at(node, Rule.H3, f"the kernel reads {what}", "a kernel must not know how it is run")

    def _fallback(self, node: ast.AST) -> Iterator[_Sign]:
        """Rule W3: an error that is swallowed lets something else take the kernel's place."""
        if isinstance(node, ast.Try) and any(not isinstance(h.body[-1], ast.Raise) for h in node.handlers):
            message = "an except clause swallows the kernel's failure"
            yield self._at(node, Rule.W3, message, "let the error surface, or raise a clearer one in its place")
        if isinstance(node, ast.Call) and self.scope.dotted(node.func) == "contextlib.suppress":
            yield self._at(node, Rule.W3, "contextlib.suppress swallows the kernel's failure", "let the error surface")

    def _computing(self, node: ast.AST) -> Iterator[_Sign]:
        fix = "write it into the @cute.kernel; only allocations and views are torch's business"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield self._at(node, Rule.W1, "kernel_fn computes with @ (torch.matmul)", fix)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return
        if isinstance(node, (ast.Attribute, ast.Name)):
            dotted = self.scope.dotted(node)
            if dotted.startswith("torch.") and not _torch_allowed(dotted):
                yield self._at(node, Rule.W1, f"kernel_fn uses {dotted}", fix)
            elif dotted.split(".")[0] in FOREIGN:
                yield self._at(node, Rule.W1, f"kernel_fn uses {dotted}, which is not CuTe DSL", fix)
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in COMPUTE_METHODS and not self.scope.dotted(method):
            yield self._at(node, Rule.W1, f"kernel_fn computes with torch: .{method.attr}()", fix)


def _torch_allowed(dotted: str) -> bool:
    """Whether a dotted torch name may appear in host code; a prefix of an allowed name may, too."""
    parts = dotted.split(".")
    if parts[1] == "cuda":
        return len(parts) == 2 or parts[2] in CUDA_ALLOWED
    if parts[1] == "Tensor":
        return len(parts) == 2
    return parts[1] in TORCH_ALLOWED or parts[1].startswith(TORCH_DTYPES) and parts[1] not in _NOT_DTYPES


def _environment_key(node: ast.AST, scope: _Scope) -> str | None:
    """The key of an environment look-up, "" for an unknown key, None for anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return _constant(node.slice) if scope.dotted(node.value) == "os.environ" else None
    if isinstance(node, ast.Call) and scope.dotted(node.func) in ("os.getenv", "os.environ.get", "os.environ.items"):
        return _constant(node.args[0]) if node.args else ""
    if isinstance(node, ast.Call) and any(scope.dotted(argument) == "os.environ" for argument in node.args):
        return ""
    return None


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
