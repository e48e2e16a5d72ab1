# Every target does its own set-up: Linux, python3 (3.10 to 3.13) and make are all that a machine needs.
#
#   make demo       five PyTorch functions become kernels, in cutesmith-out/demo/
#   make test       ruff, mypy and the tests that are fast
#   make test-all   the other tests; PART=2/4 takes every fourth case of a test that has many, from the second on
#   make selftest   the judge against kernels that cheat and honest ones that resemble them
#   make gpu-test   the tests that need an NVIDIA GPU
#   make live       Claude solves three small problems, for dollars: says how many first; needs ANTHROPIC_API_KEY
#   make docs       the site of the references, the example index and the design, in build/site/
#   make lint       ruff and mypy alone
#   make clean      remove the environment and everything built
#
# PYTHON=python3.12 picks another interpreter, PIP_ARGS="…" is passed to pip, JOBS sets the test processes,
# LIVE="softmax --dollars 0.5" is passed to evals/agent_sessions/live_sessions.py.

PYTHON ?= python3
PIP_ARGS ?=
# On two cores: tests that wait for a process leave a core to the third. 314 s with 3 where 2 took 388.
JOBS ?= 3
PART ?= 1/1
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := cutesmith-out/demo
DEMO_PROBLEMS := level1/softmax level1/gelu_tanh level2/residual_rms_norm level3/gemm_bias_gelu level3/causal_conv1d_silu

.PHONY: demo test test-all selftest gpu-test live docs lint clean setup
.DEFAULT_GOAL := test

setup: $(READY)

# The stamp is newer than both files once the environment holds what they ask for.
$(READY): pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" PIP_ARGS="$(PIP_ARGS)" sh .ci/setup $(VENV)
	@touch $@

demo: $(READY)
	@set -e; for problem in $(DEMO_PROBLEMS); do \
	    echo "== evals/tasks/$$problem.py"; \
	    $(BIN)/cutesmith generate evals/tasks/$$problem.py --out $(DEMO)/$$(basename $$problem); \
	done
	@echo; echo "Written (open a report.html in a browser):"; \
	for problem in $(DEMO_PROBLEMS); do ls $(DEMO)/$$(basename $$problem)/kernel.py \
	    $(DEMO)/$$(basename $$problem)/report.html $(DEMO)/$$(basename $$problem)/result.json; done

# A file's tests stay in one process, so that its fixtures are built once; xdist_group does nothing with pytest 9.2.
# Lint runs beside the tests, which leave a core idle now and then; either one failing fails the target.
# Bytecode is kept, whatever the environment says: else each of hundreds of processes would compile our sources again.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -q
test test-all: export PYTHONDONTWRITEBYTECODE =
test: $(READY)
	@$(MAKE) --no-print-directory lint & lint=$$!; \
	$(PYTEST) -m "not slow"; tests=$$?; \
	wait $$lint && exit $$tests

test-all: $(READY)
	$(PYTEST) -m slow --part $(PART)

selftest: $(READY)
	$(BIN)/cutesmith eval selftest --jobs $(JOBS)

gpu-test: $(READY)
	$(BIN)/python -m pytest -m gpu -q

live: $(READY)
	$(BIN)/python evals/agent_sessions/live_sessions.py $(LIVE)

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "Written: build/site/index.html (python3 -m http.server -d build/site shows it with its search)"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) cutesmith-out build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
