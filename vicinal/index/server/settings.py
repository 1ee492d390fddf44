"""What a server allows: who may ask, for what, and how much of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from vicinal.errors import InputError

__all__ = ["ServerSettings", "hostname", "is_this_machine"]

PATHS = frozenset({"id", "path", "source", "stamp", "hash"})  # of which each tells something about files
USUAL_RATE = 100.0  # requests a second of one address, where others than this machine may ask
SHARE = 4  # addresses at least that must ask at once, to have all places
PER_REQUEST = 4  # connections: browsers keep some open that they do not use


def is_this_machine(host: str) -> bool:
    """Whether an address or name is that of this machine alone.

    Example:
        >>> is_this_machine("127.0.0.1"), is_this_machine("localhost"), is_this_machine("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def hostname(host: str) -> str:
    """The name in the header Host; empty for what is none.

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
    """What a server allows; as it is, only this machine may ask, and nobody may change anything.

    Attributes:
        host: The address to listen at.
        port: 0 for any that is free.
        token: What a request must present to be answered (`Authorization: Bearer ...`); empty for none. With `public`
            only those that change something must.
        public: Whether everybody who can reach the address may search.
        writable: Whether items may be added and removed, by those who have the token.
        private: Columns that are neither shown nor asked for. `path` seals ids, too: those of files are their paths.
        names: By which the machine may be called beside its address (the header `Host`).
        root: The folder that pictures are shown from; None for the one that all items lie in.
        most_k: Hits that may be asked for.
        most_reranked: Items up to which an index puts hits in the order of shared neighbours: it costs a search of all
            items in all, and all of them in memory.
        most_upload: Bytes of a request.
        most_pixels: That a picture's header may promise.
        most_at_once: Requests that are worked on or wait; one more is sent away at once. Where others than this machine
            may ask, one address has a quarter of them at most. Connections may be four times as many.
        rate: Requests a second of one address; 0 for any number, None for that on this machine and 100 elsewhere.
        seconds: That a request may take, its body included.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    public: bool = False
    writable: bool = False
    private: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    root: Path | None = None
    most_k: int = 1000
    most_reranked: int = 100_000
    most_upload: int = 20_000_000
    most_pixels: int = 50_000_000
    most_at_once: int = 256
    rate: float | None = None
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not is_this_machine(self.host) and not self.token and not self.public:
            raise InputError(
                f"At {self.host} others than this machine can ask. Give a token that they must have (--token), or say "
                "that everybody may (--public)."
            )
        if self.writable and not self.token:
            raise InputError("A server that may be written to needs a token (--token): without it anybody could.")
        for name in self.names:
            if not name or hostname(name) != name.lower():
                raise InputError(
                    f"--name takes a name such as birds.example, without http://, port or path; got {name!r}."
                )
        if self.root is not None and not self.root.is_dir():
            raise InputError(f"--root {self.root} is not a folder: pictures are shown from inside one.")
        if self.token and (len(self.token) < 8 or not self.token.isascii() or not self.token.isprintable()):
            raise InputError("A token has at least 8 characters, all of them printable ASCII.")

    @property
    def allowed_rate(self) -> float:
        """Requests a second of one address; 0 for any number."""
        if self.rate is not None:
            return self.rate
        return 0.0 if is_this_machine(self.host) else USUAL_RATE

    @property
    def most_of_one_address(self) -> int:
        """Requests of one address that are worked on or wait."""
        return self.most_at_once if is_this_machine(self.host) else max(1, self.most_at_once // SHARE)

    @property
    def most_connections(self) -> int:
        """Connections that are open at once."""
        return PER_REQUEST * self.most_at_once

    @property
    def most_connections_of_one_address(self) -> int:
        """Connections of one address that are open at once."""
        return PER_REQUEST * self.most_of_one_address

    @property
    def sealed_ids(self) -> bool:
        """Whether ids are shown in a form that does not tell what they are."""
        return "path" in self.private

    @property
    def hidden(self) -> frozenset[str]:
        """The columns that may not be asked for."""
        return frozenset(self.private) | (PATHS if self.sealed_ids else frozenset())
