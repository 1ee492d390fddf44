"""`vicinal serve`: search an index in a browser and over HTTP."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.options import AllowCode, Quiet

__all__ = ["serve"]


def serve(
    index: Annotated[Path, typer.Argument(help="Folder of the index.")],
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; other than this machine needs --token or --public."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8765,
    token: Annotated[
        str,
        typer.Option(metavar="SECRET", help="Token that requests must present; better set as $VICINAL_TOKEN."),
    ] = "",
    public: Annotated[bool, typer.Option("--public", help="Allow searches without a token.")] = False,
    writable: Annotated[
        bool, typer.Option("--writable", help="Allow adding and removing items, with the token.")
    ] = False,
    private: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to hide; may be repeated. `path` also hides file names."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Extra host name to accept; may be repeated.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Show only images below this folder.")] = None,
    max_k: Annotated[int, typer.Option(min=1, help="Most results per request.")] = 1000,
    max_reranked: Annotated[
        int, typer.Option(min=0, help="Largest index, in items, that allows re-ranking.")
    ] = 100_000,
    max_upload: Annotated[int, typer.Option(min=1, help="Most bytes per request.")] = 20_000_000,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Most concurrent requests; others are rejected.")] = 256,
    rate: Annotated[
        float | None,
        typer.Option(min=0, help="Requests per second and address.", show_default="100; no limit on this machine"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Request timeout in seconds.")] = 30.0,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Serve an index: a search page in the browser, and an HTTP API (documented at /docs)."""
    from vicinal.index import Index
    from vicinal.index.folder import IndexFolder

    IndexFolder(index).current()  # reports a missing index before a missing extra
    from vicinal.index.server import ServerSettings, serve_index

    settings = ServerSettings(
        host=host,
        port=port,
        token=token or os.environ.get("VICINAL_TOKEN", ""),
        public=public,
        writable=writable,
        private=tuple(private or ()),
        names=tuple(name or ()),
        root=root,
        max_k=max_k,
        max_reranked=max_reranked,
        max_upload=max_upload,
        max_concurrent=max_concurrent,
        rate=rate,
        timeout=timeout,
    )

    def started(address: str) -> None:
        print(address, flush=True)
        how = " The search page asks for the token." if settings.token and not public else ""
        print(f"Serving {index}; press Ctrl-C to stop.{how}", file=sys.stderr, flush=True)

    with Index.open(index, allow_code=allow_code or ()) as opened:
        serve_index(opened, settings, started=started)
