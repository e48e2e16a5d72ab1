"""What a confined worker may still read: the interpreter, its packages, system libraries, devices, its own scratch.

Python, PyTorch, CUDA and the DSL open files long after they were imported (sources for error messages, sub-modules,
the driver's compiler), so what belongs to an installation is allowed whole. People's data is not: home folders, other
work folders, /tmp, /etc/shadow, other processes. An installation inside a home folder is allowed, the home is not.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import pwd
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cutesmith.verdicts import Rule

# Folders (with all beneath) and files of the system that hold no person's data.
FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store", "/gnu/store", "/sys")
DRIVERS = ("/opt/cuda*", "/opt/nvidia*", "/run/nvidia*", "/run/opengl-driver*", "/etc/nvidia*", "/etc/OpenCL")
LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/nsswitch.conf")
NAMES = ("/etc/passwd", "/etc/group", "/etc/os-release", "/etc/timezone", "/etc/localtime", "/etc/locale.alias")
GPU_DEVICES = ("/dev/nvidia*", "/dev/dxg", "/dev/infiniband", "/dev/gdrdrv")
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
SYSTEM = (*FOLDERS, *DRIVERS, *LOADER, *NAMES, *GPU_DEVICES, *PLAIN_DEVICES)
# Of /proc what tells of the machine and of this process's own memory map; never an environment or a command line.
PROC_HARDWARE = ("meminfo", "cpuinfo", "devices", "driver", "modules")
PROC_SYSTEM = ("stat", "version", "filesystems", "loadavg", "uptime", "cgroups", "sys")
PROC_MEMORY = ("maps", "smaps", "smaps_rollup", "numa_maps", "statm", "auxv", "oom_score", "oom_score_adj")
PROC_STATE = ("status", "stat", "limits", "sched", "schedstat", "mounts", "mountinfo", "cgroup")
INPUTS = "inputs"  # the folder beside a worker's scratch where the judge puts what the kernel is called with
READS = (
    "A kernel may read only installed Python packages, system libraries and its current folder: pass data as inputs, "
    "and write constants into the file."
)
WRITES = "A kernel may write only into its current folder, which is gone afterwards: return what it computes."
CALLS = "A kernel may start no process and no program, open no socket and signal no other process."
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "as", "ld")
FOLDER_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUTE_DSL_LIBS", "TRITON_PTXAS_PATH")


def readable_paths() -> list[Path]:
    """Folders and files that a confined process may read, as they are at this moment; each exists."""
    system = {path for pattern in SYSTEM for path in glob.glob(pattern)}
    known = _outermost(_sound(_python() | system | _library_folders()))
    within = tuple(f"{folder}/" for folder in known)
    real_folder = cache(os.path.realpath)  # hundreds of libraries lie in one folder

    def outside(path: str) -> bool:
        real = os.path.realpath(path) if os.path.islink(path) else f"{real_folder(os.path.dirname(path))}/"
        return not real.startswith(within)

    beside = {path for path in _imported() | _library_files() if outside(path)}
    return _outermost([*known, *_sound(beside)])


def compiler_folders() -> list[Path]:
    """The installations of the machine's compilers, as PATH, CC and CXX find them, for workers that may start them."""
    named = [shlex.split(os.environ.get(name, ""))[:1] for name in ("CC", "CXX")]
    found = {shutil.which(name) for name in (*COMPILERS, *(first for words in named for first in words))}
    folders = [Path(os.path.realpath(path)).parent for path in found if path]
    return _sound(str(folder.parent if folder.name == "bin" else folder) for folder in folders)


def proc_files() -> list[Path]:
    """The files of /proc that a confined process may read: /proc/self is the calling process here."""
    own = (f"/proc/{os.getpid()}/{name}" for name in (*PROC_MEMORY, *PROC_STATE))
    machine = (f"/proc/{name}" for name in (*PROC_HARDWARE, *PROC_SYSTEM))
    return [path for path in map(Path, (*machine, *own)) if path.exists()]


def refusal(error: BaseException) -> tuple[Rule | None, str]:
    """The row of the table of exploits of a refused access to a file, and what a kernel may do; none for other errors.

    R5: it may not read the file, so nothing can be precomputed on a disk. H5: it may not write there. A refused system
    call has no row, as some of them are honest.
    """
    if isinstance(error, PermissionError) and error.errno == errno.EPERM:
        return None, CALLS
    if not isinstance(error, PermissionError) or error.errno != errno.EACCES or not isinstance(error.filename, str):
        return None, ""
    try:
        os.close(os.open(error.filename, os.O_RDONLY | os.O_NONBLOCK))
    except PermissionError:
        return Rule.R5, READS
    except OSError:
        pass
    return Rule.H5, WRITES


def _python() -> set[str]:
    """The prefixes of the interpreter, its standard library, and what of sys.path packages are installed in."""
    installed = [entry for entry in sys.path if entry and _holds_installed_packages(Path(entry))]
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    return {*prefixes, *sysconfig.get_paths().values(), *installed, *_linked_from(installed)}


def _linked_from(installed: Iterable[str]) -> set[str]:
    """Where the packages lie that an installer linked instead of copying (uv's symlink mode): METADATA tells."""
    found = (path for folder in installed for path in glob.glob(f"{glob.escape(folder)}/*.dist-info/METADATA"))
    linked = (Path(path) for path in found if os.path.islink(path) or os.path.islink(os.path.dirname(path)))
    return {str(path.resolve().parents[1]) for path in linked}


def _holds_installed_packages(folder: Path) -> bool:
    """Whether an installer filled the folder (pip leaves *.dist-info); a project's own folder is not one."""
    if folder.name in ("site-packages", "dist-packages", "lib-dynload") or folder.is_file():  # an archive
        return True
    if (folder / ".git").exists() or (folder / "pyproject.toml").exists():
        return False
    return next(folder.glob("*.dist-info"), None) is not None


def _imported() -> set[str]:
    """What is imported from elsewhere, such as an editable installation: top-level packages and modules."""
    found: set[str] = set()
    for name, module in list(sys.modules.items()):
        if "." not in name and name != "__main__":
            folders, file = getattr(module, "__path__", None), getattr(module, "__file__", None)
            found |= {str(folder) for folder in folders} if folders is not None else {str(file)} if file else set()
    return found


def _library_folders() -> set[str]:
    """The loader's folders, which root configured, and those that CUDA's and the DSL's variables name."""
    files = ("/etc/ld.so.conf", *glob.glob("/etc/ld.so.conf.d/*.conf"))
    configured = {line.strip() for file in files for line in _lines(file) if line.startswith("/")}
    return configured | {entry for name in FOLDER_VARIABLES for entry in os.environ.get(name, "").split(os.pathsep)}


def _library_files() -> set[str]:
    """Shared libraries beside those that are mapped, or where LD_LIBRARY_PATH points: a driver's may lie anywhere."""
    mapped = {
        found[1] for line in _lines("/proc/self/maps") if (found := re.search(r" (/\S+)/[^/\s]+\.so[.\d]*$", line))
    }
    folders = mapped | {entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry}
    return {path for folder in folders for path in glob.glob(f"{glob.escape(folder)}/*.so*")}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def _sound(paths: Iterable[str]) -> list[Path]:
    """The paths with their links resolved, without those that do not exist, are relative, or would open too much."""
    found = (Path(path).resolve() for path in paths if os.path.isabs(path) and os.path.exists(path))
    return [path for path in set(found) if not _too_wide(path)]


def _too_wide(path: Path) -> bool:
    """Whether allowing this folder would allow a person's whole home folder, /tmp, or the machine."""
    people = [Path(place) for place in ("/home", "/root", "/tmp", "/var/tmp", "/dev/shm", "/etc")]
    with contextlib.suppress(KeyError):  # a user without an entry has no home to protect
        people.append(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return path.parent == Path("/home") or any(place.is_relative_to(path) for place in people)


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """The paths, without those that lie in another of them."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept
