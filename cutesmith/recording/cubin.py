"""Registers, stack, shared memory and parameters of every kernel in a cubin, read from the ELF file itself.

A cubin is an ELF64 file; NVIDIA's `.nv.info` sections hold (format, attribute, value) records. Format 4 has a two-byte
size and a payload, every other format a two-byte value in place of the size. `cuobjdump -res-usage` reads the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK
from cutesmith.recording.machine_code import LOAD_LOCAL, SET_MAX_REGISTERS, STORE_LOCAL, GlobalLoads, MachineCode

_ARGUMENT = r"(?:tensorptr|tensor0|ptr|Tiled|CopyAtom|cutesmith_file_|__main__)"
_MANGLED = re.compile(rf"(?:kernel_cutlass_)?(?P<name>\w+?)(?:_{_ARGUMENT}\w*|_?_\d+)?")
_FAT_MAGIC = 0xBA55ED50
_FAT_ELF = 2
_ELF_MAGIC = b"\x7fELF"
_ABI_VERSION, _LATER_ABI = 8, 8  # byte of the version, and the first that has the SM in the second byte of the flags

_FRAME_SIZE = 0x11
_KPARAM_INFO = 0x17
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_REGISTER_COUNT = 0x2F
_CTAS_PER_CLUSTER = 0x3D
_KPARAM_INFO_V2 = 0x45
_SIZED_FORMAT = 4


@dataclass(frozen=True, kw_only=True)
class CubinKernel:
    """What a cubin says of one kernel: registers a thread, bytes, and parameters as (offset, size) in order.

    `static_smem_bytes` leaves out the 1 KB that the system reserves on sm_90 and later, as the driver does.
    `required_block` and `cluster` are (0, 0, 0) where the kernel leaves them to the launch.
    `local_loads` and `local_stores` count instructions, not bytes, `local_in_loops` those of both that lie in a loop;
    `moves_registers` is whether `setmaxnreg` is among the instructions: ptxas leaves it out of kernels that need few
    registers. `wgmma` and `wgmma_waits` count these products and what waits for them. `constants`: what it was
    compiled for, by the session that compiled it, such as ("threads", "512") and ("mX.shape", "(?, 8192)").
    """

    name: str
    registers: int
    stack_bytes: int
    static_smem_bytes: int
    code_bytes: int
    parameters: tuple[tuple[int, int], ...] = ()
    required_block: tuple[int, int, int] = (0, 0, 0)
    max_threads: int = 0
    cluster: tuple[int, int, int] = (0, 0, 0)
    local_loads: int = 0
    local_stores: int = 0
    local_in_loops: int = 0
    moves_registers: bool = False
    global_loads: GlobalLoads = GlobalLoads()
    wgmma: int = 0
    wgmma_waits: int = 0
    constants: tuple[tuple[str, str], ...] = ()


def source_name(kernel: str) -> str:
    """The Python name of a kernel in the name that the DSL mangles its arguments into, as far as that can be told."""
    match = _MANGLED.fullmatch(kernel)
    return match["name"] if match else kernel


def unwrap_fatbin(image: bytes) -> list[bytes]:
    """The ELF files in a fat binary (an ELF file is given back as it is).

    Raises ValueError when `image` is neither.
    """
    if image[:4] == _ELF_MAGIC:
        return [image]
    magic, _, header, size = struct.unpack_from("<IHHQ", image)
    if magic != _FAT_MAGIC:
        raise ValueError("neither an ELF file nor a fat binary")
    elves, position = [], header
    while position < header + size:
        kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", image, position)
        if kind == _FAT_ELF:
            elves.append(image[position + entry_header : position + entry_header + entry_size])
        position += entry_header + entry_size
    return elves


def read_cubin(image: bytes) -> dict[str, CubinKernel]:
    """Every kernel of a cubin or fat binary, by its mangled name."""
    return {name: kernel for elf in unwrap_fatbin(image) for name, kernel in _Elf(elf).kernels().items()}


@dataclass(frozen=True)
class _Section:
    name: str
    offset: int
    size: int
    link: int
    has_bytes: bool


@dataclass
class _Facts:
    """Attributes of one kernel while they are collected."""

    registers: int = 0
    stack: int = 0
    parameters: dict[int, tuple[int, int]] = field(default_factory=dict)
    triples: dict[int, tuple[int, int, int]] = field(default_factory=dict)


class _Elf:
    """The sections of one cubin."""

    def __init__(self, image: bytes) -> None:
        self._image = image
        (start,) = struct.unpack_from("<Q", image, 0x28)
        (flags,) = struct.unpack_from("<I", image, 0x30)
        self._sm = (flags >> 8 if image[_ABI_VERSION] >= _LATER_ABI else flags) & 0xFF
        entry, count, names = struct.unpack_from("<HHH", image, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * entry) for i in range(count)]
        base = headers[names][4]
        self._sections = [_Section(self._text(base + h[0]), h[4], h[5], h[6], h[1] != 8) for h in headers]
        self._by_name = {section.name: section for section in self._sections}

    def kernels(self) -> dict[str, CubinKernel]:
        names = [s.name[len(".text.") :] for s in self._sections if s.name.startswith(".text.")]
        facts = {name: _Facts() for name in names}
        self._read_module_info(facts)
        for name, fact in facts.items():
            self._read_kernel_info(name, fact)
        return {name: self._kernel(name, fact) for name, fact in facts.items()}

    def _kernel(self, name: str, fact: _Facts) -> CubinKernel:
        code = self._by_name[f".text.{name}"]
        machine_code = MachineCode.of(self._image[code.offset : code.offset + code.size])
        return CubinKernel(
            name=name,
            registers=fact.registers,
            stack_bytes=fact.stack,
            static_smem_bytes=self._static_smem(name),
            code_bytes=code.size,
            parameters=tuple(fact.parameters[i] for i in sorted(fact.parameters)),
            required_block=fact.triples.get(_REQUIRED_THREADS, (0, 0, 0)),
            max_threads=fact.triples.get(_MAX_THREADS, (0, 0, 0))[0],
            cluster=fact.triples.get(_CTAS_PER_CLUSTER, (0, 0, 0)),
            local_loads=machine_code.count(LOAD_LOCAL),
            local_stores=machine_code.count(STORE_LOCAL),
            local_in_loops=machine_code.in_loops(LOAD_LOCAL, STORE_LOCAL, sm=self._sm),
            moves_registers=machine_code.count(SET_MAX_REGISTERS) > 0,
            global_loads=machine_code.global_loads(),
            wgmma=machine_code.wgmma(),
            wgmma_waits=machine_code.wgmma_waits(),
        )

    def _static_smem(self, name: str) -> int:
        section = self._by_name.get(f".nv.shared.{name}")
        size = section.size if section else 0
        return max(0, size - RESERVED_SMEM_PER_BLOCK) if ".nv.shared.reserved.0" in self._by_name else size

    def _read_module_info(self, facts: dict[str, _Facts]) -> None:
        for attribute, value in self._records(".nv.info"):
            if attribute in (_REGISTER_COUNT, _FRAME_SIZE):
                symbol, number = struct.unpack("<II", value)
                fact = facts.get(self._symbol(symbol))
                if fact is not None and attribute == _REGISTER_COUNT:
                    fact.registers = number
                elif fact is not None:
                    fact.stack = number

    def _read_kernel_info(self, name: str, fact: _Facts) -> None:
        for attribute, value in self._records(f".nv.info.{name}"):
            if attribute in (_KPARAM_INFO, _KPARAM_INFO_V2):
                _, ordinal, offset, packed = struct.unpack_from("<IHHI", value)
                fact.parameters.setdefault(ordinal, (offset, packed >> 18))
            elif attribute in (_REQUIRED_THREADS, _MAX_THREADS, _CTAS_PER_CLUSTER):
                fact.triples[attribute] = struct.unpack_from("<3I", value)

    def _records(self, name: str) -> Iterator[tuple[int, bytes]]:
        section = self._by_name.get(name)
        position, end = (section.offset, section.offset + section.size) if section else (0, 0)
        while position + 4 <= end:
            form, attribute, size = struct.unpack_from("<BBH", self._image, position)
            position += 4
            if form == _SIZED_FORMAT:
                yield attribute, self._image[position : position + size]
                position += size

    def _symbol(self, index: int) -> str:
        table = self._by_name[".symtab"]
        (name,) = struct.unpack_from("<I", self._image, table.offset + 24 * index)
        return self._text(self._sections[table.link].offset + name)

    def _text(self, offset: int) -> str:
        return self._image[offset : self._image.index(b"\0", offset)].decode()
