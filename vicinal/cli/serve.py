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
    index: Annotated[Path, typer.Argument(help="The folder of an index.")],
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where to listen; anything but this machine needs --token or --public."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8765,
    token: Annotated[
        str,
        typer.Option(
            metavar="SECRET", help="What requests must present; better in the environment, as $VICINAL_TOKEN."
        ),
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="Whoever can reach the address may search, without a token.")
    ] = False,
    writable: Annotated[
        bool, typer.Option("--writable", help="Items may be added and removed by those who have the token.")
    ] = False,
    private: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that is not shown; path hides the names of files, too."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A name by which this machine may be called.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The folder that pictures may be shown from.")] = None,
    most_k: Annotated[int, typer.Option(min=1, help="Hits that may be asked for.")] = 1000,
    most_reranked: Annotated[
        int, typer.Option(min=0, help="Items up to which hits are put in the order of shared neighbours, if asked.")
    ] = 100_000,
    most_upload: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 20_000_000,
    most_at_once: Annotated[int, typer.Option(min=1, help="Requests at once; one more is sent away.")] = 256,
    rate: Annotated[
        float | None,
        typer.Option(min=0, help="Requests a second of one address; by default 100, and any number on this machine."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="That a request may take.")] = 30.0,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Search an index in a browser; programs ask the same by HTTP (see /docs there).

    vicinal serve birds.index
    """
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
        most_k=most_k,
        most_reranked=most_reranked,
        most_upload=most_upload,
        most_at_once=most_at_once,
        rate=rate,
        seconds=seconds,
    )

    def started(address: str) -> None:
        print(address, flush=True)
        how = " A browser asks for the token once." if settings.token and not public else ""
        print(f"Serving {index}; Ctrl-C ends it.{how}", file=sys.stderr, flush=True)

    with Index.open(index, allow_code=allow_code or ()) as opened:
        serve_index(opened, settings, started=started)
