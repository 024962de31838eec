"""Hosts of their own on this machine: a network namespace each, behind a cable that can be pulled, and a host name."""

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest


class Host:
    """A host with one cable to this machine."""

    def __init__(self, name: str, subnet: str) -> None:
        self.name = name
        self.machine_address = f"{subnet}.1"
        """How the host reaches this machine."""
        self._address = f"{subnet}.2"
        self._namespace = f"surefoot-{os.getpid()}-{name}"
        self._cable = f"sf{os.getpid() % 100_000}{name[-1]}"

    @property
    def inside(self) -> tuple[str, ...]:
        """Command that runs another one on this host."""
        rename = f'hostname {self.name} && exec "$@"'
        return ("ip", "netns", "exec", self._namespace, "unshare", "--uts", "sh", "-c", rename, "sh")

    def connect(self) -> None:
        """Make it and plug it in."""
        far = f"{self._cable}p"
        _ip("netns", "add", self._namespace)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", far, "netns", self._namespace)
        _ip("address", "add", f"{self.machine_address}/24", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        _ip("-n", self._namespace, "address", "add", f"{self._address}/24", "dev", far)
        _ip("-n", self._namespace, "link", "set", far, "up")
        _ip("-n", self._namespace, "link", "set", "lo", "up")

    def cut_off(self) -> None:
        """Pull the cable: nothing is closed, nothing arrives any more."""
        _ip("link", "set", self._cable, "down")

    def plug_in(self) -> None:
        """Put the cable back."""
        _ip("link", "set", self._cable, "up")

    def remove(self) -> None:
        """Remove it."""
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._cable)
        _ip("netns", "delete", self._namespace)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Give two hosts; skips the test where this machine does not allow that."""
    number = os.getpid() % 120
    hosts = Host("host-a", f"10.213.{2 * number}"), Host("host-b", f"10.213.{2 * number + 1}")
    with contextlib.ExitStack() as stack:
        for host in hosts:
            try:
                host.connect()
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"NOT TESTED HERE: no network namespaces: {getattr(error, 'stderr', '') or error}")
            finally:
                stack.callback(_quietly, host)
        yield hosts


def _quietly(host: Host) -> None:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        host.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
