"""How a kernel is cut up: tile, threads, stages, cluster; and what of that a GPU would refuse, before it compiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cutesmith.devices import WARP_SIZE, Device, SmVersion, occupancy, parse_arch
from cutesmith.errors import UsageError
from cutesmith.recording.launch_limits import LaunchShape, Triple, refusals

MAX_ACCESS_BYTES = 16  # of one lane's load or store
ONE: Triple = (1, 1, 1)


@dataclass(frozen=True, kw_only=True)
class TiledShape:
    """The sizes that a tile divides up, in its order.

    `exact` names the dimensions (by place) whose edges the kernel does not guard: a tile must divide them. Vectors run
    along the last dimension, whose smallest element in memory has `element_bytes`; 0 where that says nothing.
    """

    sizes: tuple[int, ...] = ()
    exact: tuple[int, ...] = ()
    element_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """One way to cut a shape up; every size is a plain int, 0 where it is not known.

    `tile` is what a block works on at once, along the shape's dimensions; `vector` the elements of one access;
    `smem_bytes` a block's shared memory beside the stages, `stage_bytes` that of one stage; `registers` a lower bound
    for a thread; `blocks_per_sm` the residency that the kernel is compiled for. `nonportable_cluster`: host code allows
    clusters of more than 8 blocks. `settings` is whatever else the kernel wants to know of the choice.
    """

    threads: int
    tile: tuple[int, ...] = ()
    stages: int = 1
    cluster: Triple = ONE
    vector: int = 1
    smem_bytes: int = 0
    stage_bytes: int = 0
    registers: int = 0
    blocks_per_sm: int = 0
    tma: bool = False
    nonportable_cluster: bool = False
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def total_smem(self) -> int:
        """Bytes of shared memory a block: all stages and the rest."""
        return self.smem_bytes + self.stages * self.stage_bytes

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))

    def validate(self, shape: TiledShape, device: SmVersion | Device | str) -> tuple[str, ...]:
        """A sentence for each reason why this cannot run on `device` (an SM, a GPU, or a name such as "sm_90a").

        Empty when nothing is known against it: what the compiler makes of it is told by compiling. Raises UsageError
        for a device that is not in the table.
        """
        sm = sm_of(device)
        if bad := tuple(_not_positive(self)):
            return bad
        return (
            *_indivisible(self, shape),
            *_too_wide(self, shape),
            *_too_much_smem(self, sm),
            *refusals(_launch_shape(self), sm),
            *_not_resident(self, sm),
            *([f"it uses TMA, which sm_{sm.number} does not have"] if self.tma and not sm.tma else []),
        )

    def require(self, shape: TiledShape, device: SmVersion | Device | str) -> None:
        """Raise UsageError with every refusal of `validate`."""
        if found := self.validate(shape, device):
            raise UsageError(f"{self.label()} cannot run: {'; '.join(found)}")

    def label(self) -> str:
        """What differs from a plain tiling, in a line: `threads=256, tile=(128, 64), stages=3`."""
        return ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())

    def to_dict(self) -> dict[str, object]:
        """JSON-able: the fields that are not at their default, and every setting under `settings`."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        default = {f.name: f.default for f in fields(self)}
        kept = {name: value for name, value in told.items() if value != default[name]}
        return {**kept, **({"settings": dict(self.settings)} if self.settings else {})}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Tiling:
        """The tiling that `to_dict` described, also after a way through JSON. Raises UsageError for anything else."""
        known = {f.name for f in fields(cls)}
        if not isinstance(values, Mapping) or "threads" not in values or not values.keys() <= known:
            raise UsageError(f"{values!r:.200} describes no tiling")
        given: Mapping[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**given)

    def namespace(self) -> str:
        """Source text of the same attributes without this package, for a kernel file that stands alone."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        settings = f"settings={dict(self.settings)!r}"
        return f"SimpleNamespace({', '.join(f'{name}={value!r}' for name, value in given.items())}, {settings})"


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least the number."""
    return 1 << max(0, number - 1).bit_length()


def sm_of(device: SmVersion | Device | str) -> SmVersion:
    """The row of the SM table that an architecture's name or a GPU has. Raises UsageError when there is none."""
    if isinstance(device, SmVersion):
        return device
    if isinstance(device, str):
        return parse_arch(device).sm
    if device.sm is None:
        raise UsageError(f"{device.name} (compute capability {device.capability}) is not in the SM table")
    return device.sm


def _not_positive(tiling: Tiling) -> Iterator[str]:
    """What no launch can have: sizes below 1, or amounts below 0."""
    sizes: dict[str, tuple[int, ...]] = {
        "threads": (tiling.threads,),
        "stages": (tiling.stages,),
        "vector": (tiling.vector,),
    }
    sizes |= {"tile": tiling.tile, "cluster": tiling.cluster}
    amounts = ("smem_bytes", "stage_bytes", "registers", "blocks_per_sm")
    for name, values in sizes.items():
        if any(value < 1 for value in values):
            yield f"{name} is {values[0] if len(values) == 1 else values}: it must be positive"
    for name in amounts:
        if getattr(tiling, name) < 0:
            yield f"{name} is {getattr(tiling, name)}: it must not be negative"
    if len(tiling.cluster) != 3:
        yield f"cluster is {tiling.cluster}: it must have three sizes"


def _indivisible(tiling: Tiling, shape: TiledShape) -> Iterator[str]:
    if len(tiling.tile) > len(shape.sizes) > 0:
        yield f"a tile of {len(tiling.tile)} dimensions for a shape of {len(shape.sizes)}"
        return
    for place in shape.exact:
        if place < min(len(tiling.tile), len(shape.sizes)) and shape.sizes[place] % tiling.tile[place]:
            size, tile = shape.sizes[place], tiling.tile[place]
            yield f"a tile of {tile} does not divide the {size} of dimension {place}, whose edge is not guarded"


def _too_wide(tiling: Tiling, shape: TiledShape) -> Iterator[str]:
    wide = tiling.vector * shape.element_bytes
    if wide > MAX_ACCESS_BYTES or tiling.vector & (tiling.vector - 1):
        what = f"{tiling.vector} elements an access"
        bytes_told = f" of {shape.element_bytes} bytes" if shape.element_bytes else ""
        yield f"{what}{bytes_told}: it must be a power of two of at most {MAX_ACCESS_BYTES} bytes"
    elif tiling.tile and tiling.tile[-1] % tiling.vector:
        yield f"{tiling.vector} elements an access do not divide the tile's {tiling.tile[-1]}"
    last = len(shape.sizes) - 1
    if last in shape.exact and shape.sizes[last] % tiling.vector:
        yield f"{tiling.vector} elements an access do not divide the {shape.sizes[last]} of dimension {last}"


def _too_much_smem(tiling: Tiling, sm: SmVersion) -> Iterator[str]:
    if tiling.total_smem <= sm.smem_per_block:
        return
    parts = f"{tiling.stages} stages of {tiling.stage_bytes} bytes and {tiling.smem_bytes} beside them"
    what = parts if tiling.stage_bytes else f"{tiling.smem_bytes} bytes of shared memory"
    text = f"{what}: sm_{sm.number} has {sm.smem_per_block} bytes a block"
    if tiling.stage_bytes and tiling.smem_bytes < sm.smem_per_block:
        fitting = (sm.smem_per_block - tiling.smem_bytes) // tiling.stage_bytes
        text += f", which is room for {fitting} stage{'s' * (fitting != 1)}" if fitting else ", too little for one"
    yield text


def _launch_shape(tiling: Tiling) -> LaunchShape:
    """The launch as the hardware's own rules see it; shared memory has been judged, the grid is not known."""
    return LaunchShape(
        grid=tiling.cluster,
        block=(tiling.threads, 1, 1),
        cluster=tiling.cluster,
        registers=tiling.registers,
        static_smem=0,
        dynamic_smem=0,
        smem_limit=0,
        nonportable_cluster=tiling.nonportable_cluster,
    )


def _not_resident(tiling: Tiling, sm: SmVersion) -> Iterator[str]:
    """The residency that was asked for must be possible with what is known of registers and shared memory."""
    if tiling.blocks_per_sm < 2 or tiling.threads > sm.threads_per_sm:
        return
    held = occupancy(sm, threads=tiling.threads, registers=tiling.registers, smem=tiling.total_smem)
    if 0 < held.blocks < tiling.blocks_per_sm:
        warps = f"{tiling.threads // WARP_SIZE or 1} warps"
        yield f"{tiling.blocks_per_sm} blocks of {warps} a multiprocessor: {held.limit} leave room for {held.blocks}"
