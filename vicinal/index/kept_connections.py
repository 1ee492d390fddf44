"""Connections to a server that are kept open for whichever thread asks next: a few, however many ask."""

from __future__ import annotations

import http.client
import ssl
import threading
from typing import final
from urllib.parse import SplitResult

__all__ = ["KeptConnections"]


@final
class KeptConnections:
    """Connections to one server.

    Args:
        parts: Of its address.
        timeout: Seconds that an answer may take.
        most: That are kept while nobody uses them.
    """

    def __init__(self, parts: SplitResult, timeout: float, most: int) -> None:
        self._parts, self._timeout, self._most = parts, timeout, most
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def take(self) -> http.client.HTTPConnection:
        """One that nobody uses, or a new one, which is not open yet."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Leave one that has been answered to whoever asks next; close it if there are enough."""
        with self._lock:
            if len(self._idle) < self._most:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close those that nobody uses; the others when they are given back."""
        with self._lock:
            idle, self._idle, self._most = self._idle, [], 0
        for connection in idle:
            connection.close()
