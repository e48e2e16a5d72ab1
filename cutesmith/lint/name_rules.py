"""CS1xx: dotted names, imports, keywords and instance attributes against the installed DSL."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cutesmith.lint.rule import Rule
from cutesmith.lint.source import Source, finding
from cutesmith.lint.suggestions import did_you_mean, short
from cutesmith.lint.symbols import Resolution, SymbolTable
from cutesmith.verdicts import Finding

CS101 = Rule(
    "CS101",
    "error",
    "the DSL has no such name",
    "The name is looked up in the installed package; using it raises AttributeError while the kernel is traced.",
    "Use the suggested name, or look for one with `dir()` of the module named in the message.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        r = cute.make_fragment(8, gX.element_type)
        cute.syncthreads()
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        r = cute.make_rmem_tensor(8, gX.element_type)
        cute.arch.sync_threads()
    """,
)

CS102 = Rule(
    "CS102",
    "error",
    "the import finds nothing",
    "The module or the name does not exist in the installed package; the file cannot be imported. An import "
    "inside `try: … except ImportError:` is left alone.",
    "Import the suggested name instead.",
    "from cutlass.cute import pipeline\nimport cutlass.cute.pipeline as pipe",
    "from cutlass import pipeline\nimport cutlass.pipeline as pipe",
)

CS103 = Rule(
    "CS103",
    "warning",
    "the name is deprecated",
    "The package itself declares it deprecated (decorator, module hook or warning); the next version may drop it.",
    "Use the replacement that the message names.",
    "def allocate():\n    return cutlass.utils.SmemAllocator()",
    "import cutlass.memory\n\ndef allocate():\n    return cutlass.memory.SmemAllocator()",
)

CS104 = Rule(
    "CS104",
    "warning",
    "the keyword argument is deprecated",
    "The package warns when this keyword is passed.",
    "Drop the keyword, or use the one that the message names.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        for i in cutlass.range(n, pipelining=2):
            gX[i] = gX[i] + gX[i]
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        for i in cutlass.range(n, prefetch_stages=2):
            gX[i] = gX[i] + gX[i]
    """,
)

CS105 = Rule(
    "CS105",
    "error",
    "the function takes no such keyword argument",
    "The signature of the installed function has neither this keyword nor `**kwargs`: the call raises TypeError.",
    "Use a keyword of the signature in the message.",
    "def fake():\n    return cute.runtime.make_fake_compact_tensor(cutlass.Float32, (64,), alignment=16)",
    "def fake():\n    return cute.runtime.make_fake_compact_tensor(cutlass.Float32, (64,), assumed_align=16)",
)

CS106 = Rule(
    "CS106",
    "error",
    "instances have no such attribute",
    "A parameter annotated `cute.Tensor` (or what its `.load()` gives) has no attribute of that name in the "
    "installed package: tracing raises AttributeError.",
    "Use an attribute that exists: element_type, shape, stride, layout, iterator, memspace, load(), store(), fill(), …",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        gX.store(gX.load().astype(gX.dtype_of()))
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        gX.store(gX.load().to(gX.element_type))
    """,
)

CS107 = Rule(
    "CS107",
    "warning",
    "the submodule is not imported",
    "`import cutlass` does not import it: reading it as an attribute raises AttributeError unless something "
    "else happened to import it first.",
    "Import the submodule by its full name.",
    "def numpy_dtype():\n    return cutlass.torch.dtype(cutlass.Float32)",
    "import cutlass.torch\n\ndef torch_dtype():\n    return cutlass.torch.dtype(cutlass.Float32)",
)

TENSOR_CLASSES = ("cutlass.cute.typing.Tensor",)
VECTOR_CLASSES = ("cutlass.cute.tensor.TensorSSA",)
IMPORT_GUARDS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"})
DEPRECATED_RANGE_KEYWORDS = {"pipelining": "pipelining is deprecated, use prefetch_stages instead"}


def check(source: Source, symbols: SymbolTable) -> Iterator[Finding]:
    """Findings of CS101–CS107 in one file."""
    yield from _imports(source, symbols)
    yield from _attributes(source, symbols)
    yield from _keywords(source, symbols)
    yield from _instances(source, symbols)


def _imports(source: Source, symbols: SymbolTable) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _imported_module(source, symbols, node, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _imported_names(source, symbols, node)


def _imported_module(source: Source, symbols: SymbolTable, node: ast.stmt, module: str) -> Iterator[Finding]:
    if module.split(".")[0] in symbols.roots and not symbols.is_module(module) and not _guarded(source, node):
        parent, _, name = module.rpartition(".")
        hint = did_you_mean(symbols, parent, name)
        yield finding(CS102, node, f"There is no module {module} in nvidia-cutlass-dsl {symbols.version}.", hint)


def _imported_names(source: Source, symbols: SymbolTable, node: ast.ImportFrom) -> Iterator[Finding]:
    module = node.module or ""
    if module.split(".")[0] not in symbols.roots:
        return
    if not symbols.is_module(module):
        yield from _imported_module(source, symbols, node, module)
        return
    for alias in node.names:
        if alias.name == "*":
            continue
        resolution = symbols.resolve(f"{module}.{alias.name}")
        if not resolution.found and not _guarded(source, node):
            text = f"{module} has no {alias.name} in nvidia-cutlass-dsl {symbols.version}."
            yield finding(CS102, alias, text, did_you_mean(symbols, module, alias.name))
        yield from _deprecated(resolution, alias)


def _attributes(source: Source, symbols: SymbolTable) -> Iterator[Finding]:
    imported = _imported_modules(source, symbols)
    for node in source.all(ast.Attribute):
        dotted = source.dotted(node)
        if dotted is None or dotted.split(".")[0] not in symbols.roots:
            continue
        if isinstance(source.parents.get(node), ast.Attribute) and symbols.resolve(dotted).found:
            continue  # judged as part of the longer name
        yield from _judge(source, symbols, node, symbols.resolve(dotted), imported)


def _judge(
    source: Source, symbols: SymbolTable, node: ast.Attribute, resolution: Resolution, imported: set[str]
) -> Iterator[Finding]:
    if not resolution.found:
        own = f"{resolution.parent}.{resolution.missing}" == resolution.dotted
        if own and not _guarded(source, node) and not isinstance(node.ctx, ast.Store):
            yield _unknown_name(symbols, node, resolution)
        return
    yield from _deprecated(resolution, node)
    if resolution.needs_import and resolution.needs_import not in imported and not _guarded(source, node):
        text = (
            f"{resolution.needs_import} exists, but this file does not import it and `import cutlass` does not either."
        )
        yield finding(CS107, node, text, f"Write `import {resolution.needs_import}`.")


def _unknown_name(symbols: SymbolTable, node: ast.Attribute, resolution: Resolution) -> Finding:
    parent = short(resolution.parent)
    text = f"{parent} has no {resolution.missing} in nvidia-cutlass-dsl {symbols.version}."
    return finding(CS101, node, text, did_you_mean(symbols, resolution.parent, resolution.missing))


def _deprecated(resolution: Resolution, node: ast.AST) -> Iterator[Finding]:
    for dotted, text in resolution.deprecations:
        yield finding(CS103, node, f"{short(dotted)}: {_one_line(text)}", _replacement(text))


def _replacement(text: str) -> str:
    """The package's own advice: what follows "use" or "Use", or "remove it"."""
    flat = _one_line(text)
    for word in ("; use ", ", use ", " Use ", "Please use ", "favor of "):
        if word in flat:
            advice = flat.split(word, 1)[1].split(" It will be removed")[0].split(". ")[0]
            return f"Use {advice.removesuffix(' instead.').removesuffix(' instead').rstrip('.')}."
    return "Remove it: plain `if` and `for … in range(…)` are staged by themselves." if "remove it" in flat else flat


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _imported_modules(source: Source, symbols: SymbolTable) -> set[str]:
    """Modules that the file imports somewhere, with the packages around them."""
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            found.update(".".join(parts[: i + 1]) for i in range(len(parts)))
            found.update(symbols.resolve(name).reference[2:] for _ in (0,) if parts[0] in symbols.roots)
    return found


def _guarded(source: Source, node: ast.AST) -> bool:
    """Whether the code is prepared for the name's absence: `try … except ImportError`, `if hasattr(…)`, …."""
    previous = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.Try) and previous in ancestor.body and _catches_absence(ancestor):
            return True
        if isinstance(ancestor, (ast.If, ast.IfExp)) and _asks_for_presence(ancestor.test):
            return True
        previous = ancestor
    return False


def _catches_absence(node: ast.Try) -> bool:
    for handler in node.handlers:
        names = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)} if handler.type else {"Exception"}
        if names & IMPORT_GUARDS:
            return True
    return False


def _asks_for_presence(test: ast.expr) -> bool:
    words = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    words |= {n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute)}
    return any(word in {"hasattr", "getattr", "TYPE_CHECKING"} or "version" in word.lower() for word in words)


def _keywords(source: Source, symbols: SymbolTable) -> Iterator[Finding]:
    for node in source.all(ast.Call):
        dotted = source.dotted(node.func)
        if dotted is None or dotted.split(".")[0] not in symbols.roots:
            continue
        resolution = symbols.resolve(dotted)
        if resolution.found:
            yield from _call_keywords(symbols, node, dotted, resolution.reference)


def _call_keywords(symbols: SymbolTable, node: ast.Call, dotted: str, reference: str) -> Iterator[Finding]:
    deprecated = symbols.deprecated_keywords(reference)
    if dotted in ("cutlass.range", "cutlass.cute.range"):
        deprecated |= DEPRECATED_RANGE_KEYWORDS
    parameters = symbols.parameters(reference)
    for keyword in node.keywords:
        if keyword.arg in deprecated:
            text = _one_line(deprecated[keyword.arg])
            yield finding(CS104, keyword.value, f"{short(dotted)}({keyword.arg}=…): {text}", _replacement(text))
        elif keyword.arg and parameters is not None and keyword.arg not in parameters:
            shown = ", ".join(name for name in parameters if name not in ("loc", "ip")) or "no arguments"
            text = f"{short(dotted)} takes no keyword {keyword.arg}; it takes {shown}."
            yield finding(CS105, keyword.value, text)


def _instances(source: Source, symbols: SymbolTable) -> Iterator[Finding]:
    tensor = symbols.instance_names(*TENSOR_CLASSES)
    vector = symbols.instance_names(*VECTOR_CLASSES)
    for node in source.all(ast.Attribute):
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            continue
        names, what = (None, "")
        if _is_tensor_parameter(source, node.value):
            names, what = tensor, "cute.Tensor"
        elif _is_loaded_vector(source, node.value):
            names, what = vector, "the vector that load() gives (TensorSSA)"
        if names is not None and node.attr not in names and not _guarded(source, node):
            yield finding(CS106, node, f"{what} has no attribute {node.attr} in nvidia-cutlass-dsl {symbols.version}.")


def _is_tensor_parameter(source: Source, node: ast.expr) -> bool:
    """A parameter annotated exactly `cute.Tensor` that the function never binds again."""
    if not isinstance(node, ast.Name):
        return False
    home = source.scopes.scope_of(node).find(node.id)
    if home is None or not isinstance(home.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    arguments = home.node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.arg == node.id:
            annotation = argument.annotation
            once = len(home.bindings[node.id]) == 1
            return once and annotation is not None and source.dotted(annotation) == "cutlass.cute.Tensor"
    return False


def _is_loaded_vector(source: Source, node: ast.expr) -> bool:
    call = isinstance(node, ast.Call) and not node.args and not node.keywords
    if call and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "load" and _is_tensor_parameter(source, node.func.value)
    return False
