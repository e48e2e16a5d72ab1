"""Elementwise over a matrix with broadcasting: y = (x + bias) * scale, bias one value a column, scale one a row.

Shows how a kernel takes what real tensors are like: rows of any length and distance, 16-byte accesses where rows begin
at multiples of 16 bytes, single elements at the end of a row and everywhere else. Sizes and strides stay open, so that
there are two compilations a dtype, not one a shape.

Arch: sm_80+
Operation: elementwise
Features: vectorized_copy, predication, broadcast, strided, dynamic_layout
Start here when an elementwise kernel has to take any shape, or reads vectors beside its matrix.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
THREADS = 128
ROWS = 4  # rows a thread works on: the bias is read once for all of them


@cute.kernel
def scale_bias_kernel(
    mX: cute.Tensor, mBias: cute.Tensor, mScale: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr
):
    thread, _, _ = cute.arch.thread_idx()
    block_column, block_row, _ = cute.arch.block_idx()
    rows, columns = mX.shape
    column = (block_column * THREADS + thread) * vector
    count = cutlass.min(columns - column, vector)  # below `vector`: the tail of a row; below 1: nothing
    rBias = cute.make_rmem_tensor((vector,), mBias.element_type)
    rX = cute.make_rmem_tensor((vector, ROWS), mX.element_type)
    rY = cute.make_rmem_tensor((vector,), mY.element_type)
    rBias.fill(0)
    rX.fill(0)
    load_vector(mBias, column, count, rBias)
    for r in range_constexpr(ROWS):
        row = block_row * ROWS + r
        if row < rows:
            load_vector(mX[row, None], column, count, rX[None, r])
    for r in range_constexpr(ROWS):
        row = block_row * ROWS + r
        if row < rows:
            x = rX[None, r].load().to(Float32)
            y = (x + rBias.load().to(Float32)) * mScale[row, 0].to(Float32)
            rY.store(y.to(mY.element_type))
            store_vector(rY, column, count, mY[row, None])


@cute.jit
def load_vector(gX: cute.Tensor, column: cutlass.Int32, count: cutlass.Int32, rX: cute.Tensor):
    """`count` elements of a row from `column` on; a full vector as one access."""
    vector = const_expr(cute.size(rX))
    if count == vector:
        cute.autovec_copy(cute.zipped_divide(gX, (vector,))[None, column // vector], rX)
    else:
        for v in range_constexpr(vector):
            if v < count:
                rX[v] = gX[column + v]


@cute.jit
def store_vector(rX: cute.Tensor, column: cutlass.Int32, count: cutlass.Int32, gX: cute.Tensor):
    vector = const_expr(cute.size(rX))
    if count == vector:
        cute.autovec_copy(rX, cute.zipped_divide(gX, (vector,))[None, column // vector])
    else:
        for v in range_constexpr(vector):
            if v < count:
                gX[column + v] = rX[v]


@cute.jit
def scale_bias(
    mX: cute.Tensor, mBias: cute.Tensor, mScale: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, stream
):
    rows, columns = mX.shape
    grid = (cute.ceil_div(columns, THREADS * vector), cute.ceil_div(rows, ROWS), 1)
    scale_bias_kernel(mX, mBias, mScale, mY, vector).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, vector: int):
    """One kernel for all shapes; row strides are multiples of `vector` elements and pointers aligned to one vector."""
    rows, columns = cute.sym_int(), cute.sym_int()
    align = vector * dtype.itemsize

    def fake(shape, stride):
        return make_fake_tensor(DTYPES[dtype], shape, stride, assumed_align=align)

    pitches = [cute.sym_int64(divisibility=vector) for _ in range(2)]
    x, y = (fake((rows, columns), (pitch, 1)) for pitch in pitches)
    scale = make_fake_tensor(DTYPES[dtype], (rows, 1), (1, 1), assumed_align=dtype.itemsize)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(scale_bias, x, fake((columns,), (1,)), scale, y, vector, stream, options="--enable-tvm-ffi")


def vector_of(tensors):
    """Elements of a 16-byte vector, or 1 where a row of one of the tensors does not begin at 16 bytes."""
    width = 16 // tensors[0].element_size()
    addresses = [t.data_ptr() // t.element_size() for t in tensors] + [t.stride(0) for t in tensors if t.dim() == 2]
    return width if all(address % width == 0 for address in addresses) else 1


def kernel_fn(x, bias, scale):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.shape[0] > 65535 * ROWS:
        raise ValueError(f"{x.shape[0]} rows: the grid's second dimension ends at 65535 blocks")
    if y.numel():
        compiled(x.dtype, vector_of((x, y, bias)))(x, bias, scale, y)
    return y


def reference_fn(x, bias, scale):
    return (x + bias) * scale


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16):
    x = torch.randn(rows, columns, device="cuda", dtype=dtype)
    return [x, torch.randn(columns, device="cuda", dtype=dtype), torch.randn(rows, 1, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(9, 1003, torch.float32)
    yield get_inputs(5, 1003, torch.float16)
    x, bias, scale = get_inputs(6, 2048)
    yield [x[:, :1028], bias[:1028], scale]  # aligned rows with a tail
