"""Guard: everything that a request must pass before a route sees it, and what every reply carries.

The order is by cost: what can be refused by looking at headers is, before a byte of the body is read.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import final
from urllib.parse import parse_qs, urlsplit

from fastapi.responses import RedirectResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.index.server.prometheus_text import Counts
from vicinal.index.server.refusal import refused
from vicinal.index.server.server_settings import ServerSettings, is_this_machine

__all__ = ["COOKIE", "Guard"]

COOKIE = "vicinal_token"
OPEN = ("/health", "/ready")  # for whoever looks after the server
CHANGING = ("POST /items", "DELETE /items")
ADDRESSES = 10_000  # whose rate is remembered
BURST = 4.0  # seconds' worth of requests at once
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

logger = logging.getLogger("vicinal.serve")


@final
class Guard:
    """ASGI middleware: host, token, origin, rate, number and time of requests; security headers; counts.

    Args:
        app: What is guarded.
        settings: What is allowed.
        counts: Told of every request.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, counts: Counts) -> None:
        self.app, self.settings, self.counts = app, settings, counts
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.app(scope, receive, send)
            return
        scope = _with_plain_ids(scope)
        start = time.perf_counter()
        status = 500

        async def counted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(scope)
        if answer is not None:
            await answer(scope, receive, counted_send)
        else:
            self.counts.running += 1
            try:
                await self._within_time(scope, receive, counted_send)
            finally:
                self.counts.running -= 1
        self.counts.answered(_route(scope), status, time.perf_counter() - start)

    async def _within_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, arrived = False, False

        async def watched_receive() -> Message:
            nonlocal arrived
            message = await receive()
            arrived = arrived or not message.get("more_body", False)
            return message

        async def watched_send(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self.settings.seconds):
                await self.app(scope, watched_receive, watched_send)
        except TimeoutError:
            if begun:
                raise
            seconds = f"{self.settings.seconds:g} seconds"
            answer = (
                refused(503, f"This took longer than {seconds}; try again later.", {"Retry-After": "5"})
                if arrived
                else refused(408, f"The request did not arrive within {seconds}.", {"Connection": "close"})
            )
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Why a request is not let through; None if it is."""
        headers = Headers(scope=scope)
        if not self._is_own_name(headers.get("host", "")):
            return refused(400, "The header Host does not name this server; allow the name with --name.")
        if self.counts.running >= self.settings.most_at_once:
            return refused(503, "Too many requests at once; try again in a moment.", {"Retry-After": "1"})
        if wait := self._wait(scope):
            return refused(429, "Too many requests from this address.", {"Retry-After": f"{wait:.0f}"})
        origin = headers.get("origin")
        changes_nothing = scope["method"] in ("GET", "HEAD", "OPTIONS")
        if not changes_nothing and origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return refused(403, "Requests from pages of other servers are not answered.")
        return self._without_token(scope, headers)

    def _without_token(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        token, path = self.settings.token, scope["path"]
        if not token or path in OPEN:
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if scope["method"] == "GET" and path == "/" and "token" in query:
            if not _same(query["token"][0], token):
                return refused(401, "The token in the address is not the server's.")
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return answer
        changing = f"{scope['method']} /{path.split('/')[1]}" in CHANGING
        if self.settings.public and not changing:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = _cookie(headers.get("cookie", ""))
        if _same(given.strip(), token):
            return None
        return refused(
            401,
            "This needs the server's token: send the header Authorization: Bearer TOKEN.",
            {"WWW-Authenticate": "Bearer"},
        )

    def _is_own_name(self, host: str) -> bool:
        name = (urlsplit(f"//{host}").hostname or "") if host.isprintable() and "@" not in host else ""
        if name in (self.settings.host, *self.settings.names):
            return True
        if is_this_machine(self.settings.host):
            return is_this_machine(name)
        # Listening at all addresses, it is called by any of them; names must be allowed, or any page on the web could
        # have its own name resolve to this machine and read what it says.
        return is_this_machine(name) or _is_address(name)

    def _wait(self, scope: Scope) -> float:
        """Seconds until an address may ask again; 0 if it may now."""
        rate = self.settings.allowed_rate
        if not rate:
            return 0.0
        address = (scope.get("client") or ("",))[0]
        now = time.monotonic()
        left, since = self._buckets.pop(address, (rate * BURST, now))
        left = min(rate * BURST, left + (now - since) * rate)
        self._buckets[address] = (left - 1 if left >= 1 else left, now)
        while len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else max(1.0, (1 - left) / rate)


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _is_address(name: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_plain_ids(scope: Scope) -> Scope:
    """Leave ids in the path as they were sent: one segment each, percent-encoded, slashes and all."""
    raw = scope.get("raw_path")
    if raw and scope["path"].startswith(("/items/", "/neighbours/")):
        return {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
    return scope


def _route(scope: Scope) -> str:
    route = scope.get("route")
    return getattr(route, "path", "other")
