"""The server against what a user would write instead: FastAPI, eager torch and faiss flat, in thirty lines.

    python benchmarks/server.py                                        # vectors, 1,000,000 items of 128 numbers
    python benchmarks/server.py --pictures --weights mobilenet_v2.pth  # pictures, MobileNetV2

Both servers run at once, each a process of its own on this machine's loopback, and are asked in turns by 1, 8 and 32
clients (threads of this process, each with a connection that is kept). The numbers of requests are fixed beforehand.
How the server lasts while its index changes is the trial of campaign/server_soak.py.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.embedder import Embedder
from vicinal.index import Index

DIM, CLUSTERS, K = 128, 20_000, 10
CLIENTS = (1, 8, 32)

# What a user writes in half an hour; `picture` is the usual preprocessing of ImageNet's networks.
PEER = """
import io, sys
import faiss, numpy as np, torch, uvicorn
from fastapi import FastAPI, Request
from PIL import Image
rows = np.load(sys.argv[1])
index = faiss.IndexFlatIP(rows.shape[1])
index.add(rows)
model = None
if len(sys.argv) > 3:
    from vicinal.embedder import Embedder
    model = Embedder.load(sys.argv[3]).eval()
app = FastAPI()

def picture(body):
    image = Image.open(io.BytesIO(body)).convert("RGB").resize((256, 256)).crop((16, 16, 240, 240))
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((pixels - mean[:, None, None]) / spread[:, None, None])[None]

@app.post("/search")
async def search(request: Request):
    if request.headers["content-type"] == "application/json":
        query = np.array([(await request.json())["vector"]], dtype=np.float32)
    else:
        with torch.no_grad():
            query = torch.nn.functional.normalize(model(picture(await request.body()))).numpy()
    values, places = index.search(query, 10)
    return {"hits": [{"id": int(i), "similarity": float(v)} for i, v in zip(places[0], values[0])]}

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def clustered(n: int, rng: np.random.Generator) -> np.ndarray:
    centres = unit(rng.standard_normal((min(CLUSTERS, n), DIM), dtype=np.float32))
    noise = rng.standard_normal((n, DIM), dtype=np.float32) * np.float32(0.6 / DIM**0.5)
    return unit(centres[rng.integers(0, len(centres), n)] + noise)


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server, once it answers."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                    connection.request("GET", "/docs")
                    connection.getresponse().read()
                    break
                except OSError:
                    time.sleep(0.2)
            yield process
        finally:
            process.terminate()


def ask(port: int, clients: int, bodies: Sequence[bytes], kind: str) -> tuple[float, list[float]]:
    """Requests per second, and how long each took."""
    times: list[float] = []
    lock, left = threading.Lock(), iter(bodies)

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while True:
            with lock:
                body = next(left, None)
            if body is None:
                connection.close()
                return
            began = time.perf_counter()
            connection.request("POST", f"/search?k={K}", body, {"Content-Type": kind})
            reply = connection.getresponse()
            text = reply.read()
            took = time.perf_counter() - began
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {text[:200]!r}")
            with lock:
                times.append(took)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(times) != len(bodies):
        raise RuntimeError(f"{len(bodies) - len(times)} of {len(bodies)} requests were not answered.")
    return len(times) / (time.perf_counter() - began), times


def measure(ports: dict[str, int], make: Callable[[int], list[bytes]], kind: str, requests: int, rounds: int) -> None:
    """Print both sides for each number of clients; rounds take turns, medians are printed."""
    print(f"\n{'':>8} {'clients':>8} {'requests/s':>11} {'p50, ms':>9} {'p95, ms':>9} {'p99, ms':>9}")
    for clients in CLIENTS:
        bodies = make(requests)
        found: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                found[name].append(ask(port, clients, bodies, kind))
        for name, results in found.items():
            rate = statistics.median(rate for rate, _ in results)
            p50, p95, p99 = (
                statistics.median(1000 * float(np.quantile(times, share)) for _, times in results)
                for share in (0.5, 0.95, 0.99)
            )
            print(f"{name:>8} {clients:>8} {rate:>11.1f} {p50:>9.1f} {p95:>9.1f} {p99:>9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=200, help="at each number of clients and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--weights", help="of MobileNetV2; random ones take as long")
    parser.add_argument("--port", type=int, default=8901)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        rows_file, path, model = Path(folder, "rows.npy"), Path(folder, "b.index"), Path(folder, "model")
        mine, peer = args.port, args.port + 1
        serve = [sys.executable, "-m", "vicinal", "serve", str(path), "--port", str(mine), "--rate", "1000000"]
        plain = [sys.executable, "-c", PEER, str(rows_file), str(peer)]

        def as_json(vector: np.ndarray) -> bytes:
            return json.dumps({"vector": vector.tolist()}).encode()

        if args.pictures:
            embedder = Embedder("mobilenet_v2", dim=None, weights=args.weights)
            embedder.save(model)
            photos = [rng.integers(0, 256, (300, 400, 3), dtype=np.uint8) for _ in range(32)]
            for number, pixels in enumerate(photos):
                Path(folder, "photos").mkdir(exist_ok=True)
                Image.fromarray(pixels).save(Path(folder, "photos", f"{number}.jpg"))
            with Index.build(path, embedder, Path(folder, "photos")) as index:
                np.save(rows_file, index.get()[1])
            plain.append(str(model))

            def bodies(count: int) -> list[bytes]:
                made = []
                for number in range(count):
                    shown = io.BytesIO()
                    Image.fromarray(np.roll(photos[number % 32], number, 1)).save(shown, "JPEG", quality=85)
                    made.append(shown.getvalue())
                return made

            kind = "image/jpeg"
        else:
            rows = clustered(args.n, rng)
            np.save(rows_file, rows)
            Index.of_vectors(path, rows).close()

            def bodies(count: int) -> list[bytes]:
                near = rows[rng.integers(0, len(rows), count)]
                return [as_json(row) for row in unit(near + 0.2 / DIM**0.5 * rng.standard_normal(near.shape))]

            kind = "application/json"
        with running(serve, mine):
            ask(mine, 1, bodies(3), kind)  # the first search lays the vectors out
            with running(plain, peer):
                ask(peer, 1, bodies(3), kind)
                measure({"vicinal": mine, "plain": peer}, bodies, kind, args.requests, args.rounds)


if __name__ == "__main__":
    main()
