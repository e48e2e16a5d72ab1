"""What `contraction_sm90.py.j2` takes: layouts in shared memory, and how each part is loaded and stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.epilogue import Operand, Output
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.legality import (
    SPLIT_STAGES,
    copied_factors,
    from_registers,
    in_a_loop,
    is_tf32,
    k_major,
    moved_outputs,
    operand_registers,
    sums_again,
    turned_factors,
)
from cutesmith.patterns.contraction.hopper.prediction import blocks_at_once, read_once, shares_left
from cutesmith.patterns.contraction.hopper.scales import tile_scales
from cutesmith.patterns.contraction.im2col import im2col_context, lies_in_place
from cutesmith.patterns.contraction.row_values import call_of_rows, calls_of, given_after
from cutesmith.patterns.contraction.tma import TMA_BYTES, tma_context, varies_over
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, STORAGE_TYPE

PLACES = {
    "n": "v % 2 + v // 4 % (EPI_N // 8) * 2",
    "m": "v // 2 % 2 + v // (EPI_N // 2) * 2",
    "mn": "v",
}
"""Where the operand of sum `v` of a strip is: a thread has pairs of columns, 8 apart, and rows, 8 apart."""

STRIPS = {"n": " + j * (EPI_N // 4)", "mn": " + j * (ROWS * EPI_N // 128)"}
"""What more it is where a thread has the operand of its whole tile."""

PLACES_IN_A_LOOP = {"n": "v"}
"""The same, of the sums of one row of a thread."""

REGISTERS_FOR_OPERANDS = 176
"""Of the 240 of a thread, for its sums and for operands of a whole tile."""

HOPPER_NAMES = frozenset(
    "A B tA tB gA gB sA sB mA mB tCrA tCrB tma_A tma_B sA_layout sB_layout BM BN BK STAGES ROWS EPI_N MATH THREADS "
    "CLUSTER GROUP LOAD_REGISTERS MATH_REGISTERS LAUNCHERS pipeline warp warpgroup cpasync sm90 LayoutEnum "
    "OperandMajorMode SmemAllocator wgmma stretched transposed description factors results read resident shape "
    "blocks tiles tiles_m tiles_n rows columns one load store load_for_all first step mine turn lane rank ring state "
    "barrier everyone first_k k_tiles all_rows all_columns coordinates written my_turn their_turn released acc sums "
    "strips part copy tile cTile cStrip total share m n k i j x at at_n batch parts PARTS PRODUCTS SPLIT_STAGES "
    "SPLIT_AT_ONCE splits split_read split_from split_to split_off split_tile SPLIT_REGISTERS plain_sum whole_A "
    "whole_B whole places sParts parts_layout tCsA tile_sums vector place own majors source p a b element epi_mma "
    "mma thr_mma thr_epi smem s_sums shares block_k block_m high tile_of stage_of store_to_peer warp_index "
    "warpgroup_index atom value load_pair copy_kernel launch_copy stores launch_on_copies down along line "
    "lines length row column pair factor result copies given lined_up compiled made modes moved order steps sizes "
    "ones unit others size TAPS outputs channels taps images image all_steps rest turned side sides layout "
    "first_part with_parts parts_A parts_B first_A first_B own_A own_B stage channel tap width height positions left "
    "top seen y for_tma lines_of before after apart passed split tensor dim item aligned alignment is_one "
    "launch_on_parts launch_split split_kernel turn_kernel launch_turn pitch dtype kept most_bytes images_of "
    "scales scales_A scales_B mine_A mine_B load_scales_A load_scales_B add_scaled written_now number pieces "
    "PLACES PHASES POSITIONS APART FIRST inside further phases phase store_in_order strip first_row first_output "
    "is_place channel_tiles MmaTF32Op op matrices group groups A_2 B_2 mA_2 mB_2 tma_A_2 tma_B_2 tA_2 tB_2 "
    "tAgA tAsA tBgB tBsB tAgA_2 tBgB_2 own_2 which acc_2 sums_2 strips_2 pairs_layout EVICT_FIRST "
    "own_row LINES ends start end all_tiles group_of tiles_of_groups copy_of_strip store_inside left_rows left_columns "
    "chosen_A chosen_B matrix_A matrix_B places threads target after count end_of is_tile inner told".split()
)
"""What the template binds, so that an argument of the problem needs another name."""


def hopper_context(problem: ContractionProblem, c: HopperConfiguration) -> dict[str, object]:
    """The names of the template that depend on the form of sm_90a."""
    epilogue = problem.epilogue
    contiguous_k = k_major(problem, c)
    shared = tma_context(problem, contiguous_k, swapped=c.swapped, ahead=c.ahead)
    over = shared["over"]
    layouts = ["ROW_MAJOR" if along_k else "COL_MAJOR" for along_k in contiguous_k]
    order = -1 if c.swapped else 1
    factors = [problem.a.dtype, problem.b.dtype]
    scales = sorted(tile_scales(problem, c), key=lambda each: each.side)
    precise, looped = sums_again(problem, c), in_a_loop(problem, c)
    places = PLACES_IN_A_LOOP if looped else PLACES
    waits = c.pingpong or (c.dual and operand_registers(problem, c) > 0)  # no register is left for a whole tile
    operands = [] if waits else [(over[o.name], ITEM_BYTES[o.dtype]) for o in epilogue.operands]
    early = list(_loaded_early(c, operands))
    staged = [] if "mn" in early or looped else list(_staged(problem, c))
    if c.tile_n > c.columns:
        places = {kind: f"{place}{STRIPS[kind] if kind in early else ''}" for kind, place in places.items()}
    loaded = {o.name: o.loaded(f"r_{o.name}[{places[over[o.name]]}]") for o in epilogue.operands}
    of_row = {o.name: o.loaded(f"r_{o.name}[at]") for o in epilogue.operands}
    is_total = c.split > 1 or (precise and not problem.rounds)
    total = "own[at]" if looped else "total" if is_total else "sums[v]"
    total += ", sums_2[v]" if c.dual else ""
    given = given_after(problem.rounds, total, f"[{PLACES['m']}]")
    return (
        shared
        | im2col_context(problem.windows)
        | {
            "blocks_per_sm": blocks_at_once(problem, c),
            "rows": c.rows,
            "split_stages": SPLIT_STAGES,
            "batched": bool(problem.batch) and not c.joined,
            "joined": c.joined,
            "beside": shares_left(problem, c),
            "grouped": problem.windows is not None and len(problem.batch) > 1,
            "choices": [side for side, index in zip("AB"[::order], problem.choices, strict=True) if index],
            "ahead": c.ahead,
            "scales": scales,
            "precise": precise,
            "read_bytes": [
                *(ITEM_BYTES[index.dtype] for index in problem.indices),
                *(ITEM_BYTES[each.matrix.dtype] for each in problem.scales if each is not None),
                *(TMA_BYTES if o in staged else 2 * ITEM_BYTES[o.dtype] for o in epilogue.operands),  # vectors, pairs
                *(ITEM_BYTES[output.dtype] for output in (epilogue.of_rows.outputs if epilogue.of_rows else ())),
            ],
            "factors": ["BFloat16" if c.ahead else STORAGE_TYPE[dtype] for dtype in factors[::order]],
            "read_once": read_once(problem, c),
            "early": early,
            "late": {over[o.name] for o in epilogue.operands if o not in staged} & {"n", "mn"} - {*early},
            "staged": staged,
            "store_ops": [_store_op(output, c) for output in epilogue.outputs],
            "layouts": [*layouts[::order], "COL_MAJOR" if c.swapped else "ROW_MAJOR"],
            "tf32": is_tf32(problem, c),
            "turned": bool(turned_factors(problem, c)),
            "uncopied": lies_in_place(problem, bool(copied_factors(problem, c) or moved_outputs(problem, c))),
            "registers": from_registers(problem, c),
            "looped": looped,
            "positions": problem.graph.outputs[0].shape[-problem.order.rank :] if problem.order else (),
            "call": epilogue.call(given, list(loaded.values()), list(epilogue.coordinates)),
            "rounds": calls_of(problem.rounds, total, loaded, f"[{PLACES['m']}]"),
            "row_place": PLACES["m"],
            "row_call": call_of_rows(epilogue, problem.rounds, of_row, "[at]"),
        }
    )


def _loaded_early(c: HopperConfiguration, operands: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Of operands by columns ("n") and by both coordinates ("mn"), given with their bytes, what a thread loads first.

    Nothing hides loads after the products, where warpgroups do not take turns: a residual of 16 rows took 18.9 us, and
    18.4 before them, on an H200.
    """
    free = REGISTERS_FOR_OPERANDS - c.sums_per_thread
    for over, elements in ("n", c.tile_n // 4), ("mn", c.rows * c.tile_n // 128):
        registers = sum(elements * size // 4 for varies, size in operands if varies == over)
        if 0 < registers <= free:
            yield over
            free -= registers


def _staged(problem: ContractionProblem, c: HopperConfiguration) -> Iterator[Operand]:
    """Operands of a transposed tile whose strips pass through the buffer that results leave from.

    They lie as the result does, along the rows of tiles: a thread's sums are each in another line. Read one by one the
    residual of 128 x 128 channels, 3 x 3 over 32 x 28 x 28, took 10 of the 71 us of two convolutions on an H200.
    """
    output = problem.epilogue.outputs[0] if problem.epilogue.outputs else None
    hidden = c.pingpong or c.split > 1 or problem.order is not None or problem.ends is not None
    if output is None or hidden or not c.swapped or ITEM_BYTES[output.dtype] != 2:
        return
    for operand in problem.epilogue.operands:
        if varies_over(operand, swapped=True) == "mn" and operand.dtype == output.dtype:
            yield operand


def _store_op(output: Output, c: HopperConfiguration) -> str:
    """How a warp writes its part of a strip to shared memory: stmatrix moves elements of 16 bits only."""
    if ITEM_BYTES[output.dtype] != 2:
        return "cute.nvgpu.CopyUniversalOp()"
    return f"warp.StMatrix8x8x16bOp({c.swapped}, 4)"
