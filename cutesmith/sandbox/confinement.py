"""What Linux refuses to a worker once `confine()` has been called: files, processes, sockets, foreign signals.

Everything here is plain `prctl`, `landlock_*` and `seccomp` through ctypes, each optional: `confine()` says what is on.
Sources: landlock(7), seccomp(2), the UAPI headers `linux/landlock.h`, `linux/seccomp.h`, `linux/audit.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutesmith.sandbox.environment import FREE_READS
from cutesmith.sandbox.readable import compiler_folders, proc_files, readable_paths

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_VERSION_FLAG = 1

# Rights by the Landlock ABI that brought them. Executing a file is seccomp's business.
_WRITE_FILE = 1 << 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # remove, make_*, make_sym
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_NET = 0b11  # bind and connect TCP (ABI 4)
_SCOPES = 0b11  # abstract unix sockets and signals (ABI 6)
# CUDA opens its devices for writing, threads write their own names. Not /dev itself: /dev/shm holds others' tensors.
WRITABLE_DEVICES = ("/dev/nvidia*", "/dev/dxg", "/dev/null", "/dev/zero", "/dev/tty", "/proc/self/task")


@dataclass(frozen=True)
class _Abi:
    """Syscall numbers of one machine: those that start programs, those always refused, those judged by an argument."""

    audit: int
    seccomp: int
    clone: int
    clone3: int
    kill: int
    tgkill: int
    starting: tuple[int, ...]
    refused: tuple[int, ...]


_X86_64 = _Abi(
    audit=0xC000003E,
    seccomp=317,
    clone=56,
    clone3=435,
    kill=62,
    tgkill=234,
    starting=(57, 58, 59, 322),  # fork, vfork, execve, execveat
    # socket, socketpair, bind, ptrace, process_vm_readv, process_vm_writev, tkill,
    # rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal, pidfd_getfd, mount, umount2, setns, unshare, bpf,
    # io_uring_setup (would do any of these unseen), setsid (what leaves the worker's session may outlive it),
    # shmget, semget, msgget (what they make outlives every process)
    refused=(41, 53, 49, 101, 310, 311, 200, 129, 297, 424, 438, 165, 166, 308, 272, 321, 425, 112, 29, 64, 68),
)
_AARCH64 = _Abi(
    audit=0xC00000B7,
    seccomp=277,
    clone=220,
    clone3=435,
    kill=129,
    tgkill=131,
    starting=(221, 281),  # execve, execveat
    refused=(198, 199, 200, 117, 270, 271, 130, 138, 240, 424, 438, 40, 39, 268, 97, 280, 425, 157, 194, 190, 186),
)
_ABIS = {"x86_64": _X86_64, "aarch64": _AARCH64}

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENT_0 = 0, 4, 16  # in struct seccomp_data; low word of a little-endian argument
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020000  # every namespace: in one of users a process is root
_X32_BIT = 0x40000000


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: int = 9) -> None:
    """Ask for SIGKILL when the parent's thread ends, so that a killed judge leaves no candidate behind.

    What runs no candidate may ask for another signal, on which it clears up.
    """
    _libc().prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def hide_memory() -> None:
    """Keep every other process of this user from reading this one's memory and environment, which hold keys."""
    _libc().prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def show_memory() -> None:
    """Undo `hide_memory`: the judge must be able to read a worker's marks."""
    _libc().prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def limit_resources(*, file_bytes: int, memory_bytes: int | None) -> None:
    """Lower the rlimits of this process: file size, no core files, and address space unless CUDA needs it (None)."""
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, file_bytes)]
    if memory_bytes is not None:
        limits.append((resource.RLIMIT_AS, memory_bytes))
    for which, value in limits:
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (value, value))


def confine(
    *,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    keep_capabilities: bool = False,
    programs: bool = False,
) -> dict[str, bool]:
    """Refuse what a kernel has no business with: writes outside the current folder and `writable`, reads of
    anything but these, `readable` and the installation (`readable.readable_paths`), new processes, programs, sockets
    and signals to others, and root's capabilities. To be called in a worker once its libraries and CUDA are up, just
    before candidate code is loaded; it cannot be undone. Returns which of the layers this system gave: "landlock" is
    the one of writes, "reads" that of reads. `keep_capabilities` is for a profiler, whose counters a driver may give to
    administrators alone; `programs` lets compilers be read, wherever they are installed, and started: they are confined
    as the process that starts them.
    """
    free_reads = os.environ.pop(FREE_READS, "") != ""
    if not sys.platform.startswith("linux"):
        return {"no_new_privileges": False, "landlock": False, "reads": False, "seccomp": False}
    scratch = Path.cwd()
    privileges = _libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if not keep_capabilities:
        _drop_capabilities()
    landlock = privileges and _restrict_writes([scratch, *writable])
    readable = [scratch, *writable, *readable, *(compiler_folders() if programs else ())]
    return {
        "no_new_privileges": privileges,
        "landlock": landlock,
        "reads": landlock and not free_reads and _restrict_reads(readable),
        "seccomp": privileges and _filter_syscalls(programs=programs),
    }


def _drop_capabilities() -> None:
    """Give up what root may do beside owning its files.

    With CAP_PERFMON or CAP_SYS_ADMIN the kernel lets a process read /proc/PID/environ of any other before it asks
    Landlock (seen on Linux 6.18): a candidate run by root could read its judge's environment. capset(2), version 3.
    """
    header = struct.pack("<Ii", 0x20080522, 0)
    nothing = bytes(24)  # effective, permitted and inheritable of two words
    _libc().capset(header, nothing)


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    return max(0, int(_libc().syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION_FLAG)))


def _restrict_writes(folders: Iterable[Path]) -> bool:
    abi = landlock_abi()
    handled = _CHANGES | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    devices = [Path(device) for pattern in WRITABLE_DEVICES for device in glob.glob(pattern)]
    rules = [(folder, handled) for folder in folders]
    rules += [(device, _WRITE_FILE | (handled & _TRUNCATE)) for device in devices]
    return _restrict([handled, *([_NET] if abi >= 4 else ()), *([_SCOPES] if abi >= 6 else ())], rules)


def _restrict_reads(extra: Iterable[Path]) -> bool:
    """A layer of its own: where it cannot be had, that of writes still holds.

    It lets files be moved from folder to folder, which a layer that does not speak of it refuses, and leaves to that of
    writes from where to where: compilers move what they have made into its place.
    """
    both, moves = _READ_FILE | _READ_FOLDER, _REFER if landlock_abi() >= 2 else 0
    rules = [(path, both) for path in (*readable_paths(), *extra, *proc_files())]
    rules += [(Path("/"), moves)] if moves else []
    return _restrict([both | moves], [*rules, (Path("/proc/self/task"), _READ_FOLDER)])


def _restrict(handled: Sequence[int], rules: Iterable[tuple[Path, int]]) -> bool:
    """Put this thread, and those that it starts, under a ruleset of files, network and scopes: False where none is."""
    if landlock_abi() == 0:
        return False
    attributes = struct.pack(f"<{len(handled)}Q", *handled)
    ruleset = _libc().syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path, rights in rules:
            _allow_beneath(ruleset, path, rights)
        return int(_libc().syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)) == 0
    except OSError:
        return False
    finally:
        os.close(ruleset)


def _allow_beneath(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
    try:
        rule = struct.pack("<Qi", rights, descriptor)
        if _libc().syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock refused a rule for {path}")
    finally:
        if path.is_relative_to("/proc"):
            _held.append(descriptor)  # a rule is an inode's, and /proc makes new ones once the old are no longer held
        else:
            os.close(descriptor)


_held: list[int] = []


def _filter_syscalls(*, programs: bool) -> bool:
    abi = _ABIS.get(platform.machine())
    if abi is None:
        return False
    program = _assemble(abi, os.getpid(), programs=programs)
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog { unsigned short len; struct sock_filter *filter; } with natural alignment
    head = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    set_mode_filter, synchronise_threads = 1, 1
    return int(_libc().syscall(abi.seccomp, set_mode_filter, synchronise_threads, head)) == 0


def _assemble(abi: _Abi, own_pid: int, *, programs: bool) -> bytes:
    """Classic BPF: allow all but the refused; `clone` only for threads, signals only to this process.

    With `programs`, processes may be started, but in no namespace of their own.
    """
    refuse = _return(0x00050000 | errno.EPERM)
    allow = _return(_ALLOW)
    code = [
        _op(_LOAD, 0, 0, _ARCHITECTURE),
        _op(_JUMP_EQUAL, 1, 0, abi.audit),
        _return(_KILL),
        _op(_LOAD, 0, 0, _NUMBER),
    ]
    if abi is _X86_64:
        code += [_op(_JUMP_GE, 0, 1, _X32_BIT), refuse]
    code += [_op(_JUMP_EQUAL, 0, 1, abi.clone3), _return(0x00050000 | errno.ENOSYS)]  # glibc then falls back to clone
    for number in abi.refused if programs else (*abi.starting, *abi.refused):
        code += [_op(_JUMP_EQUAL, 0, 1, number), refuse]
    code += [_op(_JUMP_EQUAL, 0, 4, abi.clone), _op(_LOAD, 0, 0, _ARGUMENT_0)]
    flags = _op(_JUMP_SET, 0, 1, _CLONE_NEW) if programs else _op(_JUMP_SET, 1, 0, _CLONE_THREAD)
    code += [flags, refuse, allow]
    for number in (abi.kill, abi.tgkill):
        code += [_op(_JUMP_EQUAL, 0, 4, number), _op(_LOAD, 0, 0, _ARGUMENT_0)]
        code += [_op(_JUMP_EQUAL, 1, 0, own_pid), refuse, allow]
    return b"".join([*code, allow])


def _op(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _return(value: int) -> bytes:
    return _op(_RETURN, 0, 0, value)
