"""Fuzz every reader: damaged files, odd recipes and flags; nothing raw, nothing silently wrong.

python campaign/fuzzing.py --trials 5000
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from common import WRONG, Tally, finish, options, spoilt, timed
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save_file
from scipy.io import savemat

from vicinal._util.reading import read_json, read_mat, read_tensors
from vicinal.cli.embed import open_inputs
from vicinal.data import load
from vicinal.embedder import Embedder
from vicinal.evaluation.files import read_labels, read_table
from vicinal.index import Index
from vicinal.index.exchange import read_vectors
from vicinal.index.sources import as_source
from vicinal.runs import Journal, Record, Run, read_journals
from vicinal.runs.recipe import Recipe
from vicinal.runs.run import RunFiles
from vicinal.stats import read_scores
from vicinal.training.checkpoint import load_checkpoint, save_checkpoint
from vicinal.training.log import Log, read_log

Reader = Callable[[Path], Any]
ODD = [None, "", "none", "abc", -1, 0, 1e99, -1e99, 10**20, True, [], [1], {}, {"start": 1.2}, "é", "\0", float("inf")]


def sound_files(folder: Path) -> dict[str, tuple[Path, Reader]]:
    """Write one sound file of every kind; return each with what reads it."""
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(12, 4)), np.repeat(np.arange(4), 3)
    np.savez(folder / "data.npz", X=vectors, y=labels, roles=np.array(["train"] * 6 + ["test"] * 6))
    np.savez_compressed(folder / "embeddings.npz", embeddings=vectors, labels=labels)
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "labels.npy", labels)
    (folder / "labels.txt").write_text("\n".join(map(str, labels)))
    (folder / "labels.csv").write_text("label\n" + "\n".join(map(str, labels)))
    features = "\n".join(f"{label},{a},{b},{c},{d}" for label, (a, b, c, d) in zip(labels, vectors, strict=True))
    (folder / "features.csv").write_text(f"label,a,b,c,d\n{features}\n")
    (folder / "scores.csv").write_text("dataset,triplet,circle\ncub,0.5,0.6\ncars,0.7,0.6\n")
    columns = {"embedding": list(vectors), "label": labels}
    parquet.write_table(pyarrow.table(columns), folder / "embeddings.parquet")
    parquet.write_table(pyarrow.table({"label": labels, "a": vectors[:, 0]}), folder / "features.parquet")
    Image.fromarray(rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)).save(folder / "image.png")
    Image.fromarray(rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)).save(folder / "image.jpg")
    Image.fromarray(rng.integers(0, 255, (9, 9), dtype=np.uint8)).save(folder / "image.tif")
    for name in ("image.png", "image.jpg", "image.tif"):
        (folder / f"list-{name}.txt").write_text(name)
    savemat(folder / "some.mat", {"class_names": ["a", "b"], "n": vectors})
    save_file({"a": torch.ones(3)}, folder / "some.safetensors")
    torch.save({"a": torch.ones(3)}, folder / "some.pth")
    (folder / "some.json").write_text(json.dumps({"a": [1, {"b": 2}]}))
    (folder / "recipe.toml").write_text(Recipe().changed(loss="triplet", margin=0.2).toml())
    save_checkpoint(folder / "last.ckpt", {"weights": torch.ones(50), "step": 3})
    journal = Journal(folder / "comparison")
    journal.append(Record(key="a", name="n", status="done", recipe=Recipe(data="digits").model_dump(mode="json")))
    Embedder("convnet", dim=4, options={"widths": [4], "size": 8}).save(folder / "model")
    with Index.of_vectors(folder / "index", vectors, labels=[*"aab", *[None] * 9], metadata={"n": range(12)}) as index:
        index.export(folder / "index.npz")
        index.export(folder / "index.parquet")
    (folder / "items.txt").write_text("image.png\tcat\nimage.jpg\tdog\n")
    (folder / "items.csv").write_text("path,id,year\nimage.png,7,1999\nimage.jpg,8,2000.5\n")
    run = folder / "run"
    run.mkdir()
    Run(journal.records()[0], run).save_record()
    with Log(RunFiles(run), step=0, steps=1, progress=False) as log:
        log.write(1, {"loss": 0.5, "score": 0.25})

    def image(path: Path) -> object:
        data, _ = open_inputs(str(folder / f"list-{path.name}.txt"))
        return Embedder("convnet", dim=4, options={"widths": [4], "size": 8}).encode(data, workers=0, engine="eager")

    readers: dict[str, Reader] = {
        "data.npz": lambda path: load(path).hash(),
        "embeddings.npz": read_table,
        "vectors.npy": lambda path: (open_inputs(str(path)), read_vectors(path)),
        "index.npz": read_vectors,
        "index.parquet": read_vectors,
        "items.txt": as_source,
        "items.csv": as_source,
        "labels.npy": read_labels,
        "labels.txt": read_labels,
        "labels.csv": read_labels,
        "features.csv": lambda path: load(path).hash(),
        "scores.csv": read_scores,
        "embeddings.parquet": read_table,
        "features.parquet": lambda path: load(path).hash(),
        "image.png": image,
        "image.jpg": image,
        "image.tif": image,
        "some.mat": read_mat,
        "some.safetensors": read_tensors,
        "some.pth": read_tensors,
        "some.json": read_json,
        "recipe.toml": Recipe.read,
        "last.ckpt": load_checkpoint,
        "comparison/journal.jsonl": lambda path: read_journals([path.parent]),
        "model/config.json": lambda path: Embedder.load(path.parent),
        "model/model.safetensors": lambda path: Embedder.load(path.parent),
        "run/record.json": lambda path: Run.open(path.parent),
        "run/metrics.jsonl": read_log,
    }
    return {name: (folder / name, reader) for name, reader in readers.items()}


SLOW = {"some.mat"}  # read in a process of its own
# Files whose content is under a checksum: damage that changes what is read must be refused.
SEALED = {"last.ckpt", "comparison/journal.jsonl", "run/record.json", "run/metrics.jsonl"}
SEALED |= {"model/model.safetensors", "model/config.json"}


def meaning(name: str, value: Any) -> str:
    """What was read from a sealed file, to be compared."""
    if name == "last.ckpt":
        return repr({key: item.tolist() if isinstance(item, torch.Tensor) else item for key, item in value.items()})
    if isinstance(value, Embedder):
        return value.identity()
    if isinstance(value, Run):
        return repr(value.record)
    return repr([item.record if isinstance(item, Run) else item for item in value])


def damaged_files(trials: int, seed: int) -> Tally:
    """Damage every kind of file, and read it."""
    tally = Tally("damaged files")
    with timed(tally), tempfile.TemporaryDirectory() as place:
        for name, (path, reader) in sound_files(Path(place)).items():
            sound = path.read_bytes()
            intended = meaning(name, reader(path)) if name in SEALED else ""
            for trial in range(seed, seed + (max(trials // 20, 1) if name in SLOW else trials)):
                content = spoilt(sound, np.random.default_rng([trial, len(name)]))
                path.write_bytes(content)
                value = tally.attempt(name, trial, lambda path=path, reader=reader: reader(path))  # type: ignore[misc]
                changed = content != sound and value is not None and name in SEALED and value != []
                if changed and meaning(name, value) != intended:
                    tally.note(name, WRONG, f"seed {trial}: damage was read as if it were sound")
            path.write_bytes(sound)
    return tally


def odd_recipes(trials: int, seed: int) -> Tally:
    """Put odd values into settings; a recipe is made, written and read back, or refused."""
    tally = Tally("odd recipes")
    names = [
        *Recipe.model_fields,
        *Recipe().training.model_dump(),
        "loss_options.margin",
        "margin",
        "ccp.pool",
        "nonsense",
    ]
    with timed(tally), tempfile.TemporaryDirectory() as place:
        path = Path(place) / "recipe.toml"
        for trial in range(seed, seed + trials):
            rng = np.random.default_rng([trial, 1])
            values = {str(name): ODD[int(rng.integers(len(ODD)))] for name in rng.choice(names, size=2)}

            def there_and_back(values: dict[str, Any] = values) -> None:
                recipe = Recipe().changed(values)
                path.write_text(recipe.toml(), encoding="utf-8")
                if Recipe.read(path) != recipe:
                    tally.note("recipes", WRONG, f"{values} do not come back")

            tally.attempt("recipes", trial, there_and_back)
    return tally


def odd_places(_: int, seed: int) -> Tally:
    """Pipes, links to themselves, folders and names that are no text, where a file is expected."""
    tally = Tally("odd places")
    with timed(tally), tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        classes = folder / "photos" / os.fsdecode(b"caf\xe9")
        classes.mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(classes / "a.png")
        os.mkfifo(classes / "pipe.png")
        (classes / "loop.png").symlink_to(classes / "loop.png")
        Image.new("LAB", (9, 9)).save(classes / "lab.tif")
        for what in (folder / "photos", classes / "pipe.png", classes / "loop.png", folder, "/dev/zero", "a\0b.csv"):
            for reader in (
                load,
                read_table,
                read_labels,
                Embedder.load,
                Recipe.read,
                lambda path: open_inputs(str(path)),
            ):
                tally.attempt("places", seed, lambda reader=reader, what=what: reader(Path(what)))  # type: ignore[misc]

        def skipping() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = load(folder / "photos", skip_bad=True)
            if len(data) != 1 or "\udce9" in data.class_names[0]:
                tally.note("places", WRONG, f"{len(data)} images of classes {data.class_names!r}")

        tally.attempt("places", seed, skipping)
    return tally


def every(trials: int, seed: int) -> list[Tally]:
    """All of it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return [damaged_files(trials, seed), odd_recipes(trials * 4, seed), odd_places(1, seed)]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=4000)
    finish(every(flags.trials, flags.seed))
