"""Problem to kernel without a model.

- `tracing/` runs `reference_fn` on tensors without storage and lowers each operation to a node of a `Graph`;
- `graph/` holds nodes, their operations, and the builder that simplifies while it builds;
- `match.py` asks the patterns in turn: `elementwise/`, `chains/` (totals, split rows: several launches), `rows/`;
- `pattern_plan.py` is what each answers with: `configurations.py`, and the kernel's text in any of them;
- `writing/` prints it: expressions, names, templates, the standalone file;
- `generation/` drafts in a confined process, and walks the stages over the candidates.
"""
