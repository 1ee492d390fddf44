"""The guard: checks that a request must pass before it reaches a route, and headers of every reply.

Checks are ordered by cost: a request that can be refused by its headers is, before any of its body is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import ipaddress
import logging
import time
from collections import Counter, OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import Final, final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.index.server.metrics import Counts
from vicinal.index.server.models import refused
from vicinal.index.server.settings import ServerSettings, hostname, is_this_machine

__all__ = ["SECURITY_HEADERS", "Guard"]


# Sign-in for browsers, if a server has a token: a page that asks for it once, and a cookie from then on.
#
# The cookie holds a hash of the token, from which the token cannot be recovered, and is named after the hash: browsers
# send a host's cookies to all its ports, and two servers on one machine must not accept each other's.

MOST: Final = 8192  # largest size of the form, in bytes


def is_same_secret(given: str, secret: str) -> bool:
    """Compare two strings in constant time, so that timing reveals nothing."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


@final
class SignIn:
    """Signs a browser in with the server's token.

    Args:
        token: Token of the server.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._pass = hashlib.blake2b(token.encode(), digest_size=32, person=b"vicinal cookie").hexdigest()
        self.cookie = f"vicinal_{self._pass[:8]}"

    def knows(self, headers: Headers) -> bool:
        """Return whether a request comes from a browser that is signed in."""
        try:
            sent = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return sent is not None and is_same_secret(sent.value, self._pass)

    def by_address(self, scope: Scope) -> Response | None:
        """Return the answer to an address with a token (`/?token=...`); None if it has none."""
        tokens = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("token")
        return None if tokens is None else self._answer(scope, tokens[0])

    async def by_form(self, scope: Scope, receive: Receive) -> Response:
        """Return the answer to the form of the page that `asking` returns."""
        body = b""
        while len(body) <= MOST:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        fields = parse_qs(body[:MOST].decode("latin-1"), keep_blank_values=True)
        return self._answer(scope, fields.get("token", [""])[0])

    def asking(self, problem: str = "") -> Response:
        """Return the page that asks for the token; its form posts to its own address, which then opens."""
        alert = f'<p class="wrong" role="alert">{html.escape(problem)}</p>' if problem else ""
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>vicinal: token</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex">'
            '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
            '<link rel="stylesheet" href="/static/page.css"></head><body><main id="content"><div class="notice">'
            "<h1>This server has a token</h1><p>It was given when the server was started (--token, or "
            f'$VICINAL_TOKEN).</p>{alert}<form class="settings" method="post"><label for="token">Token '
            '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
            '</label> <button type="submit">Open</button></form></div></main></body></html>'
        )
        return HTMLResponse(page, 401, {"WWW-Authenticate": "Bearer"})

    def _answer(self, scope: Scope, given: str) -> Response:
        if not is_same_secret(given, self._token):
            return self.asking("That is not this server's token.")
        parameters = parse_qsl(scope["query_string"].decode("latin-1"))
        remaining = urlencode([(name, value) for name, value in parameters if name != "token"])
        answer = RedirectResponse(f"/?{remaining}" if remaining else "/", 303)
        answer.set_cookie(self.cookie, self._pass, httponly=True, samesite="strict")
        return answer


OPEN = ("/health", "/ready")  # open to monitoring without a token
PARTS = "/static/"  # files of the page: the same for all users, and used by the page that asks for the token
READING = ("GET", "HEAD", "OPTIONS")
CHANGING = ("POST /items", "PATCH /items", "DELETE /items")
ADDRESSES = 10_000  # number of addresses whose rate is tracked
BURST = 4.0  # seconds' worth of requests that may arrive at once
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send the form of the token without its origin
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

logger = logging.getLogger("vicinal.serve")


@final
class Guard:
    """ASGI middleware: checks host, token, origin, rate, number, size and time of requests; adds security headers.

    Args:
        app: App to guard.
        settings: Settings of the server.
        counts: Metrics, updated with every request.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, counts: Counts) -> None:
        self.app, self.settings, self.counts = app, settings, counts
        self._names = {name.lower() for name in (settings.host, *settings.names)}
        self._sign_in = SignIn(settings.token)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._running: Counter[str] = Counter()

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
        status, begun = 500, False

        async def counted_send(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            answer = self._refusal(scope)
            if answer is not None:
                await answer(scope, receive, counted_send)
            else:
                await self._worked_on(scope, receive, counted_send)
        except Exception:
            if begun:
                raise
            logger.exception("%s %s", scope["method"], scope["path"])
            answer = refused(500, "Something went wrong here; the server's log says what.")
            await answer(scope, receive, counted_send)
        finally:
            self.counts.answered(_route(scope), status, time.perf_counter() - start)

    async def _worked_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = _address(scope)
        self.counts.running += 1
        self._running[address] += 1
        try:
            await self._within_limits(scope, receive, send)
        finally:
            self.counts.running -= 1
            self._running[address] -= 1
            if not self._running[address]:
                del self._running[address]

    async def _within_limits(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, arrived, size = False, False, 0

        async def watched_receive() -> Message:
            nonlocal arrived, size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.settings.max_upload:
                raise HTTPException(413, self._too_large, {"Connection": "close"})
            arrived = arrived or not message.get("more_body", False)
            return message

        async def watched_send(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self.settings.timeout):
                if self._signs_in(scope):
                    answer: ASGIApp = await self._sign_in.by_form(scope, watched_receive)
                    await answer(scope, receive, watched_send)
                else:
                    await self.app(scope, watched_receive, watched_send)
        except TimeoutError:
            if begun:
                raise
            seconds = f"{self.settings.timeout:g} seconds"
            answer = (
                refused(503, f"This took longer than {seconds}; try again later.", {"Retry-After": "5"})
                if arrived
                else refused(408, f"The request did not arrive within {seconds}.", {"Connection": "close"})
            )
            await answer(scope, receive, send)

    @property
    def _too_large(self) -> str:
        return f"A request may have {self.settings.max_upload:,} bytes; this one has more"

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the reply that refuses a request; None if it may pass."""
        headers = Headers(scope=scope)
        if not self._is_own_name(headers.get("host", "")):
            return refused(400, "The header Host does not name this server; allow the name with --name.")
        if self.counts.running >= self.settings.max_concurrent:
            return refused(503, "Too many requests at once; try again in a moment.", {"Retry-After": "1"})
        if self._running[_address(scope)] >= self.settings.max_per_address:
            return refused(429, "Too many requests at once from this address.", {"Retry-After": "1"})
        if wait := self._wait(scope):
            return refused(429, "Too many requests from this address.", {"Retry-After": f"{wait:.0f}"})
        origin = headers.get("origin")
        if scope["method"] not in READING and origin is not None and _host(origin) != headers.get("host"):
            return refused(403, "Requests from pages of other servers are not answered.")
        claimed = headers.get("content-length", "")
        if claimed.isdecimal() and int(claimed[:20]) > self.settings.max_upload:
            return refused(413, f"{self._too_large}.", {"Connection": "close"})
        return self._without_token(scope, headers)

    def _without_token(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        token, path = self.settings.token, scope["path"]
        if not token or path in OPEN or path.startswith(PARTS) or self._signs_in(scope):
            return None
        page = scope["method"] == "GET" and path == "/"
        if page and (answer := self._sign_in.by_address(scope)) is not None:
            return answer
        changing = f"{scope['method']} /{path.split('/')[1]}" in CHANGING
        if self.settings.public and not changing:
            return None
        scheme, _, presented = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if is_same_secret(presented.strip(), token):
                return None
        elif self._sign_in.knows(headers):
            return None
        if page and "text/html" in headers.get("accept", ""):
            return self._sign_in.asking()
        return refused(
            401,
            "This needs the server's token: send the header Authorization: Bearer TOKEN.",
            {"WWW-Authenticate": "Bearer"},
        )

    def _signs_in(self, scope: Scope) -> bool:
        return bool(self.settings.token) and scope["method"] == "POST" and scope["path"] == "/"

    def _is_own_name(self, host: str) -> bool:
        name = hostname(host)
        if name in self._names:
            return True
        if is_this_machine(self.settings.host):
            return is_this_machine(name)
        # A server that listens on all addresses can be called by any of them. Names must be allowed explicitly: else
        # any web page could make its own name resolve to this machine and read the replies (DNS rebinding).
        return is_this_machine(name) or _is_address(name)

    def _wait(self, scope: Scope) -> float:
        """Return the seconds until an address may send a request again; 0 if it may now."""
        rate = self.settings.allowed_rate
        if not rate:
            return 0.0
        address = _address(scope)
        now = time.monotonic()
        left, since = self._buckets.pop(address, (rate * BURST, now))
        left = min(rate * BURST, left + (now - since) * rate)
        self._buckets[address] = (left - 1 if left >= 1 else left, now)
        while len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else max(1.0, (1 - left) / rate)


def _address(scope: Scope) -> str:
    return (scope.get("client") or ("",))[0]


def _host(origin: str) -> str | None:
    """Return the Host header of a request to an origin; None if the origin is invalid."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_plain_ids(scope: Scope) -> Scope:
    """Leave ids in the path as they were sent: one percent-encoded segment each, slashes included."""
    raw = scope.get("raw_path")
    if raw and scope["path"].startswith(("/items/", "/neighbours/")):
        return {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
    return scope


def _route(scope: Scope) -> str:
    route = scope.get("route")
    return getattr(route, "path", "other")
