"""Level 3: bubblewrap. The command sees the system's programs, its interpreter, and the workspace; no more.

The workspace is mounted where the original repository lies, so that what an editable install wrote down leads
to the workspace, and the original is not there. Set-up is in this order: bwrap starts and stops before it does
anything; the limits are set on it from here, where no shell or helper is needed; then it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tools.sandbox.child import Child, Order, Streams, launched
from tools.sandbox.engine import Engine
from tools.sandbox.model import Limits
from tools.sandbox.pipes import End, memory_file
from tools.sandbox.processes import descendants, forsaken, gone
from tools.sandbox.view import MOUNTED_FOLDERS, View, copy, itself, overlay
from tools.sandbox.waiting import finish, in_thread

if TYPE_CHECKING:
    from tools.workspace import Workspace

HOME = "/tmp/home"  # noqa: S108 - inside the sandbox, where /tmp is private
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MB = 1024 * 1024
_TMP_MB = 512
_SWEEP_SECONDS = 10.0
"""How often a process that launches sandboxes looks for some that others have left behind."""
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_STORES = ("/nix/store", "/gnu/store")
_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version"),
    *("fonts", "gai.conf", "host.conf", "java-*", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "lsb-release", "magic", "mime.types"),
    *("nsswitch.conf", "os-release", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs"),
    *("pki/tls/openssl.cnf", "protocols", "redhat-release", "rpc", "services", "ssl/cert.pem"),
    *("ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xml"),
)
"""What programs look up, and nothing that could be a secret (no ssl/private, no shadow, no configuration)."""
_PASSWD = b"root:x:0:0::/nonexistent:/bin/sh\ndevfix:x:1000:1000::/tmp/home:/bin/sh\n"
_GROUP = b"root:x:0:\ndevfix:x:1000:\n"
_HOSTS = b"127.0.0.1 localhost devfix\n::1 localhost\n"


@dataclass
class _Profile:
    """bwrap's arguments, and the descriptors that they name."""

    arguments: list[str] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def add(self, *arguments: str | Path) -> None:
        self.arguments.extend(str(each) for each in arguments)

    def add_file(self, data: bytes, place: str) -> None:
        self.descriptors.append(memory_file(data))
        self.add("--ro-bind-data", str(self.descriptors[-1]), place)

    def as_descriptor(self) -> int:
        """The arguments as a file, since a command line can be read by every user of the machine."""
        self.descriptors.append(memory_file(b"".join(os.fsencode(each) + b"\0" for each in self.arguments)))
        return self.descriptors[-1]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class Bubblewrap(Engine):
    """The sandbox of level 3, with one bwrap program."""

    level = 3

    def __init__(self, *, program: Path, version: tuple[int, ...], allow_network: bool = False) -> None:
        self.program = program
        self.version = version
        self.allow_network = allow_network
        self.description = f"bubblewrap {'.'.join(map(str, version))}" + (
            ", network allowed" if allow_network else ", no network"
        )
        self._overlay_works: dict[int, bool] = {}
        self._swept = -_SWEEP_SECONDS

    def path(self, workspace: Workspace, relative: str = "") -> str:
        return os.fspath(workspace.repository / relative)

    async def view(self, order: Order) -> View:
        root = order.workspace.root
        if order.keep:
            return await in_thread(lambda: itself(root), undo=View.close)
        make = overlay if await self.overlay_works(order.workspace) else copy
        return await in_thread(lambda: make(root), undo=View.close)

    async def overlay_works(self, workspace: Workspace) -> bool:
        """Tried once for each file system: some refuse to be the upper or the lower side of an overlay."""
        device = (await asyncio.to_thread(os.stat, workspace.root)).st_dev
        if device not in self._overlay_works:
            works = self.version >= (0, 11) and await finish(self._try_overlay(workspace))
            self._overlay_works[device] = works
        return self._overlay_works[device]

    async def _try_overlay(self, workspace: Workspace) -> bool:
        view = await in_thread(lambda: overlay(workspace.root), undo=View.close)
        order = Order(
            command=("/usr/bin/env", "true"),
            workspace=workspace,
            limits=Limits(timeout=20),
            env={},
            mounts={},
        )
        nowhere = End(await asyncio.to_thread(os.open, os.devnull, os.O_RDWR))
        try:
            streams = Streams(stdin=nowhere, stdout=nowhere, stderr=nowhere)
            child = await self.launch(order, view, streams)
            try:
                await asyncio.wait_for(child.ended(), 20)
                await child.report()
            finally:
                await child.dismiss()
            return child.exit_code == 0
        finally:
            nowhere.close()
            await finish(asyncio.to_thread(view.close))

    async def launch(self, order: Order, view: View, streams: Streams) -> Child:
        profile, arguments = await asyncio.to_thread(self._prepared, order, view)

        async def spawn(*, status: int, go: int) -> asyncio.subprocess.Process:
            options = ("--args", arguments, "--json-status-fd", status, "--block-fd", go)
            return await asyncio.create_subprocess_exec(
                self.program,
                *map(str, options),
                "--",
                *order.command,
                stdin=streams.stdin.descriptor,
                stdout=streams.stdout.descriptor,
                stderr=streams.stderr.descriptor,
                env={},
                cwd="/",
                pass_fds=(*profile.descriptors, status, go),
                start_new_session=True,
            )

        try:
            return await launched(spawn, _Bubble, order.limits)
        finally:
            profile.close()

    def _prepared(self, order: Order, view: View) -> tuple[_Profile, int]:
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._swept = time.monotonic()
            end_forsaken(self.program)
        profile = self._profile(order, view)
        return profile, profile.as_descriptor()

    def _profile(self, order: Order, view: View) -> _Profile:
        profile = _Profile()
        profile.add("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session")
        profile.add("--clearenv", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "devfix")
        if self.allow_network:
            profile.add("--share-net")
        _add_system(profile)
        _add_etc(profile, allow_network=self.allow_network)
        _add_kernel(profile, order.limits)
        # tools write the real path into .pth files; the path that the user gave may lead to it through a link
        given, home = order.workspace.repository, order.workspace.repository.resolve()
        mounts = dict(_mounts(order, view, home))
        for place in sorted(mounts, key=lambda each: len(each.parts)):
            profile.add(*mounts[place])
        if given != home:
            profile.add("--symlink", home, given)
        profile.add("--remount-ro", "/", "--chdir", home)
        variables = {"HOME": HOME, "USER": "devfix", "LOGNAME": "devfix", "LANG": "C.UTF-8", "PATH": PATH}
        for name, value in {**variables, **order.env}.items():
            profile.add("--setenv", name, value)
        return profile


def end_forsaken(program: Path) -> None:
    """End sandboxes whose bwrap died with its DevFix so early that the kernel had not yet been asked to end them too:
    they wait for ever for their limits, or go on without any."""
    for pid in forsaken(os.fspath(program)):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _mounts(order: Order, view: View, home: Path) -> Iterator[tuple[Path, tuple[str | Path, ...]]]:
    """Each place with bwrap's arguments for it; the deeper place goes on top of the shallower."""
    for host, inside in order.mounts.items():
        yield inside, ("--ro-bind", host, inside)
    if view.upper is not None:
        writes = ("--overlay", view.upper, view.scratch / "work", home)
        yield home, ("--overlay-src", view.lower, *writes)
    else:
        yield home, ("--bind", view.lower, home)
    for name in MOUNTED_FOLDERS:
        original, place = order.workspace.repository / name, home / name
        if (view.lower / name).is_symlink():
            continue  # a mount on a link would land where the link leads
        if original.exists() and original.is_dir() == _is_dir_or_absent(view.lower / name):
            yield place, ("--ro-bind", original, place)
        elif name == ".git":
            # an empty read-only folder, so that nothing planted there waits for a git outside the sandbox
            yield place, ("--size", str(_MB), "--tmpfs", place, "--remount-ro", place)


def _is_dir_or_absent(place: Path) -> bool:
    return place.is_dir() or not place.exists()


def _add_system(profile: _Profile) -> None:
    profile.add("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM:
        place = Path("/", name)
        if place.is_symlink():
            profile.add("--symlink", os.readlink(place), place)
        elif place.exists():
            profile.add("--ro-bind", place, place)
    for store in filter(os.path.exists, _STORES):
        profile.add("--ro-bind", store, store)


def _add_etc(profile: _Profile, *, allow_network: bool) -> None:
    profile.add_file(_PASSWD, "/etc/passwd")
    profile.add_file(_GROUP, "/etc/group")
    for place in (place for name in _ETC for place in sorted(Path("/etc").glob(name))):
        if place.is_symlink() and not place.parent.is_symlink() and _visible(place):
            profile.add("--symlink", os.readlink(place), place)
        elif place.exists():
            profile.add("--ro-bind", place.resolve(), place)
    if allow_network:
        for name in ("hosts", "resolv.conf"):
            place = Path("/etc", name)
            if place.exists():
                profile.add("--ro-bind", place.resolve(), place)
    else:
        profile.add_file(_HOSTS, "/etc/hosts")


def _visible(link: Path) -> bool:
    """Whether the link leads to something that the sandbox has too."""
    return link.resolve().is_relative_to("/usr")


def _add_kernel(profile: _Profile, limits: Limits) -> None:
    """/proc, /dev and the private, bounded places to write to."""
    size = str(min(limits.disk_mb, _TMP_MB) * _MB)
    profile.add("--proc", "/proc", "--dev", "/dev")
    profile.add("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108
    profile.add("--perms", "1777", "--size", size, "--tmpfs", "/tmp", "--dir", HOME)  # noqa: S108
    profile.add("--perms", "1777", "--size", size, "--tmpfs", "/var/tmp")  # noqa: S108


class _Bubble(Child):
    """A tree that is a process namespace: it dies with its first process."""

    _leader_fd = -1

    def bind(self, limits: Limits) -> None:
        if self.leader is not None:
            with suppress(ProcessLookupError):
                self._leader_fd = os.pidfd_open(self.leader)
        super().bind(limits)

    def members(self) -> Iterator[int]:
        if self.leader is not None:
            yield from (pid for pid in descendants(self.leader) if pid != self.leader)

    async def _end(self) -> None:
        if self._leader_fd < 0:
            with suppress(ProcessLookupError):
                self.process.kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._leader_fd, signal.SIGKILL)
            await gone(self._leader_fd)
            os.close(self._leader_fd)
        await self.process.wait()
