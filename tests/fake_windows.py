"""Run metaxlm by the rules of Windows: `python -m tests.fake_windows COMMAND ...`.

Without a command, import every module, and run the commands that standard input lists.

Takes away what Python has on POSIX systems only, and rejects what Windows rejects: files without an
encoding, forbidden names, opening a folder, and replacing or removing a file that is open. Text
gets Windows' line ends. `sys.platform` does not change, because libraries would call Windows.
"""

import builtins
import ctypes
import errno
import fcntl
import importlib
import io
import os
import pkgutil
import shutil
import signal
import struct
import sys
import tempfile
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType
from typing import Any

_LIBRARIES = (
    "concurrent.futures.process", "huggingface_hub", "jinja2", "lzma", "matplotlib.figure",
    "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg",
    "multiprocessing.connection", "multiprocessing.popen_spawn_posix",
    "multiprocessing.resource_tracker", "multiprocessing.synchronize", "multiprocessing.queues",
    "pandas", "psutil", "pyarrow.parquet", "pydantic", "rich.progress", "safetensors.torch",
    "scipy.optimize", "scipy.sparse", "scipy.stats", "sentencepiece", "subprocess", "tempfile",
    "tokenizers",
    "torch.distributed", "transformers", "typer.testing", "xml.etree.ElementTree", "yaml",
)  # fmt: skip
_MISSING = {
    os: (
        "fork forkpty getgid getpgid getuid killpg mkfifo nice O_DIRECTORY pread preadv pwrite "
        "readv sched_getaffinity set_blocking setsid sysconf uname writev"
    ),
    signal: "ITIMER_REAL SIGALRM SIGHUP SIGUSR1 alarm pthread_sigmask setitimer",
}
_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
_F_OFD_SETLK = 37
_FORBIDDEN = set('<>:"|?*')


def install() -> None:
    """Change this process for good."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    for name in _MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in _MISSING.items():
        for name in names.split():
            delattr(module, name)
    sys.modules["msvcrt"] = make_msvcrt()
    shutil._use_fd_functions = resource_tracker._HAVE_SIGMASK = False  # type: ignore[attr-defined]
    ctypes.CDLL = _Library  # type: ignore[misc]
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # type: ignore[assignment]
    _wrap_files()


class _Library(ctypes.CDLL):
    def __init__(self, name: str | None, *args: Any, **options: Any) -> None:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        super().__init__(name, *args, **options)


def make_msvcrt() -> ModuleType:
    """Make byte-range locks that belong to an open file and must be released as they were made."""
    module, held = ModuleType("msvcrt"), dict[int, tuple[int, int]]()

    def request(descriptor: int, kind: int, start: int, count: int) -> None:
        fields = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, count, 0)
        fcntl.fcntl(descriptor, _F_OFD_SETLK, fields)

    def locking(descriptor: int, mode: int, count: int) -> None:
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        if mode == module.LK_UNLCK:
            if held.get(descriptor) != (start, count):
                raise PermissionError(errno.EACCES, "not locked")
            request(descriptor, fcntl.F_UNLCK, start, count)
            del held[descriptor]
            return
        writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        request(descriptor, fcntl.F_WRLCK if writable else fcntl.F_RDLCK, start, count)
        held[descriptor] = (start, count)

    module.locking, module.LK_UNLCK, module.LK_NBLCK = locking, 0, 2
    return module


def _wrap_files() -> None:
    open_file, open_descriptor, make_folder = io.open, os.open, os.mkdir
    replace, rename, unlink = os.replace, os.rename, os.unlink

    def open_text(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        values = dict(zip(("buffering", "encoding", "errors", "newline"), args, strict=False))
        values |= options
        if "b" not in mode and isinstance(file, str | os.PathLike):
            encoding = values.get("encoding")
            assert encoding not in (None, "locale") or not _is_called_by_metaxlm(), file
            if "r" not in mode and values.get("newline") is None:
                values["newline"] = "\r\n"
        if "r" not in mode:
            _check_name(file)
        return open_file(file, mode, **values)

    def open_number(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if Path(os.fsdecode(path)).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if flags & os.O_CREAT:
            _check_name(path)
        return open_descriptor(path, flags, *args, **options)

    def mkdir(path: Any, *args: Any, **options: Any) -> None:
        _check_name(path)
        make_folder(path, *args, **options)

    def move(source: Any, target: Any, *, over: bool) -> None:
        _check_name(target)
        for path in (source, target):
            _check_closed(path)
        if Path(target).exists() and (not over or Path(target).is_dir()):
            raise FileExistsError(errno.EEXIST, "File exists", source, None, target)
        (replace if over else rename)(source, target)

    def remove(path: Any, *args: Any, **options: Any) -> None:
        _check_closed(path)
        unlink(path, *args, **options)

    io.open = builtins.open = open_text  # type: ignore[assignment]
    os.open, os.mkdir, os.unlink, os.remove = open_number, mkdir, remove, remove
    os.replace = lambda source, target: move(source, target, over=True)
    os.rename = lambda source, target: move(source, target, over=False)


def _is_called_by_metaxlm() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"] in ("pathlib", __name__):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).startswith("metaxlm")


def _check_name(path: Any) -> None:
    name = Path(os.fsdecode(path)).name if isinstance(path, str | bytes | os.PathLike) else ""
    if _FORBIDDEN & set(name) or name.endswith((".", " ")):
        raise OSError(errno.EINVAL, "Invalid argument", path)


def _check_closed(path: Any) -> None:
    """Raise an error if this process has a file open or mapped, or one below a folder."""
    place = str(Path(os.fsdecode(path)).absolute())
    opened = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists this folder
            opened.add(str(link.readlink()))
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        opened.add(line.split(maxsplit=5)[-1].decode())
    if place in opened or any(name.startswith(place + os.sep) for name in opened):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))


def import_all() -> list[str]:
    """Import every module of metaxlm but the kernels, which need Triton."""
    package = importlib.import_module("metaxlm")
    found = (module.name for module in pkgutil.walk_packages(package.__path__, "metaxlm."))
    names = [
        name
        for name in found
        if not name.startswith(("metaxlm.model.kernels.", "metaxlm.__main__"))
    ]
    for name in names:
        importlib.import_module(name)
    return ["metaxlm", *names]


if __name__ in ("__main__", "__mp_main__"):
    install()

if __name__ == "__main__":
    from metaxlm.cli import main

    if sys.argv[1:]:
        main()
    import_all()
    for line in sys.stdin:
        sys.argv = ["metaxlm", *line.split()]
        try:
            main()
        except SystemExit as ended:
            print(f"exit code {ended.code or 0}: {line.strip()}", flush=True)
