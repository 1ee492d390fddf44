"""HTTP server of an index: search for browsers and programs, secure by default."""

from vicinal.errors import MissingExtra

try:
    import cryptography as _cryptography  # noqa: F401
    import fastapi as _fastapi  # noqa: F401
    import prometheus_client as _prometheus_client  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError:
    raise MissingExtra("serve", "Serving an index") from None

from vicinal.index.server.app import create_app
from vicinal.index.server.serve import serve_index
from vicinal.index.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve_index"]
