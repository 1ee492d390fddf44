"""A server that is sent what nobody means well: no fault of its own, no growth, and it still answers.

    PYTHONPATH=.:campaign python campaign/hostile_uploads.py                     # 10,000 uploads
    PYTHONPATH=.:campaign python campaign/hostile_uploads.py --uploads 300
    PYTHONPATH=.:campaign python campaign/hostile_uploads.py --seed 4711 --uploads 1

Each upload is made from its seed and sent through a socket of its own, several at once: pictures cut short, damaged,
too large or something else as well; JSON and forms that are none; headers without end; lengths that are not true;
bodies that come a few bytes at a time, or stop. An answer is a 4xx in words, or 200, or 503 with Retry-After; 5xx, or
none at all where the request was whole, is a fault. Now and then a good picture must be answered as at the beginning.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import io
import json
import random
import re
import socket
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common import RAW, REFUSED, SOUND, WRONG, Tally, finish, timed, told_of
from PIL import Image, PngImagePlugin
from served import Server, Watch, make_index, picture, serving

SENDERS = 8
SECONDS = 2.0  # that the server gives a request
MOST_UPLOAD = 2_000_000
EVERY = 100  # uploads between two good ones
KINDS = ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")
CLAIMS = ("image/png", "image/jpeg", "application/octet-stream", "application/json", "multipart/form-data", "text/html")


@dataclass
class Upload:
    """Bytes to send, in pieces with pauses between; `whole` if they are a request that must be answered."""

    pieces: list[bytes]
    pause: float = 0.0
    whole: bool = True


def request(
    body: bytes, kind: str = "image/png", path: str = "/search?k=5", more: str = "", length: int | str | None = None
) -> bytes:
    """A request as it is sent."""
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {kind}\r\n{more}"
    return f"{head}Content-Length: {size}\r\n\r\n".encode("latin-1") + body


def form(fields: list[tuple[str, bytes]], boundary: str = "b", end: bool = True) -> bytes:
    """A multipart body."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="../../{name}"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, content in fields
    ]
    return b"".join(parts) + (f"--{boundary}--\r\n".encode() if end else b"")


def promising(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises many pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@cache
def true_bomb(side: int, kind: str) -> bytes:
    """A picture of one colour that keeps what its header promises."""
    made = io.BytesIO()
    Image.new("1" if kind == "TIFF" else "L", (side, side)).save(
        made, kind, **({"compression": "group4"} if kind == "TIFF" else {})
    )
    return made.getvalue()


@cache
def many_frames() -> bytes:
    """A GIF of many pictures."""
    frames = [Image.new("RGB", (64, 64), (number % 256, number // 256, 99)) for number in range(300)]
    made = io.BytesIO()
    frames[0].save(made, "GIF", save_all=True, append_images=frames[1:])
    return made.getvalue()


@cache
def long_text() -> bytes:
    """A PNG with a text that unpacks to many times its size."""
    told = PngImagePlugin.PngInfo()
    told.add_text("comment", "a" * 50_000_000, zip=True)
    made = io.BytesIO()
    Image.new("L", (8, 8)).save(made, "PNG", pnginfo=told)
    return made.getvalue()


def turned(orientation: int, content: bytes) -> bytes:
    """A JPEG with an EXIF block of some kind."""
    block = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01" + struct.pack(
        ">HHI", orientation % 65536, 0, 0xFFFFFFFF
    )
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + content[2:]


def truncated(rng: random.Random) -> Upload:
    """A picture that is cut short."""
    content = picture(rng.randrange(50), rng.choice(KINDS))
    return Upload([request(content[: rng.randrange(len(content))])])


def damaged(rng: random.Random) -> Upload:
    """A picture with other bytes in it."""
    content = bytearray(picture(rng.randrange(50), rng.choice(KINDS)))
    for _ in range(rng.choice([1, 1, 5, 50])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return Upload([request(bytes(content))])


def bombs(rng: random.Random) -> Upload:
    """A picture that is more than its bytes; some are within the limits."""
    made: list[Callable[[], bytes]] = [
        lambda: promising(rng.choice([9_000, 13_000, 2**31 - 1]), rng.choice([13_000, 2**31 - 1])),
        lambda: promising(7_000, 7_000),  # allowed, and not kept
        lambda: promising(0, 0),
        lambda: true_bomb(13_000, "PNG"),
        lambda: true_bomb(20_000, "TIFF"),
        lambda: true_bomb(3_000, rng.choice(["PNG", "TIFF"])),  # allowed
        many_frames,
        long_text,
        lambda: gzip.compress(bytes(1_000_000)),
        lambda: turned(rng.choice([0, 3, 6, 9, 65535]), picture(1, "JPEG")),
    ]
    return Upload([request(rng.choice(made)())])


def polyglots(rng: random.Random) -> Upload:
    """A picture that is something else as well."""
    content = picture(rng.randrange(50), rng.choice(KINDS))
    before = rng.choice(
        [b"PK\x03\x04", b"%PDF-1.7\n", b"<html><script>alert(1)</script>", b"#!/bin/sh\n", b"GIF89a", b""]
    )
    after = rng.choice(
        [b"PK\x05\x06" + bytes(18), b"<script>alert(1)</script>", b"\x89PNG\r\n\x1a\n", bytes(1000), b""]
    )
    return Upload([request(before + content + after, rng.choice(CLAIMS))])


def wrong_types(rng: random.Random) -> Upload:
    """What is no picture, or says that it is something else."""
    bodies = [
        b"",
        rng.randbytes(rng.randrange(2000)),
        b"<svg xmlns='http://www.w3.org/2000/svg' width='99999' height='99999'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n",
        b"P6 9 9 255 " + bytes(243),
        b"id\tlabel\n1\ta\n",
        picture(3),
    ]
    claims = [*CLAIMS, "", "x" * 99, "image/svg+xml", "multipart/form-data; boundary=", "image/png; charset=utf-7"]
    return Upload([request(rng.choice(bodies), rng.choice(claims))])


def json_bodies(rng: random.Random) -> Upload:
    """JSON that is none, or holds what nobody asks for."""
    value = rng.choice(
        [
            b"[" * rng.choice([10, 100_000]),
            b'{"a":' * 50_000,
            json.dumps({"vector": [rng.choice([1e308, -1e308, 0.0])] * rng.choice([0, 1, 16, 17, 70_000])}).encode(),
            b'{"vector": [NaN, Infinity, 1e999, 1]}',
            b'{"vector": "' + b"1" * 10_000 + b'"}',
            b'{"item": "\\ud800"}',
            b'{"item": "\x00\xff"}',
            json.dumps({"item": rng.choice([[], {}, None, "x" * 9000, -1])}).encode(),
            b'{"item": ' + b"9" * 20_000 + b"}",
            json.dumps({"item": "v1", "vector": [1.0] * 16}).encode(),
            json.dumps({"a": {"item": "v1"}, "b": {"vector": [1.0]}}).encode(),
            '{"item": "v1"}'.encode("utf-16"),
        ]
    )
    return Upload([request(value, "application/json", rng.choice(["/search", "/same", "/review", "/items"]))])


def forms(rng: random.Random) -> Upload:
    """Forms that do not end, have too much, or too little."""
    content = picture(rng.randrange(50))
    boundary = rng.choice(["b", "b" * 5000, "\xe9\xff", '"b', "b\\", "b*=utf-8''%FF"])
    body = rng.choice(
        [
            form([("file", content)]),
            form([("file", content)], end=False),
            form([("file", content)] * 200),
            form([("file", content[: rng.randrange(len(content))])]),
            form([("a", content), ("b", content[:90])]),
            form([("a", content)]),
            form([("x" * 10_000, content)]),
            b"--b\r\n\r\n" + content + b"\r\n--b--",
            b"--b\r\nContent-Disposition: form-data\r\n\r\n" + content + b"\r\n--b--\r\n",
            b"--b" * 20_000,
            b"--b\r\n" + b"X: y\r\n" * 20_000,
        ]
    )
    kind = f"multipart/form-data; boundary={boundary}"
    return Upload(
        [request(body, rng.choice([kind, "multipart/form-data; boundary=b"]), rng.choice(["/search", "/same"]))]
    )


def huge_headers(rng: random.Random) -> Upload:
    """More before the body than in it."""
    content = picture(1)
    made: list[Callable[[], bytes]] = [
        lambda: request(content, more=f"X-Long: {'y' * 20_000}\r\n"),
        lambda: request(content, more=f"X-Long: {'y' * 300_000}\r\n"),
        lambda: request(content, more="".join(f"X-{number}: y\r\n" for number in range(3000))),
        lambda: request(content, more=f"Cookie: {'a=b; ' * 5000}\r\n"),
        lambda: request(content, path=f"/search?where={'(' * rng.choice([500, 9000, 40_000])}"),
        lambda: request(content, path=f"/search?k=5&{'k=5&' * 5000}"),
        lambda: request(content, path=f"/{'x' * 100_000}"),
        lambda: request(content, kind="multipart/form-data; boundary=" + "b" * 60_000),
        lambda: request(content, more=f"Authorization: Bearer {'t' * 30_000}\r\n"),
        lambda: request(content, more="X-Null: \x00\r\n"),
        lambda: request(content, more=" folded\r\n"),
    ]
    return Upload([rng.choice(made)()])


def odd_options(rng: random.Random) -> Upload:
    """A good picture to an odd address."""
    filters = ["label = 'a' or 1=1", "label = '", "nothing = 3", "'; drop table items; --", "label in (" + "'a'," * 900]
    path = rng.choice(
        [
            f"/search?k={rng.choice(['0', '-1', '1001', '9' * 400, 'many', '1e3', '%00'])}",
            f"/search?where={rng.choice(filters).replace(' ', '%20').replace(chr(39), '%27')}",
            f"/search?expand={rng.choice(['-1', '101', '99999999999'])}",
            "/search?exact=perhaps",
            "/search?rerank=1&expand=100&k=1000",
            "/search?k=%ff%fe&where=%ff",
            "/items/..%2f..%2fetc%2fpasswd/image",
            "/../../etc/passwd",
            "/neighbours/%00",
            "/review",
        ]
    )
    return Upload([request(picture(2), path=path)])


def false_lengths(rng: random.Random) -> Upload:
    """A body that is longer or shorter than it says, or no HTTP at all."""
    content = picture(1)
    chunked = "POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: image/png\r\n"
    chunked += "Transfer-Encoding: chunked\r\n"
    both = f"{chunked}Content-Length: 3\r\n\r\n".encode()
    made = [
        Upload([request(content, length=len(content) + 5000)], whole=False),  # and the rest never comes
        Upload([request(content, length=rng.randrange(len(content)))]),
        Upload([request(content, length=rng.choice([-1, "9" * 30, "0x10", "1,2", "\xb2", ""]))]),
        Upload([request(content, more="Content-Length: 1\r\n")]),
        Upload([request(content, length=MOST_UPLOAD + 1)]),
        Upload([both + b"3\r\nabc\r\n0\r\n\r\n"]),
        Upload([f"{chunked}\r\n".encode() + rng.choice([b"zz\r\n", b"-5\r\nabc", b"f" * 40 + b"\r\n"])], whole=False),
        Upload(
            [
                f"{chunked}\r\n".encode() + b"10000\r\n" + bytes(65536) + b"\r\n",
                *[b"10000\r\n" + bytes(65536) + b"\r\n"] * 60,
            ]
        ),
        Upload([b"POST /search HTTP/9.9\r\n\r\n"]),
        Upload([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200)]),
        Upload([request(content).replace(b"Host: 127.0.0.1", b"Host: evil.example")]),
        Upload([request(content, more="Origin: http://evil.example\r\n")]),
    ]
    return rng.choice(made)


def slow(rng: random.Random) -> Upload:
    """What comes a few bytes at a time, longer than the server waits; or stops, and the sender goes away."""
    whole = request(picture(1))
    place = rng.choice([5, 60, whole.index(b"\r\n\r\n") + 2, len(whole) - 400])
    if rng.random() < 0.5:
        return Upload([whole[:place]], pause=rng.uniform(0, 0.3), whole=False)
    step = 8
    rest = [whole[start : start + step] for start in range(place, len(whole), step)]
    return Upload([whole[:place], *rest[: int(3 * SECONDS / 0.2)]], pause=0.2)


HOSTILE: dict[str, tuple[Callable[[random.Random], Upload], int]] = {  # and how often each, of the sum
    "cut short": (truncated, 15),
    "damaged": (damaged, 15),
    "bombs": (bombs, 12),
    "polyglots": (polyglots, 12),
    "wrong types": (wrong_types, 10),
    "JSON": (json_bodies, 10),
    "forms": (forms, 10),
    "huge headers": (huge_headers, 8),
    "odd options": (odd_options, 8),
    "false lengths": (false_lengths, 8),
    "slow bodies": (slow, 4),
}


def hostile(seed: int) -> tuple[str, Upload]:
    """An upload that nobody means well, and what it is."""
    rng = random.Random(seed)
    subject = rng.choices(list(HOSTILE), [often for _, often in HOSTILE.values()])[0]
    return subject, HOSTILE[subject][0](rng)


def send(server: Server, upload: Upload) -> bytes:
    """What the server answers; empty if nothing."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in upload.pieces:
                connection.sendall(piece)
                if upload.pause:
                    time.sleep(upload.pause)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered already, and does not want the rest
        if not upload.whole:
            return b""
        answer = bytearray()
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass  # after its answer, which says to close, with the rest unread
        return bytes(answer)


def judged(answer: bytes, whole: bool) -> tuple[str, str]:
    """The outcome of an answer, and what it says."""
    if not answer:
        return (RAW, "no answer") if whole else (SOUND, "gone away")
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(maxsplit=2)[1])
    told = f"{status}: {body[:200]!r}"
    if status == 200:
        return SOUND, told
    if status < 500 or (status == 503 and b"retry-after" in head.lower()):
        return (REFUSED if len(body.strip()) > 10 else RAW), told
    return RAW, told


def good(server: Server) -> list[tuple[str, float]]:
    """What a good picture finds; where the machine is too busy for the server's few seconds, at a later try."""
    for _ in range(10):
        head, _, body = send(server, Upload([request(picture(0))])).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 503"):
            return [(hit["id"], hit["similarity"]) for hit in json.loads(body).get("hits", ())]
    return []


def every(uploads: int, seed: int, tell: Callable[[str], object] = print) -> list[Tally]:
    """Send so many uploads to one server."""
    tally = Tally("hostile uploads")
    codes: collections.Counter[str] = collections.Counter()
    counting = threading.Lock()
    with timed(tally), tempfile.TemporaryDirectory() as place:
        folder = make_index(Path(place), 500)
        with serving(folder, "--timeout", f"{SECONDS:g}", "--max-upload", str(MOST_UPLOAD)) as server:
            watch, before = Watch(server), good(server)

            def one(number: int) -> None:
                subject, upload = hostile(number)
                try:
                    outcome, told = judged(send(server, upload), upload.whole)
                except OSError as error:
                    outcome, told = RAW, told_of(error)
                with counting:
                    tally.note(subject, outcome, f"seed {number}: {told}")
                    codes[re.match(r"\d+|[a-z ]+", told)[0] if outcome != RAW else "fault"] += 1  # type: ignore[index]
                    watch.look()

            with ThreadPoolExecutor(SENDERS) as pool:
                for number, _ in enumerate(pool.map(one, range(seed, seed + uploads)), 1):
                    if number % EVERY == 0 or number == uploads:
                        again = good(server)
                        with counting:
                            tally.note("a good one between", SOUND if again == before else WRONG, f"{number}: {again}")
            if uploads > EVERY:
                tally.check("no growth", seed, watch.check)
        counts = ", ".join(f"{code} {many:,} times" for code, many in sorted(codes.items()))
        tell(f"{uploads:,} uploads were answered by: {counts}\n\n{watch.table()}\n")
    return [tally]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uploads", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first upload; the others follow")
    given = parser.parse_args()
    finish(every(given.uploads, given.seed))
