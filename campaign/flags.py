"""Odd values for every option and argument of every verb of the command line: told in words, never a traceback.

    PYTHONPATH=.:campaign python campaign/flags.py --trials 200

Verbs that take seconds get small real inputs, so that the values are used; those that train, serve or need more get
inputs that are not there, so that nothing long begins.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RAW, REFUSED, SOUND, Tally, finish, little_memory, options, timed, told_of
from PIL import Image
from typer.testing import CliRunner

from vicinal.cli.main import VERBS, app, command_of
from vicinal.embedder import Embedder
from vicinal.errors import VicinalError
from vicinal.index import Index

LONGEST = 90  # seconds of one command; more is a hang
TOLD = (0, 1, 2)  # exit codes: done; done, and something was found; explained
VALUES = (
    *("", " ", "none", "abc", "é", "\udce9", "n" * 300),
    *("-1", "0", "1", "2.5", "1e99", "-1e99", "nan", "inf", "99999999999999999999"),
    *("a=b", "margin=abc", "margin=1e99", "=", "[]", "{", '{"a": 1}', "1,2,,", "0:0"),
    *("label =", "label = 'a'", "a' or 1", "cosine", "euclidean", "triplet"),
    *("/proc/none/x", "missing/deep/x.png", "x.png", "x.csv", "x.json", "x.npz", "photos"),
    *("no_such_module:thing", "json:loads", "http://127.0.0.1:1/x", "file:///etc/hostname"),
)
PLAIN = ()  # verbs without options
MISSING = "not/there"


class Hangs(BaseException):
    """Raised by the clock; not an error that anything handles."""


def small_inputs(folder: Path) -> dict[str, list[str]]:
    """Write small inputs; return the arguments with which each verb has something to do, or finds nothing to do."""
    rng = np.random.default_rng(0)
    for label in "ab":
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(3):
            picture = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(picture).save(folder / "photos" / label / f"{number}.png")
    model = Embedder("convnet", dim=4, options={"widths": [4], "size": 8})
    model.save(folder / "model")
    Index.build(folder / "small.index", model, folder / "photos").close()
    np.savez(folder / "e.npz", embeddings=rng.normal(size=(12, 3)), labels=np.repeat(np.arange(4), 3))
    (folder / "scores.csv").write_text("dataset,triplet,circle\ncub,0.5,0.6\ncars,0.7,0.6\n")
    quick = {
        "data": ["photos"],
        "losses": [],
        "recipes": [],
        "tournament": ["scores.csv"],
        "evaluate": ["e.npz"],
        "weights": ["triplet"],
        "audit": ["metric_cross_entropy", "--triples", "1000"],
        "audit-claims": ["--published"],
        "duplicates": ["small.index"],
        "mislabelled": ["small.index"],
        "outliers": ["small.index"],
        "clusters": ["small.index"],
        "index info": ["small.index"],
        "index build": ["model", "photos", "--out", "small.index"],
        "index refresh": ["small.index", "photos"],
        "index remove": ["small.index", "label = 'a'"],
        "index improve": ["small.index", "--augment", "1"],
        "index import": ["new.index", "e.npz"],
        "index export": ["small.index", "out.npz"],
        "index map": ["small.index"],
        "index verify": ["small.index"],
        "index compact": ["small.index"],
        "classify": ["small.index", "photos/a/0.png"],
        "search": ["small.index", "photos/a/0.png"],
        "embed": ["model", "photos"],
    }
    never = {"demo": ["--steps", "0"], "calibrate": [MISSING, MISSING], "report": [MISSING]}
    return {verb: quick.get(verb) or never.get(verb, [] if verb in quick else [MISSING]) for verb in every_command()}


def every_command() -> list[str]:
    """All verbs; in place of one that has commands, each of these ("index build")."""
    verbs = {verb: list(getattr(command_of(verb), "commands", ())) for verb in VERBS}
    return [name for verb, commands in verbs.items() for name in ([f"{verb} {each}" for each in commands] or [verb])]


def options_of(verb: str) -> list[Any]:
    """The options of a verb or of one of its commands, as the command line knows them."""
    name, _, part = verb.partition(" ")
    command = command_of(name).commands[part] if part else command_of(name)
    known = [option for option in command.params if option.param_type_name == "option"]
    assert known or verb in PLAIN, f"{verb} has lost its options"
    return known


def drawn(verb: str, base: list[str], known: list[Any], rng: np.random.Generator) -> list[str]:
    """A command with some odd options, and sometimes an odd argument."""
    words = list(base)
    if words and MISSING not in words and verb != "demo" and not rng.integers(4):
        words[int(rng.integers(len(words)))] = _value(rng)
    for place in rng.integers(len(known), size=int(rng.integers(1, 4))) if known else []:
        option = known[int(place)]
        names = [*option.opts, *option.secondary_opts]
        words.append(names[int(rng.integers(len(names)))])
        if not option.is_flag:
            words.append(_value(rng))
    # The last value of an option counts: whatever was drawn, a demo of no steps is refused before it begins.
    return [*verb.split(" "), *words, *(base if verb == "demo" else ())]


def _value(rng: np.random.Generator) -> str:
    return VALUES[int(rng.integers(len(VALUES)))]


@contextlib.contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """End what takes longer."""

    def ring(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome_of(words: list[str]) -> tuple[str, str]:
    """Run a command here; return what came of it, and the words that say so."""
    try:
        with alarm(LONGEST), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(app, words, catch_exceptions=True)
    except Hangs:
        return RAW, f"takes longer than {LONGEST} s"
    error = result.exception
    if error is None or (isinstance(error, SystemExit) and result.exit_code in TOLD):
        return SOUND if result.exit_code == 0 else REFUSED, ""
    if isinstance(error, VicinalError) and str(error).strip():
        return REFUSED, ""
    return RAW, told_of(error) if isinstance(error, Exception) else f"exit code {result.exit_code}"


def every(trials: int, seed: int) -> list[Tally]:
    """Call every verb so many times."""
    torch.set_num_threads(1)
    tally = Tally("flags")
    here = Path.cwd()
    with timed(tally), little_memory(4 << 30):
        for verb in every_command():
            with tempfile.TemporaryDirectory() as place:
                base, known = small_inputs(Path(place))[verb], options_of(verb)
                for trial in range(seed, seed + trials):
                    words = drawn(verb, base, known, np.random.default_rng([trial, 11, len(verb)]))
                    os.chdir(place)
                    try:
                        outcome, told = outcome_of(words)
                    finally:
                        os.chdir(here)
                    shown = shlex.join(words).encode(errors="backslashreplace").decode()
                    tally.note(verb, outcome, f"seed {trial}: {shown}: {told}")
    return [tally]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=200)
    finish(every(flags.trials, flags.seed))
