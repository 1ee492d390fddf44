"""Settings of a server: access, private columns, and limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from vicinal.errors import InputError

__all__ = ["ServerSettings", "hostname", "is_this_machine"]

PATHS = frozenset({"id", "path", "source", "stamp", "hash"})  # columns that reveal something about files
USUAL_RATE = 100.0  # requests per second of one address, if other machines can reach the server
SHARE = 4  # one address may have at most 1/SHARE of the concurrent requests
PER_REQUEST = 4  # connections per request: browsers keep idle ones open


def is_this_machine(host: str) -> bool:
    """Return whether an address or name is reachable from this machine only.

    Example:
        >>> is_this_machine("127.0.0.1"), is_this_machine("localhost"), is_this_machine("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def hostname(host: str) -> str:
    """Return the name in a Host header; empty if it is invalid.

    Example:
        >>> hostname("Birds.example:8765"), hostname("http://birds.example")
        ('birds.example', 'http')
    """
    if not host.isprintable() or "@" in host:
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server; by default it is read-only and reachable from this machine only.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        token: Token that a request must present (`Authorization: Bearer ...`); empty for none. With `public`, only
            requests that change something need it.
        public: Whether anyone who can reach the address may search.
        writable: Whether items may be added and removed by clients that have the token.
        private: Columns that are neither shown nor allowed in filters. `path` also encrypts ids, since the ids of files
            are their paths.
        names: Host names that the machine may be called by in addition to its address (the header `Host`).
        root: Folder from which pictures may be shown; None for the common folder of all items.
        max_k: Largest number of hits of a request.
        max_reranked: Largest index for which re-ranking is allowed: it searches all items among all items, and holds
            them in memory.
        max_upload: Largest size of a request, in bytes.
        max_pixels: Largest number of pixels that a picture's header may declare.
        max_concurrent: Largest number of requests that run or wait; any more are refused immediately. If other machines
            can reach the server, one address may have at most a quarter of them. The limit on connections is four
            times as high.
        rate: Requests per second of one address; 0 for no limit, None for no limit on this machine and 100 elsewhere.
        timeout: Seconds that a request may take, including its body.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    public: bool = False
    writable: bool = False
    private: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    root: Path | None = None
    max_k: int = 1000
    max_reranked: int = 100_000
    max_upload: int = 20_000_000
    max_pixels: int = 50_000_000
    max_concurrent: int = 256
    rate: float | None = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if not is_this_machine(self.host) and not self.token and not self.public:
            raise InputError(
                f"Other machines can reach {self.host}. Set a token (--token), or allow searches without (--public)."
            )
        if self.writable and not self.token:
            raise InputError("--writable needs a token (--token); otherwise anyone could change items.")
        for name in self.names:
            if not name or hostname(name) != name.lower():
                raise InputError(
                    f"--name takes a name such as birds.example, without http://, port or path; got {name!r}."
                )
        if self.root is not None and not self.root.is_dir():
            raise InputError(f"--root {self.root} is not a folder.")
        if self.token and (len(self.token) < 8 or not self.token.isascii() or not self.token.isprintable()):
            raise InputError("A token must have at least 8 characters, all printable ASCII.")

    @property
    def allowed_rate(self) -> float:
        """Requests per second of one address; 0 for no limit."""
        if self.rate is not None:
            return self.rate
        return 0.0 if is_this_machine(self.host) else USUAL_RATE

    @property
    def max_per_address(self) -> int:
        """Largest number of requests of one address that run or wait."""
        return self.max_concurrent if is_this_machine(self.host) else max(1, self.max_concurrent // SHARE)

    @property
    def max_connections(self) -> int:
        """Largest number of open connections."""
        return PER_REQUEST * self.max_concurrent

    @property
    def max_connections_per_address(self) -> int:
        """Largest number of open connections of one address."""
        return PER_REQUEST * self.max_per_address

    @property
    def sealed_ids(self) -> bool:
        """Whether ids are shown in encrypted form."""
        return "path" in self.private

    @property
    def hidden(self) -> frozenset[str]:
        """Columns that filters may not name."""
        return frozenset(self.private) | (PATHS if self.sealed_ids else frozenset())
