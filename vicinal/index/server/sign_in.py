"""A person's way in, where a server has a token: a page that asks for it once, and a cookie from then on.

The cookie holds a hash of the token, by which the token itself cannot be found, and is named after it: browsers give
one host's cookies to all its ports, and two servers of one machine must not take each other's.
"""

from __future__ import annotations

import hashlib
import hmac
import html
from http.cookies import CookieError, SimpleCookie
from typing import Final, final
from urllib.parse import parse_qs, parse_qsl, urlencode

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

__all__ = ["SignIn", "is_same_secret"]

MOST: Final = 8192  # bytes of the form


def is_same_secret(given: str, secret: str) -> bool:
    """Whether two texts are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


@final
class SignIn:
    """Lets a browser in by the server's token.

    Args:
        token: The server's.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._pass = hashlib.blake2b(token.encode(), digest_size=32, person=b"vicinal cookie").hexdigest()
        self.cookie = f"vicinal_{self._pass[:8]}"

    def knows(self, headers: Headers) -> bool:
        """Whether a request comes from a browser that has been let in."""
        try:
            sent = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return sent is not None and is_same_secret(sent.value, self._pass)

    def by_address(self, scope: Scope) -> Response | None:
        """The answer to an address that holds the token (`/?token=...`); None if it holds none."""
        given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("token")
        return None if given is None else self._answer(scope, given[0])

    async def by_form(self, scope: Scope, receive: Receive) -> Response:
        """The answer to what the page of `asking` sends."""
        body = b""
        while len(body) <= MOST:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        fields = parse_qs(body[:MOST].decode("latin-1"), keep_blank_values=True)
        return self._answer(scope, fields.get("token", [""])[0])

    def asking(self, problem: str = "") -> Response:
        """The page that asks for the token; it sends it to its own address, so that this is gone on with."""
        told = f'<p class="wrong" role="alert">{html.escape(problem)}</p>' if problem else ""
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>vicinal: token</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex">'
            '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
            '<link rel="stylesheet" href="/static/page.css"></head><body><main id="content"><div class="notice">'
            "<h1>This server has a token</h1><p>It was given when the server was started (--token, or "
            f'$VICINAL_TOKEN).</p>{told}<form class="settings" method="post"><label for="token">Token '
            '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
            '</label> <button type="submit">Open</button></form></div></main></body></html>'
        )
        return HTMLResponse(page, 401, {"WWW-Authenticate": "Bearer"})

    def _answer(self, scope: Scope, given: str) -> Response:
        if not is_same_secret(given, self._token):
            return self.asking("That is not this server's token.")
        asked = parse_qsl(scope["query_string"].decode("latin-1"))
        kept = urlencode([(name, value) for name, value in asked if name != "token"])
        answer = RedirectResponse(f"/?{kept}" if kept else "/", 303)
        answer.set_cookie(self.cookie, self._pass, httponly=True, samesite="strict")
        return answer
