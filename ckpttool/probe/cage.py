"""Private namespaces for one process and all that it starts: run as a file, it imports nothing of this package.

    python -I -S cage.py ORDERS

Linux lets a user have namespaces of their own where it allows user namespaces. In them every folder is covered by an
overlay: reads fall through to the real one, writes land in a scratch folder. What cannot be covered is read-only. The
network ends at this machine's loopback, System V's shared memory is its own. The process that watches over them dies
with the one that asked, and the kernel ends everything in a PID namespace with its first process, also what called
`setsid`.

ORDERS is a JSON file: `command`, `environment`, `folder` (to run in), `layers` (an empty folder for what is written),
`shared` (a folder that stays the real one), `needed` (folders that must be writable), `online` (the network stays as it
is), `told` (a file in `shared`: what became of it, `{"caged": true, "open": [...]}` with what the kernel left open, or
`{"caged": false, "why": ...}`).
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import struct
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

NO_CAGE = 125  # exit code: the kernel does not allow it, and nothing was started
_NEW_USER, _NEW_MOUNTS, _NEW_PIDS = 0x10000000, 0x00020000, 0x20000000  # CLONE_NEW* of sched.h
_NEW_NETWORK, _NEW_IPC = 0x40000000, 0x08000000
_INTERNET, _DATAGRAMS, _SET_FLAGS, _IS_UP = 2, 2, 0x8914, 1  # AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18  # MS_*
_DIE_WITH_PARENT, _NO_NEW_PRIVILEGES, _DROP_CAPABILITY, _MAY_MOUNT = 1, 38, 24, 21  # PR_*, and CAP_SYS_ADMIN
_NO_FILES = frozenset({
    "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "debugfs", "tracefs", "securityfs", "pstore",
    "bpf", "fusectl", "configfs", "hugetlbfs", "binfmt_misc", "rpc_pipefs", "nsfs", "autofs", "efivarfs",
})  # fmt: skip
_DEEPEST = 8  # folders below a mount that are tried one by one where it cannot be covered whole


class Orders(NamedTuple):
    """What is to be run, and what it may touch."""

    command: list[str]
    environment: dict[str, str]
    folder: str
    layers: str
    shared: str
    needed: list[str]
    online: bool
    told: str


def main(path: str) -> int:
    """Build the cage, run the command in it, and give its exit code; `NO_CAGE` where there can be none."""
    with open(path, encoding="utf-8") as file:
        orders = Orders(**json.load(file))
    told = os.open(orders.told, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _own_namespaces()
    except OSError as error:
        return _no_cage(told, error)
    still_open = _cut_off(online=orders.online)
    first = os.fork()
    if first == 0:
        os._exit(_first_process(orders, told, still_open))
    _leave_signals_to_the_script()
    return _code(os.waitpid(first, 0)[1])


def _own_namespaces() -> None:
    """User, mount and PID namespaces of our own; the user keeps their id."""
    _die_with_parent()
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_USER | _NEW_MOUNTS | _NEW_PIDS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _cut_off(*, online: bool) -> list[str]:
    """Namespaces that a script can do without where the kernel refuses them: what stays open, in words."""
    still_open = ["the network"] if online or not _has_own(_NEW_NETWORK) else []
    if not still_open:
        _bring_up_loopback()
    return still_open if _has_own(_NEW_IPC) else [*still_open, "System V's shared memory"]


def _has_own(namespace: int) -> bool:
    try:
        _call("unshare", namespace)
    except OSError:
        return False
    return True


def _bring_up_loopback() -> None:
    """So that processes of the script find one another: rendezvous, gloo, servers on localhost."""
    connection = _LIBC.socket(_INTERNET, _DATAGRAMS, 0)
    with contextlib.suppress(OSError):  # without it the script is only told that there is no network
        fcntl.ioctl(connection, _SET_FLAGS, struct.pack("16sh22x", b"lo", _IS_UP))  # struct ifreq
        os.close(connection)


def _first_process(orders: Orders, told: int, still_open: list[str]) -> int:
    """PID 1 of the namespace: covers the folders, starts the command, waits for all that it leaves behind."""
    try:
        _die_with_parent()
        _cover_everything(orders)
        os.chdir(orders.folder)
    except OSError as error:
        return _no_cage(told, error)
    started = os.fork()
    if started == 0:
        _start(orders, told)
    os.write(told, json.dumps({"caged": True, "open": still_open}).encode())
    _leave_signals_to_the_script()
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == started:
            return _code(status)


def _leave_signals_to_the_script() -> None:
    """We end when it does. To be called after the fork: what is ignored stays so in a program that is started."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _start(orders: Orders, told: int) -> None:
    try:
        _prctl(_NO_NEW_PRIVILEGES, 1)
        _prctl(_DROP_CAPABILITY, _MAY_MOUNT)  # so that nothing can be uncovered again
        os.execve(orders.command[0], orders.command, orders.environment)  # noqa: S606  # no shell is wanted
    except OSError as error:
        os._exit(_no_cage(told, error))


def _no_cage(told: int, error: OSError) -> int:
    os.ftruncate(told, 0)
    os.pwrite(told, json.dumps({"caged": False, "why": str(error)}).encode(), 0)
    return NO_CAGE


def _code(status: int) -> int:
    """As a shell gives it: 128 and the signal of what was killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _cover_everything(orders: Orders) -> None:
    """Overlays over every folder with files; what has none is read-only.

    Raises:
        OSError: a folder that must be writable cannot be covered.
    """
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    shared = os.open(orders.shared, os.O_PATH | os.O_DIRECTORY)  # an overlay will hide where it is
    mounts = dict(_mounts())
    with_files = [place for place, kind in mounts.items() if kind not in _NO_FILES and not place.startswith("/dev")]
    layers, covered = _Layers(orders.layers), []
    for place in sorted(with_files):
        covered += _covered(place, layers, frozenset(mounts), 0)
    uncovered = [n for n in orders.needed if not any(_is_in(n, c) for c in covered)]
    if uncovered:
        raise OSError(f"no overlay can be mounted over {uncovered[0]}")
    _mount(f"/proc/self/fd/{shared}", orders.shared, None, _BIND)
    os.close(shared)
    for place in with_files:
        if place not in covered:
            with contextlib.suppress(OSError):  # it may be so already
                _mount(None, place, None, _REMOUNT | _BIND | _READ_ONLY)
    with contextlib.suppress(OSError):  # in a container it may be forbidden; then the other one serves
        _mount("tmpfs", "/dev/shm", "tmpfs", _NO_SUID | _NO_DEVICES)  # noqa: S108  # the place, not a file in it
    with contextlib.suppress(OSError):
        _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES)


def _mounts() -> Iterator[tuple[str, str]]:
    """Mount points and the kind of file system that is seen there."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            place = before.split()[4]
            for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                place = place.replace(code, sign)
            yield place, after.split()[0]


class _Layers:
    """Where overlays keep what is written: in a folder of the disk, or in memory where it cannot hold a layer."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0
        self._in_memory = False
        self._open()

    def _open(self) -> None:
        """Hold on to the folder: an overlay that covers it cannot hold the layers of others."""
        self._held = f"/proc/self/fd/{os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}"

    def cover(self, place: str) -> None:
        """Mount an overlay over a folder.

        Raises:
            OSError: the kernel does not take it.
        """
        try:
            self._cover(place)
        except OSError:
            if self._in_memory or self._count > 1:
                raise
            _mount("tmpfs", self._folder, "tmpfs", _NO_SUID | _NO_DEVICES)
            self._in_memory = True
            self._open()
            self._cover(place)

    def _cover(self, place: str) -> None:
        self._count += 1
        upper, work = (f"{self._held}/{self._count}{kind}" for kind in ("u", "w"))
        for folder in (upper, work):
            os.mkdir(folder)
        attributes = os.stat(place)
        os.chmod(upper, attributes.st_mode & 0o7777)  # /tmp stays sticky
        lower = place.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        _mount("overlay", place, "overlay", _NO_DEVICES, options)


def _covered(place: str, layers: _Layers, mounts: frozenset[str], depth: int) -> list[str]:
    """The folders that were covered: the place itself, or those in it where other mounts lie below it."""
    if not os.path.isdir(place):
        return []
    if not any(_is_in(other, place) and other != place for other in mounts):
        try:
            layers.cover(place)
        except OSError:
            return []
        return [place]
    if depth == _DEEPEST:
        return []
    found: list[str] = []
    try:
        with os.scandir(place) as entries:
            folders = [e.path for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:  # another user's: nothing can be written there anyway
        return []
    for folder in folders:
        if folder not in mounts:
            found += _covered(folder, layers, mounts, depth + 1)
    return found


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    try:
        _call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3])
    except OSError as error:
        raise OSError(
            error.errno, f"mounting {kind or 'a view'} at {target}: {os.strerror(error.errno or 0)}"
        ) from None


def _prctl(option: int, value: int) -> None:
    _call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _die_with_parent() -> None:
    parent = os.getppid()
    _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we had asked
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
