"""CS2xx: what the DSL's rewriting of `@cute.kernel` and `@cute.jit` functions cannot express."""

from cutesmith.lint.catalogue.rule import Rule

RULES = (
    Rule(
        "CS201",
        "error",
        "early exit out of a staged if or loop",
        "Every plain `if`, `while` and `for … in range(…)` of a traced function is staged, even when its "
        "condition is a "
        "Python value: return, raise, break and continue in it raise DSLUserCodeError: error[UNSUP_EARLY_EXIT].",
        "Guard the work instead (`if i < n: …`), or, when the condition is known while tracing, write "
        "`if cutlass.const_expr(…)` / `for … in cutlass.range_constexpr(…)`.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            if i >= n:
                return
            gX[i] = gX[i] + gX[i]
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            if i < n:
                gX[i] = gX[i] + gX[i]
        """,
    ),
    Rule(
        "CS202",
        "error",
        "break or continue in a staged if within an unrolled loop",
        "The `if` becomes a function of its own, so that `break` and `continue` stand outside any loop: "
        "SyntaxError: 'break' outside loop.",
        "Write the condition as `if cutlass.const_expr(…)`; a run-time condition needs a predicate instead.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            for i in cutlass.range_constexpr(4):
                if i > 2:
                    break
                gX[i] = gX[i] + gX[i]
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            for i in cutlass.range_constexpr(4):
                if cutlass.const_expr(i > 2):
                    break
                gX[i] = gX[i] + gX[i]
        """,
    ),
    Rule(
        "CS203",
        "error",
        "a name first assigned inside a staged if or loop is used after it",
        "A staged region hands back only names that existed before it, even when both branches assign: "
        "NameError: name … is not defined.",
        "Give the name a value of its final type before the region.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            if i < n:
                x = gX[i]
            else:
                x = gX[0]
            gX[i] = x
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            x = gX[0]
            if i < n:
                x = gX[i]
            gX[i] = x
        """,
    ),
    Rule(
        "CS204",
        "error",
        "a nested function that captures variables is called in a staged region",
        "error[SCOPE_CLOSURE_CAPTURE]: a function that closes over the kernel's variables, constants too, "
        "cannot be called "
        "within a staged if or loop.",
        "Move the function to module level and pass what it needs as arguments.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            def twice(k):
                return gX[k] + gX[k]
            if i < n:
                gX[i] = twice(i)
        """,
        """
        def twice(g, k):
            return g[k] + g[k]

        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            if i < n:
                gX[i] = twice(gX, i)
        """,
    ),
    Rule(
        "CS205",
        "error",
        "a statement that traced functions do not support",
        "`for/while … else` (error[UNSUP_LOOP_ELSE]), `global` (error[UNSUP_GLOBAL]) and reading the name `_` "
        "(error[UNSUP_READ_UNDERSCORE]) cannot be compiled.",
        "Put the code of `else` after the loop; pass values as arguments instead of through `global`; name what "
        "is read.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            for i in range(n):
                gX[i] = gX[i] + gX[i]
            else:
                gX[0] = gX[1]
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            for i in range(n):
                gX[i] = gX[i] + gX[i]
            gX[0] = gX[1]
        """,
    ),
    Rule(
        "CS206",
        "error",
        "a loop or branch changes the type of a name",
        "error[TYPE_UNSTABLE_JOIN]: a name that is an integer (or None, or a list that grows) before a staged "
        "region and a "
        "float after it has no single type where the paths meet.",
        "Start with the final type: `cutlass.Float32(0.0)` (or `0.0`) for a float sum; unroll with "
        "`cutlass.range_constexpr` where a Python list is filled.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            s = 0
            for i in range(n):
                s += gX[i].to(cutlass.Float32)
            gX[0] = s.to(gX.element_type)
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            s = cutlass.Float32(0.0)
            for i in range(n):
                s += gX[i].to(cutlass.Float32)
            gX[0] = s.to(gX.element_type)
        """,
    ),
    Rule(
        "CS207",
        "note",
        "Python's print in a traced function",
        "`print` runs once, while the function is traced: a run-time value prints as `?`.",
        'Use `cute.printf("{}", value)` for run-time values.',
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            print(i)
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            cute.printf("{}", i)
        """,
    ),
    Rule(
        "CS208",
        "error",
        "a Python function that needs a number gets a run-time value",
        "`math.exp`, `int()` and `float()` ask for a Python number: error[PHASE_DYNAMIC_INDEX] on tensor elements and "
        "thread indices.",
        "Use `cute.math.…` for functions, `cutlass.Int32(…)`, `cutlass.Float32(…)` or `.to(…)` for conversions.",
        """
        import math

        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            gX[i] = math.exp(gX[i])
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            gX[i] = cute.math.exp(gX[i])
        """,
    ),
    Rule(
        "CS209",
        "warning",
        "a helper without @cute.jit branches on a run-time value",
        "Only decorated functions are rewritten: a plain helper's `if` or `for … in range(…)` over a run-time "
        "value raises "
        "error[PHASE_DYNAMIC_TO_STATIC_BOOL] or error[PHASE_DYNAMIC_INDEX] when a kernel calls it.",
        "Decorate the helper with @cute.jit (and give it a single exit).",
        """
        def clamp(x, high: cutlass.Int32):
            if x > high:
                x = high
            return x

        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            gX[clamp(i, n)] = gX[i]
        """,
        """
        @cute.jit
        def clamp(x, high: cutlass.Int32):
            if x > high:
                x = high
            return x

        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            i, _, _ = cute.arch.thread_idx()
            gX[clamp(i, n)] = gX[i]
        """,
    ),
    Rule(
        "CS210",
        "error",
        "the DSL's decorator is not the innermost",
        "A decorator beneath @cute.jit or @cute.kernel hides the function from the DSL: "
        "error[CALL_MISSING_JIT_DECORATOR] "
        "or error[UNSUP_DECORATOR_ORDER] when it is compiled.",
        "Put @cute.jit / @cute.kernel directly above `def`.",
        """
        import functools

        @cute.jit
        @functools.cache
        def host(mX: cute.Tensor):
            pass
        """,
        """
        @cute.jit
        def host(mX: cute.Tensor):
            pass
        """,
    ),
)
