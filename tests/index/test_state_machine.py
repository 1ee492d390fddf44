"""Anything that can be done to an index, in any order, against a plain dict."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vicinal.errors import InputError
from vicinal.index import Index, Item
from vicinal.index.columns import matches
from vicinal.index.where import as_condition
from vicinal.testing import naive_search

keys = st.integers(0, 12)
rows = st.tuples(*[st.integers(-2, 2)] * 3)  # a lattice: ties, duplicates, zero vectors
labels = st.sampled_from(["a", "b", None])
years = st.sampled_from([None, 1, 2, 3])
filters = st.sampled_from(
    ["label = 'a'", "not label = 'a'", "year > 1", "year is null and label in ('a', 'b')", "id >= 6 or label is null"]
)


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.index = Index.of_vectors(self.root / "x.index", [[1, 0, 0]], labels=["a"], metadata={"year": [1]})
        self.items = {0: (Item(0, label="a", metadata={"year": 1}), np.float32([1, 0, 0]))}

    def teardown(self):
        self.index.close()
        shutil.rmtree(self.root)

    @rule(new=st.dictionaries(keys, st.tuples(rows, labels, years), min_size=1, max_size=4))
    def add(self, new):
        ids = list(new)
        vectors = np.array([new[key][0] for key in ids], dtype=np.float32)
        columns = [new[key][1] for key in ids], [new[key][2] for key in ids]
        self.index.add(vectors=vectors, ids=ids, labels=columns[0], metadata={"year": columns[1]})
        for key, vector, label, year in zip(ids, vectors, *columns, strict=True):
            self.items[key] = Item(key, label=label, metadata={} if year is None else {"year": year}), vector

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

    @rule()
    def compact(self):
        self.index.compact()

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
        known, vectors = zip(*self.items.values(), strict=True) if self.items else ((), ())
        right = naive_search(known, np.float32(vectors).reshape(-1, 3), np.float32(query), k, "cosine", where)
        hits = self.index.search(list(query), k=k, where=text)
        assert [(hit.id, hit.similarity) for hit in hits] == right
        for hit in hits:
            assert (hit.label, hit.metadata) == (self.items[hit.id][0].label, self.items[hit.id][0].metadata)

    @invariant()
    def nothing_is_lost_or_added(self):
        items, vectors = self.index.get()
        assert items == [item for item, _ in sorted(self.items.values(), key=lambda pair: pair[0].id)]
        assert [vector.tolist() for vector in vectors] == [self.items[item.id][1].tolist() for item in items]


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=5, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.campaign
class TestMachineForLong(Machine.TestCase):
    settings = settings(
        max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
