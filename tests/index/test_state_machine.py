"""Anything that can be done to an index, in any order, with kills between, against a plain dict."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vicinal.data import arrays
from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.index import Index, Item
from vicinal.index import folder as index_folder
from vicinal.index import refresh as taking_in
from vicinal.index.filters import as_condition, matches
from vicinal.index.stores import vectors as vector_file
from vicinal.neighbours.rounding import pack_rows, unpack_rows
from vicinal.testing import naive_search

keys = st.integers(0, 12)
rows = st.tuples(*[st.integers(-2, 2)] * 3)  # a lattice: ties, duplicates, zero vectors
labels = st.sampled_from(["a", "b", None])
years = st.sampled_from([None, 1, 2, 3])
filters = st.sampled_from(
    ["label = 'a'", "not label = 'a'", "year > 1", "year is null and label in ('a', 'b')", "id >= 6 or label is null"]
)


# Most of the time of these tests went into waiting for a disk; what a kill leaves is copied here, not lost by one.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
WRITES = [
    (vector_file, "write_at"),
    (vector_file, "sync_file"),
    (index_folder, "sync_file"),
    (index_folder, "sync_folder"),
    (index_folder, "rename"),
]


class Killed(BaseException):
    pass


@contextmanager
def killed_before(step: int, folder: Path, left: Path):
    """Stop before the n-th write, sync or rename, and keep what a process that is killed there leaves on the disk."""
    calls = [0]

    def counted(real):
        def write(*arguments):
            calls[0] += 1
            if calls[0] == step:
                shutil.copytree(folder, left)
                raise Killed
            return real(*arguments)

        return write

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        for module, name in WRITES:
            patch.setattr(module, name, counted(getattr(module, name)))
        yield


def opened_after_kill(index: Index, left: Path) -> Index:
    """The index that a killed process left, in place of the one that was stopped; the same one if none was."""
    if not left.exists():
        return index
    index.close()
    shutil.rmtree(index.path)
    left.rename(index.path)
    assert Index.open(index.path).verify() == []
    return Index.open(index.path)


class Machine(RuleBasedStateMachine):
    numbers = "float32"

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.index = Index.of_vectors(
            self.root / "x.index", [[1, 0, 0]], labels=["a"], metadata={"year": [1]}, numbers=self.numbers
        )
        self.items = {0: (Item(0, label="a", metadata={"year": 1}), np.float32([1, 0, 0]))}

    def kept(self, vector):
        """What an index compares a vector by, and what it gives back of it."""
        packed = pack_rows(vector[None], self.numbers)
        return packed[0].astype(np.float32), unpack_rows(packed, self.numbers, 3)[0].tolist()

    def teardown(self):
        self.index.close()
        shutil.rmtree(self.root)

    @rule(new=st.dictionaries(keys, st.tuples(rows, labels, years), min_size=1, max_size=4))
    def add(self, new):
        self.put(new)
        self.items |= added(new)

    @rule(new=st.dictionaries(keys, st.tuples(rows, labels, years), min_size=1, max_size=4), step=st.integers(1, 3))
    def add_and_be_killed(self, new, step):
        with killed_before(step, self.index.path, self.root / "left"):
            self.put(new)
        self.index = opened_after_kill(self.index, self.root / "left")
        there = {item.id: (item, vector.tolist()) for item, vector in zip(*self.index.get(), strict=True)}
        if there != {key: (item, self.kept(vector)[1]) for key, (item, vector) in self.items.items()}:  # all or nothing
            self.items |= added(new)

    def put(self, new):
        ids = list(new)
        vectors = np.array([new[key][0] for key in ids], dtype=np.float32)
        metadata = {"year": [new[key][2] for key in ids]}
        self.index.add(vectors=vectors, ids=ids, labels=[new[key][1] for key in ids], metadata=metadata)

    @rule(text=filters)
    def remove(self, text):
        gone = [key for key, (item, _) in self.items.items() if matches(as_condition(text), item.values())]
        assert self.index.remove(text) == len(gone)
        for key in gone:
            del self.items[key]

    @rule(text=filters, label=labels, year=years)
    def update(self, text, label, year):
        self.index.update(text, {"label": label, "year": year})
        for key, (item, vector) in list(self.items.items()):
            if matches(as_condition(text), item.values()):
                self.items[key] = Item(key, label=label, metadata={} if year is None else {"year": year}), vector

    @rule(step=st.one_of(st.none(), st.integers(1, 12)))
    def compact(self, step):
        with killed_before(step or 0, self.index.path, self.root / "left"):
            self.index.compact()
        self.index = opened_after_kill(self.index, self.root / "left")

    @rule()
    def compact_and_roll_back(self):
        self.index.compact()
        self.index.rollback()

    @rule()
    def reopen(self):
        self.index.close()
        self.index = Index.open(self.root / "x.index")

    @rule(query=rows, k=st.integers(1, 15), text=st.one_of(st.none(), filters))
    def search(self, query, k, text):
        if not any(query):
            with pytest.raises(InputError, match="no direction"):
                self.index.search(np.float32(query), k, text)
            return
        where = None if text is None else as_condition(text)
        known = [item for item, _ in self.items.values()]
        vectors = [self.kept(vector)[0] for _, vector in self.items.values()]
        right = naive_search(known, np.float32(vectors).reshape(-1, 3), np.float32(query), k, "cosine", where)
        hits = self.index.search(list(query), k=k, where=text)
        assert [(hit.id, hit.similarity) for hit in hits] == right
        for hit in hits:
            assert (hit.label, hit.metadata) == (self.items[hit.id][0].label, self.items[hit.id][0].metadata)

    @invariant()
    def nothing_is_lost_or_added(self):
        items, vectors = self.index.get()
        assert items == [item for item, _ in sorted(self.items.values(), key=lambda pair: pair[0].id)]
        assert [vector.tolist() for vector in vectors] == [self.kept(self.items[item.id][1])[1] for item in items]


class SmallMachine(Machine):
    numbers = "int8"


def added(new):
    """What a dict of vectors, labels and years puts into an index."""
    return {
        key: (Item(key, label=label, metadata={} if year is None else {"year": year}), np.float32(vector))
        for key, (vector, label, year) in new.items()
    }


corners = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (3.0, 4.0)]
listings = st.lists(st.tuples(st.sampled_from(corners), st.sampled_from("pq")), min_size=1, max_size=5)


class RefreshMachine(RuleBasedStateMachine):
    """A dataset that changes, an index that follows it, and items that come from elsewhere, which stay."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = Embedder("linear", dim=2, options={"features": 2})
        self.embedded = dict(zip(corners, self.model.encode(np.float32(corners)), strict=True))
        self.root = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.index = Index.build(self.root / "x.index", self.model)
        self.listed, self.others = {}, {}

    def teardown(self):
        self.index.close()
        shutil.rmtree(self.root)

    def follow(self, listing):
        data = arrays(np.float32([vector for vector, _ in listing]), [label for _, label in listing], name="set")
        return self.index.refresh(data)

    @rule(listing=listings)
    def refresh(self, listing):
        changes = self.follow(listing)
        now = {f"set/{place}": entry for place, entry in enumerate(listing)}
        assert changes.added == len(now.keys() - self.listed.keys())
        assert changes.removed == len(self.listed.keys() - now.keys())
        assert changes.unchanged == sum(self.listed.get(key) == entry for key, entry in now.items())
        self.listed = now

    @rule(listing=listings, step=st.integers(1, 8))
    def refresh_and_be_killed(self, listing, step):
        with pytest.MonkeyPatch.context() as patch, killed_before(step, self.index.path, self.root / "left"):
            patch.setattr(taking_in, "COMMIT_AFTER", 1)
            self.follow(listing)
        self.index = opened_after_kill(self.index, self.root / "left")
        now = {f"set/{place}": entry for place, entry in enumerate(listing)}
        items, vectors = self.index.get("source = 'set'")
        found = {}
        for item, vector in zip(items, vectors, strict=True):  # each is as it was, or as it is to be
            entries = [entry for entry in (self.listed.get(item.id), now.get(item.id)) if entry is not None]
            [found[item.id], *_] = [
                entry for entry in entries if (item.label == entry[1] and np.allclose(vector, self.embedded[entry[0]]))
            ]
        assert found.keys() >= self.listed.keys() & now.keys()
        self.listed = found

    @rule(key=st.sampled_from("xyz"), corner=st.sampled_from(corners))
    def add(self, key, corner):
        self.index.add(vectors=[self.embedded[corner]], ids=[key], embedder=self.model)
        self.others[key] = (corner, None)

    @rule()
    def reopen(self):
        self.index.close()
        self.index = Index.open(self.root / "x.index")

    @invariant()
    def it_holds_what_was_listed_and_added(self):
        items, vectors = self.index.get()
        expected = self.listed | self.others
        assert {item.id: item.label for item in items} == {key: label for key, (_, label) in expected.items()}
        for item, vector in zip(items, vectors, strict=True):
            assert np.allclose(vector, self.embedded[expected[item.id][0]])


def trying(examples, steps):
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )


TestMachine = Machine.TestCase
TestMachine.settings = trying(5, 12)
TestSmallMachine = SmallMachine.TestCase
TestSmallMachine.settings = trying(3, 10)
TestRefreshMachine = RefreshMachine.TestCase
TestRefreshMachine.settings = trying(4, 8)


@pytest.mark.slow
class TestMachineLonger(Machine.TestCase):
    settings = trying(15, 15)


@pytest.mark.slow
class TestRefreshMachineLonger(RefreshMachine.TestCase):
    settings = trying(15, 12)


@pytest.mark.campaign
class TestMachineForLong(Machine.TestCase):
    settings = trying(300, 40)
