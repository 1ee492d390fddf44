"""Index: items, their embeddings and the embedder, searchable, changeable, durable."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from jaxtyping import Float32, Float64
from numpy.typing import NDArray

from vicinal.data.readers.layout import images_below
from vicinal.embedder import Embedder
from vicinal.embedder.folder import identity, read_folder
from vicinal.errors import InputError, NotFinite, look_up
from vicinal.index.choosing_store import begin_store, open_store
from vicinal.index.columns import plain_value
from vicinal.index.embedded_store import EmbeddedStore
from vicinal.index.exchange import export_items
from vicinal.index.hits import Changes, Hit, Hits
from vicinal.index.index_folder import IndexFolder, is_index
from vicinal.index.item import Header, Id, Item
from vicinal.index.item_embedding import embed_items
from vicinal.index.measurement import Measurement, measure_store
from vicinal.index.postgres_store import PostgresStore
from vicinal.index.sources import Source, as_source, described
from vicinal.index.store import Answer, Store
from vicinal.index.where import Compare, Condition, In, Where, as_condition
from vicinal.neighbours.similarity import DISTANCES

__all__ = ["Index"]

StoreT = TypeVar("StoreT", bound=Store)

MODEL = "model"
COMMIT_AFTER = 256  # items, and
COMMIT_SECONDS = 5.0  # whichever comes first: what a kill may cost
COPIED = 1 << 16  # items copied at a time into a new generation


@final
class Index:
    """Items and their embeddings in one folder, searched exactly.

    Made by `build` (with an embedder), `of_vectors` (without) or `open`. Everything that changes it is on the disk
    by the time that the call returns, or has not happened. One process writes at a time, any number search; each
    search sees whole changes only, and the latest of them.

    Args:
        path: The folder of an index.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> vectors = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
        >>> index = Index.of_vectors(f"{folder}/mine.index", vectors, ids=["a", "b", "c"], labels=["x", "y", "y"])
        >>> [(hit.id, round(hit.similarity, 2)) for hit in index.search([0.8, 0.6], k=2)]
        [('c', 0.96), ('a', 0.8)]
        >>> index.search([1.0, 0.0], where="label = 'y' and not id = 'c'")[0].id
        'b'
    """

    def __init__(self, path: str | Path) -> None:
        self._folder = IndexFolder(path)
        self._generation = self._folder.current()
        self._store = open_store(self._generation)
        self._former: list[Store] = []  # other threads may still be searching in them
        self._embedder: tuple[str, Embedder] | None = None

    @classmethod
    def open(cls, path: str | Path) -> Index:
        """Open an index that `build` or `of_vectors` made."""
        return cls(path)

    @classmethod
    def build(
        cls,
        path: str | Path,
        embedder: Embedder | str | Path,
        data: Any = None,
        *,
        labels: Sequence[Any] | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        store: str = "",
        progress: bool = False,
    ) -> Index:
        """Make an index, or bring one up to date that was made with the same embedder; a killed build goes on.

        Args:
            path: Its folder.
            embedder: An embedder, or the folder of one, of a run or of a comparison; the index keeps a copy.
            data: What is to be found: see `refresh`. None makes an empty index.
            labels: In place of those that the data has.
            metadata: Further values by column, one per item.
            store: Where items and vectors are kept: `postgresql://user@host/database`; by default in the folder.
            progress: Whether to show a bar on standard error.
        """
        model = embedder if isinstance(embedder, Embedder) else Embedder.load(embedder)
        known = model.identity()
        if is_index(path):
            index = cls(path)
            if index.embedder_hash != known:
                raise index._other_embedder("was built with")
        else:
            folder = IndexFolder(path)
            with folder.writing():
                building = folder.building("new")
                model.save(building / MODEL)
                begin_store(building, Header(model.dim, model.distance, known), store, _table_name(folder.path)).close()
                folder.finish(building)
            index = cls(path)
        index._embedder = (known, model)
        if data is not None:
            index.changes = index.refresh(data, labels=labels, metadata=metadata, progress=progress)
        return index

    @classmethod
    def of_vectors(
        cls,
        path: str | Path,
        vectors: Any,
        *,
        ids: Sequence[Id] | NDArray[Any] | None = None,
        labels: Sequence[Any] | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        distance: str = "cosine",
        store: str = "",
    ) -> Index:
        """Make an index of vectors that come from elsewhere; its queries are vectors, too.

        Args:
            path: Its folder, where there is no index yet.
            vectors: One row per item; kept in float32.
            ids: Texts or whole numbers, all different; by default 0, 1, 2, ...
            labels: One per item, or None.
            metadata: Further values by column, one per item.
            distance: "cosine" or "euclidean".
            store: Where items and vectors are kept; see `build`.
        """
        if is_index(path):
            raise InputError(f"{path} is an index already; open it with Index.open and add to it.")
        look_up("distance", distance, dict.fromkeys(DISTANCES))
        rows = _checked(vectors, "vectors")
        source = _of_rows(rows, ids, labels, metadata)
        folder = IndexFolder(path)
        with folder.writing():
            building = folder.building("new")
            with _closing(
                begin_store(building, Header(rows.shape[1], distance), store, _table_name(folder.path))
            ) as kept:
                _add_rows(kept, source, rows)
            folder.finish(building)
        return cls(path)

    changes = Changes()  # of the last `build`

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self._latest().header.dim

    @property
    def distance(self) -> str:
        """How vectors are compared: "cosine" or "euclidean"."""
        return self._latest().header.distance

    @property
    def embedder_hash(self) -> str:
        """`Embedder.identity` of the embedder that made the vectors; empty if they come from elsewhere."""
        return self._latest().header.embedder

    @property
    def columns(self) -> dict[str, str | None]:
        """What can be asked for in a filter, and what kind of values each column holds."""
        return dict(self._latest().columns())

    def __len__(self) -> int:
        return self._latest().count()

    def __repr__(self) -> str:
        made = f"embedder {self.embedder_hash[:12]}" if self.embedder_hash else "vectors from elsewhere"
        return f"Index({str(self.path)!r}: {len(self):,} items, {self.dim} dimensions, {self.distance}, {made})"

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of its files."""
        for store in (*self._former, self._store):
            store.close()

    def embedder(self) -> Embedder:
        """The index's own copy of its embedder."""
        return self._embedder_of(self._latest())

    def search(
        self,
        query: Any = None,
        k: int = 10,
        where: Where | None = None,
        *,
        vector: Any = None,
        item: Id | None = None,
        fast: bool = False,
    ) -> Any:
        """Find the k items nearest to a query, nearest first, ties by id.

        Args:
            query: A path, an image, or whatever else the embedder takes; a vector if there is no embedder. A folder
                or a sequence of these asks several things at once.
            k: How many; fewer only if fewer items pass the filter.
            where: A filter, as text (`label = 'wren' and year > 2020`) or as a dict (`{"label": "wren"}`).
            vector: An embedding, or several, in place of a query.
            item: The id of an item in place of a query; it does not find itself.
            fast: By codes of faiss: a few milliseconds for a million items, and nearly always the same; how nearly
                is in the `recall` of the answer. Without it every answer is exact.

        Returns:
            `Hits` for one query, a list of them for several.
        """
        if sum(given is not None for given in (query, vector, item)) != 1:
            raise InputError("Give one of query, vector and item.")
        _check_k(k)
        store = self._latest()
        condition = None if where is None else as_condition(where)
        if item is not None:
            key, rows = self._vector_of(store, item)
            answer = store.search(rows, k + 1, condition, fast=fast)
            hits = [hit for hit in _hits(answer)[0] if hit.id != key][:k]
            return Hits(tuple(hits), answer.recall)
        rows, single = self._encoded(store, query) if vector is None else _as_rows(vector, store.header.dim)
        answers = _hits(store.search(rows, k, condition, fast=fast))
        return answers[0] if single else answers

    def nearest(
        self, queries: Any, k: int = 10, where: Where | None = None, *, fast: bool = False
    ) -> tuple[NDArray[Any], Float64[np.ndarray, "n k"]]:
        """Find the ids of the items nearest to vectors, and their similarities: arrays in, arrays out.

        Args:
            queries: One row per query.
            k: How many; there are fewer columns if fewer items pass the filter.
            where: A filter.
            fast: See `search`.
        """
        store = self._latest()
        rows, _ = _as_rows(queries, store.header.dim)
        _check_k(k)
        condition = None if where is None else as_condition(where)
        answer = store.search(rows, k, condition, fast=fast, items=False)
        return answer.ids, answer.similarities

    def get(self, where: Where | None = None, *, vectors: bool = True) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """The items that pass a filter in the order of their ids, and their vectors unless these are not wanted."""
        return self._latest().get(None if where is None else as_condition(where), vectors=vectors)

    def count(self, where: Where | None = None) -> int:
        """How many items pass a filter."""
        return self._latest().count(None if where is None else as_condition(where))

    def add(
        self,
        items: Any = None,
        *,
        vectors: Any = None,
        ids: Sequence[Id] | NDArray[Any] | None = None,
        labels: Sequence[Any] | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        embedder: Embedder | str | None = None,
        progress: bool = False,
    ) -> Changes:
        """Add items; one whose id is there already takes its place.

        Args:
            items: What `refresh` takes, for the index's embedder. Nothing is removed.
            vectors: Embeddings in place of items, one row each.
            ids: Needed for vectors and for images in memory; the ids of files are their absolute paths.
            labels: One per item, or None.
            metadata: Further values by column, one per item.
            embedder: For vectors, if the index has an embedder: what made them, or its hash. Another is refused.
            progress: Whether to show a bar on standard error.
        """
        if (items is None) == (vectors is None):
            raise InputError("Give items or vectors.")
        if vectors is None:
            with self._writing() as store:
                self._embedder_of(store)
                keys = None if ids is None else list(ids)
                source = as_source(items, ids=keys, labels=labels, metadata=metadata)
                if ids is None and len(source) and not source.paths:
                    raise InputError("Items that are not files need ids, by which they can be found and removed again.")
                return self._take(store, replace(source, name=None), progress)
        rows = _checked(vectors, "vectors")
        if ids is None:
            raise InputError("Vectors need ids, by which they can be found and removed again.")
        with self._writing() as store:
            self._check_embedder(store, embedder)
            _check_dim(rows, store.header.dim)
            source = _of_rows(rows, ids, labels, metadata)
            before = store.count(In("id", tuple(source.ids)))
            _add_rows(store, source, rows)
            return Changes(added=len(rows) - before, updated=before)

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Give items other values, in one step for all.

        Args:
            where: Which items.
            values: By column, `label` among them; None takes a value away.

        Returns:
            How many there were.
        """
        fixed = sorted(set(values) & {"id", "path", "source", "stamp", "hash"})
        if fixed:
            raise InputError(f"{', '.join(fixed)} cannot be changed; remove the items and add them anew.")
        plain = {name: plain_value(value, name) for name, value in values.items()}
        described(Source([], [], metadata={name: [] for name in plain if name != "label"}))
        with self._writing() as store:
            items, rows = store.get(as_condition(where))
            store.add([_changed(item, plain) for item in items], rows)
            return len(items)

    def remove(self, where: Where | None = None, *, ids: Iterable[Id] | None = None) -> int:
        """Remove the items that pass a filter, or those of some ids.

        Returns:
            How many there were.
        """
        if (where is None) == (ids is None):
            raise InputError("Give a filter, or ids.")
        condition: Condition = as_condition(where) if where is not None else In("id", _plain_ids(ids or ()))
        with self._writing() as store:
            return store.delete(condition)

    def refresh(
        self,
        data: Any,
        *,
        labels: Sequence[Any] | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        progress: bool = False,
    ) -> Changes:
        """Embed what is new or changed in a folder, table or dataset, and remove what is no longer in it.

        Work is committed every few seconds, so that an interrupted call loses little, and searching goes on meanwhile.
        A file counts as unchanged if its size and time of change are the same, or else its content is.

        Args:
            data: A folder of images or of class folders, a list of paths (.txt), a table with a column `path` whose
                other columns become metadata, the name of a dataset, or a Dataset.
            labels: In place of those that the data has.
            metadata: Further values by column, one per item.
            progress: Whether to show a bar on standard error.
        """
        source = as_source(data, labels=labels, metadata=metadata)
        with self._writing() as store:
            changes = self._take(store, source, progress)
            if source.name is None:
                return changes
            before, _ = store.get(Compare("source", "=", source.name), vectors=False)
            gone = {item.id for item in before} - set(source.ids)
            removed = store.delete(In("id", tuple(gone))) if gone else 0
            return replace(changes, removed=removed)

    def verify(self) -> list[str]:
        """Everything that is not as it was written, one sentence each; nothing if all is well."""
        store = self._latest()
        problems = store.verify()
        if store.header.embedder:
            try:
                found = identity(read_folder(self._generation / MODEL)[0])
                if found != store.header.embedder:
                    problems.append(f"{MODEL}/ is not the embedder that made the vectors")
            except Exception as error:  # whatever a damaged file brings about is what was asked for
                problems.append(f"{MODEL}/ cannot be read: {str(error).splitlines()[0]}")
        return problems

    def measure(self, k: int = 10, seed: int = 0) -> Measurement:
        """Time exact and fast search on the index's own items, and say how often the fast way is right."""
        _check_k(k)
        return measure_store(self._embedded(self._latest()), k, seed)

    def export(self, path: str | Path, where: Where | None = None) -> int:
        """Write items and vectors to a .parquet, .npz or .faiss file.

        Returns:
            How many there were.
        """
        items, vectors = self.get(where)
        export_items(Path(path), self._latest().header, items, vectors)
        return len(items)

    def compact(self) -> int:
        """Write the items anew, without the vectors of those that were removed or replaced.

        Returns:
            How many rows that saved.
        """
        with self._writing() as store:
            dead = self._embedded(store).dead()
            building = self._folder.building("compact")
            for path in building.glob("items.sqlite*"):  # of a compaction that was killed
                path.unlink()
            with _closing(EmbeddedStore.create(building, store.header)) as target:
                items, rows = store.get()
                for start in range(0, len(items), COPIED):
                    target.add(items[start : start + COPIED], rows[start : start + COPIED])
            if store.header.embedder:
                self._embedder_of(store).save(building / MODEL)
            self._folder.finish(building)
            return dead

    def reembed(self, embedder: Embedder | str | Path, data: Any = None, *, progress: bool = False) -> Changes:
        """Embed all items anew with another embedder; the index serves as it was until that is done.

        An interrupted call goes on where it was. `rollback` brings the former embedder back.

        Args:
            embedder: An embedder, or the folder of one.
            data: Where the items are, if they are not files: what they were built from.
            progress: Whether to show a bar on standard error.
        """
        model = embedder if isinstance(embedder, Embedder) else Embedder.load(embedder)
        known = model.identity()
        with self._writing() as store:
            if known == store.header.embedder:
                raise InputError(f"{self.path} has this embedder already; there is nothing to embed anew.")
            items, _ = store.get(vectors=False)
            source = _again(items, data)
            building = self._folder.building(known[:16])
            header = Header(model.dim, model.distance, known)
            with _closing(begin_store(building, header, *_place_of(store, self.path))) as target:
                wanted = {item.id: item for item in items}
                done = {item.id for item in target.get(vectors=False)[0] if item == wanted.get(item.id)}
                places = [place for place, key in enumerate(source.ids) if key in wanted and key not in done]
                skipped = _embed(target, model, source, places, wanted.__getitem__, progress)
                if gone := {item.id for item in target.get(vectors=False)[0]} - set(wanted):
                    target.delete(In("id", tuple(gone)))
            model.save(building / MODEL)
            self._folder.finish(building)
            self._embedder = (known, model)
            return Changes(updated=len(places) - len(skipped), unchanged=len(done), skipped=skipped)

    def rollback(self) -> None:
        """Go back to what the index was before `compact` or `reembed`; what was changed since then is not in it."""
        with self._folder.writing():
            self._folder.rollback()

    def _latest(self) -> Store:
        """The generation that serves now; who searches in the one before goes on there."""
        current = self._folder.current()
        if current != self._generation:
            self._former.append(self._store)
            self._generation, self._store = current, open_store(current)
        return self._store

    def _embedded(self, store: Store) -> EmbeddedStore:
        if not isinstance(store, EmbeddedStore):
            raise InputError(f"The items of {self.path} are kept by a server, which looks after them itself.")
        return store

    @contextmanager
    def _writing(self) -> Iterator[Store]:
        with self._folder.writing():
            yield self._latest()

    def _embedder_of(self, store: Store) -> Embedder:
        known = store.header.embedder
        if not known:
            raise InputError(
                f"{self.path} has no embedder: its vectors come from elsewhere. Search with vectors, add vectors."
            )
        if self._embedder is None or self._embedder[0] != known:
            model = Embedder.load(self._generation / MODEL)
            if model.identity() != known:
                raise InputError(
                    f"{self._generation / MODEL} is not the embedder that made the vectors of {self.path}."
                )
            self._embedder = (known, model)
        return self._embedder[1]

    def _encoded(self, store: Store, query: Any) -> tuple[Float32[np.ndarray, "n d"], bool]:
        """Queries as vectors, and whether there is one alone."""
        if not store.header.embedder:
            return _as_rows(query, store.header.dim)
        if isinstance(query, str | os.PathLike) and Path(query).is_dir():
            query = list(images_below(Path(query)))
            if not query:
                raise InputError("That folder has no images to search for.")
        model = self._embedder_of(store)
        rows = model.encode(query)
        if isinstance(query, str | os.PathLike) or not hasattr(query, "__len__"):
            single = True
        else:
            single = hasattr(query, "ndim") and len(rows) == 1 and len(query) != 1  # one image or vector as an array
        return _checked(rows, "the embeddings of the queries"), single

    def _vector_of(self, store: Store, key: Id) -> tuple[Id, Float32[np.ndarray, "1 d"]]:
        names: list[Id] = [key, os.path.abspath(key)] if isinstance(key, str) else [key]
        for name in names:
            rows = store.get(Compare("id", "=", name))[1]
            if len(rows):
                return name, rows
        raise InputError(f"{self.path} has no item {key!r}; search for it as a query, or add it first.")

    def _take(self, store: Store, source: Source, progress: bool) -> Changes:
        """Embed what is new or changed of a source."""
        model = self._embedder_of(store)
        known = {item.id: item for item in store.get(In("id", tuple(source.ids)), vectors=False)[0]}
        items: dict[Id, Item] = {}
        skipped: list[tuple[str, str]] = []
        again: list[Item] = []
        other = 0
        places: list[int] = []
        for place, key in enumerate(source.ids):
            try:
                before = known.get(key)
                item = source.with_stamp(place)
                if before is not None and item.stamp is not None and item.stamp == before.stamp:
                    item = replace(item, hash=before.hash)
                elif item.hash is None:
                    item = source.item(place)
            except OSError as error:
                skipped.append((str(key), f"{error.strerror or error}"))
                continue
            if before is not None:  # what the source does not say stays as it is
                item = _merged(before, item, labelled=bool(source.labels))
            if before is None or before.hash != item.hash:
                items[key] = item
                places.append(place)
            elif before != item:
                again.append(item)
                other += replace(before, stamp=item.stamp) != item
        if again:
            self._store_again(store, again)
        failed = _embed(store, model, source, places, items.__getitem__, progress)
        new = sum(key not in known for key in items)
        lost = sum(key not in known for key in (name for name, _ in failed))
        return Changes(
            added=new - lost,
            updated=len(items) - new - (len(failed) - lost) + other,
            unchanged=len(source) - len(items) - other - len(skipped),
            skipped=(*skipped, *failed),
        )

    def _store_again(self, store: Store, items: list[Item]) -> None:
        """Give items other values, with the vectors that they have."""
        by_id = {item.id: item for item in items}
        found, rows = store.get(In("id", tuple(by_id)))
        store.add([by_id[item.id] for item in found], rows)

    def _check_embedder(self, store: Store, embedder: Embedder | str | None) -> None:
        known = store.header.embedder
        given = embedder.identity() if isinstance(embedder, Embedder) else embedder
        if known and given is None:
            raise InputError(
                f"{self.path} has an embedder, so that vectors must say which one made them: pass embedder=, "
                "or pass items, which it embeds by itself."
            )
        if (given or "") != known:
            raise self._other_embedder("has the vectors of")

    def _other_embedder(self, how: str) -> InputError:
        known = self.embedder_hash
        mine = f"the embedder {known[:12]}" if known else "no embedder, its vectors come from elsewhere"
        return InputError(
            f"{self.path} {how} {mine}; what another embedder makes cannot be compared with that. To change all of "
            f"it to the other one: vicinal index {self.path} --model FOLDER (or index.reembed(embedder))."
        )


def _table_name(path: Path) -> str:
    """A name for a new generation in a server that may hold many indexes."""
    plain = re.sub(r"[^a-z0-9]+", "_", path.name.lower()).strip("_")[:24] or "index"
    return f"i_{plain}_{secrets.token_hex(4)}"


def _place_of(store: Store, path: Path) -> tuple[str, str]:
    """Where the next generation goes: to the server that the present one is in, or to the folder."""
    return (store.url, _table_name(path)) if isinstance(store, PostgresStore) else ("", "")


def _embed(
    store: Store,
    model: Embedder,
    source: Source,
    places: list[int],
    item: Callable[[Id], Item],
    progress: bool,
) -> tuple[tuple[str, str], ...]:
    """Embed and store some of a source, a few hundred at a time; return what could not be read."""
    ready: list[tuple[Item, NDArray[np.float32]]] = []
    failed: list[tuple[str, str]] = []
    last = time.monotonic()

    def commit() -> None:
        if ready:
            store.add([one for one, _ in ready], np.stack([row for _, row in ready]))
            ready.clear()

    try:
        for place, row in embed_items(model, source.inputs, places, progress=progress):
            key = source.ids[place]
            if isinstance(row, str):
                failed.append((str(key), row))
                continue
            ready.append((item(key), row))
            if len(ready) >= COMMIT_AFTER or time.monotonic() - last > COMMIT_SECONDS:
                commit()
                last = time.monotonic()
    finally:
        commit()
    return tuple(failed)


def _again(items: list[Item], data: Any) -> Source:
    """What items are embedded from a second time."""
    if data is not None:
        return as_source(data)
    lost = [item.id for item in items if item.path is None or item.id != item.path]
    if lost:
        raise InputError(
            f"{len(lost):,} items, such as {lost[0]!r}, are not whole files; to embed them anew, give the data that "
            "they came from."
        )
    paths = [str(item.path) for item in items]
    return Source(paths, paths, paths)


def _merged(before: Item, now: Item, labelled: bool) -> Item:
    label = now.label if labelled else before.label
    return replace(now, label=label, metadata={**before.metadata, **now.metadata}, source=now.source or before.source)


def _changed(item: Item, values: Mapping[str, Any]) -> Item:
    metadata = {**item.metadata, **{name: value for name, value in values.items() if name != "label"}}
    kept = {name: value for name, value in metadata.items() if value is not None}
    return replace(item, label=values.get("label", item.label), metadata=kept)


def _of_rows(
    rows: Float32[np.ndarray, "n d"],
    ids: Sequence[Id] | NDArray[Any] | None,
    labels: Sequence[Any] | None,
    metadata: Mapping[str, Sequence[Any]] | None,
) -> Source:
    keys = range(len(rows)) if ids is None else ids
    bare = Source(rows, list(range(len(rows))))
    return as_source(bare, ids=list(keys), labels=None if labels is None else list(labels), metadata=metadata)


def _add_rows(store: Store, source: Source, rows: Float32[np.ndarray, "n d"]) -> None:
    items = []
    names = list(source.metadata)
    columns = [[plain_value(value, name) for value in source.metadata[name]] for name in names]
    labels = [plain_value(label, "label") for label in source.labels] or [None] * len(rows)
    for key, label, *values in zip(source.ids, labels, *columns, strict=True):
        metadata = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        items.append(Item(key, None, label, metadata))
    store.add(items, rows)


def _hits(answer: Answer) -> list[Hits]:
    found = []
    for names, values in zip(answer.ids.tolist(), answer.similarities.tolist(), strict=True):
        hits = [
            Hit(item.id, item.path, item.label, value, item.metadata)
            for item, value in zip((answer.items[name] for name in names), values, strict=True)
        ]
        found.append(Hits(tuple(hits), answer.recall))
    return found


def _as_rows(values: Any, dim: int) -> tuple[Float32[np.ndarray, "n d"], bool]:
    array = np.asarray(values)
    single = array.ndim == 1
    rows = _checked(array[None] if single else array, "queries")
    _check_dim(rows, dim)
    return rows, single


def _checked(values: Any, name: str) -> Float32[np.ndarray, "n d"]:
    """Finite float32 rows."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be a matrix of numbers, one row each; got {array.dtype} {list(array.shape)}.")
    if not array.shape[1]:
        raise InputError(f"{name} have no numbers in them: the shape is {list(array.shape)}.")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(array, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise NotFinite(
            f"{len(bad)} of {len(rows)} rows of {name} hold NaN or infinity (or are too large for float32), the first "
            f"of them row {int(bad[0])}; leave them out."
        )
    return rows


def _check_dim(rows: NDArray[np.float32], dim: int) -> None:
    if rows.shape[1] != dim:
        raise InputError(
            f"The vectors of this index have {dim} numbers; got {rows.shape[1]}. Embed with the same model."
        )


def _check_k(k: int) -> None:
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}.")


def _plain_ids(ids: Iterable[Id]) -> tuple[Id, ...]:
    return tuple(described(Source([], list(dict.fromkeys(ids)))).ids)


@contextmanager
def _closing(store: StoreT) -> Iterator[StoreT]:
    """A folder is renamed only when nobody has its files open."""
    try:
        yield store
    finally:
        store.close()
