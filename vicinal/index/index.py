"""Index: items, their embeddings and the embedder, searchable, changeable, durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final, overload

import numpy as np
from jaxtyping import Float32, Float64
from numpy.typing import NDArray

from vicinal._util.code import Trust
from vicinal._util.text import counted
from vicinal.embedder import Calibration, Embedder
from vicinal.errors import InputError, look_up
from vicinal.index.exchange import export_items, prepare_export, read_vectors
from vicinal.index.filters import Where, as_condition
from vicinal.index.folder import is_index
from vicinal.index.generations import (
    Generation,
    Generations,
    check_claims,
    check_made_by,
    check_query_made_by,
    header_of,
    make_index,
    other_embedder,
    write_compacted,
    write_reembedded,
)
from vicinal.index.hits import Changes, Hits, as_hits
from vicinal.index.improve import Improvement, as_improvement, carry_over
from vicinal.index.item import Id, Item
from vicinal.index.measurement import Measurement, measure_store
from vicinal.index.model import KeptModel, has_model, header_for, keep_model
from vicinal.index.refresh import check_file, follow_source, plain_values, put_rows, put_values, take_in, to_remove
from vicinal.index.search import KeptForSearch, embedded, find_nearest, vector_of
from vicinal.index.sources import Source, as_rows, as_source, check_directions, checked_rows, source_of_rows
from vicinal.index.stores.store import Store
from vicinal.neighbours.inputs import as_array, checked_count
from vicinal.neighbours.reranking import Reranking, as_reranking
from vicinal.neighbours.similarity import DISTANCES

__all__ = ["Index"]


@final
class Index:
    """Items and their embeddings in one folder, searched exactly.

    Made by `build` (with an embedder), `of_vectors` (without) or `open`. Everything that changes it is on the disk
    by the time that the call returns, or has not happened. One process writes at a time, any number search; each
    search sees whole changes only, and the latest of them.

    Args:
        path: The folder of an index.
        follow: Whether to go on in a new generation (after `compact`, `reembed`, `rollback`) once there is one;
            otherwise everything is asked of the one that served when it was opened.

    Attributes:
        changes: What `build` or `import_file` changed; nothing after `open`.

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

    def __init__(self, path: str | Path, *, follow: bool = True, allow_code: Sequence[str] = ()) -> None:
        self.trust = Trust.of(allow_code)
        self._generations = Generations(path, follow)
        self._model = KeptModel(self.path, self.trust)
        self._kept = KeptForSearch()
        self.changes = Changes()

    @classmethod
    def open(cls, path: str | Path, *, follow: bool = True, allow_code: Sequence[str] = ()) -> Index:
        """Open an index that `build` or `of_vectors` made.

        Args:
            path: Its folder.
            follow: Whether to move on when another process has put a new generation in its place.
            allow_code: Modules or files whose code the index's embedder may name.
        """
        return cls(path, follow=follow, allow_code=allow_code)

    @classmethod
    def build(
        cls,
        path: str | Path,
        embedder: Embedder | str | Path,
        data: Any = None,
        *,
        labels: Sequence[Any] | None = None,
        metadata: Any = None,
        store: str = "",
        progress: bool = False,
        allow_code: Sequence[str] = (),
    ) -> Index:
        """Make an index, or bring one up to date that was made with the same embedder; a killed build goes on.

        Args:
            path: Its folder.
            embedder: An embedder, or the folder of one, of a run or of a comparison; the index keeps a copy.
            data: What is to be found: see `refresh`. None makes an empty index.
            labels: In place of those that the data has.
            metadata: Further values: a dict of columns, a list of dicts, or a table of pandas or pyarrow.
            store: Where items and vectors are kept: `postgresql://user@host/database` or
                `milvus://host:19530`; by default in the folder.
            progress: Whether to show a bar on standard error.
            allow_code: Modules or files whose code the folder of an embedder, or the name of the data, may stand for.
        """
        model = embedder if isinstance(embedder, Embedder) else Embedder.load(embedder, allow_code=allow_code)
        # Before anything is made: of data that is not there no empty index is left.
        trust = Trust.of(allow_code)
        source = None if data is None else as_source(data, labels=labels, metadata=metadata, trust=trust)
        known = model.identity()
        if is_index(path):
            index = cls(path, allow_code=allow_code)
            _check_settled(index, store)
            if index.embedder_hash != known:
                folder = None if isinstance(embedder, Embedder) else embedder
                raise other_embedder("was built with", index.embedder_hash, index.path, folder)
            if not index.can_embed:
                with index._generations.writing() as generation:
                    keep_model(generation.folder, known, model)
            if model.calibration is not None and model.calibration != index.calibration:
                index.calibrate(model.calibration)
        else:
            make_index(path, header_for(model), model, store)
            index = cls(path, allow_code=allow_code)
        index._model.remember(known, model)
        if source is not None:
            index.changes = index.refresh(source, progress=progress)
        return index

    @classmethod
    def of_vectors(
        cls,
        path: str | Path,
        vectors: Any,
        *,
        ids: Sequence[Id] | NDArray[Any] | None = None,
        labels: Sequence[Any] | None = None,
        metadata: Any = None,
        paths: Sequence[str | None] | None = None,
        distance: str = "cosine",
        embedder: Embedder | str | None = None,
        numbers: str = "float32",
        store: str = "",
    ) -> Index:
        """Make an index of vectors that come from elsewhere; its queries are vectors, too, unless it has an embedder.

        Args:
            path: Its folder, where there is no index yet.
            vectors: One row per item.
            ids: Texts or whole numbers, all different; by default 0, 1, 2, ...
            labels: One per item, or None.
            metadata: Further values: a dict of columns, a list of dicts, or a table of pandas or pyarrow.
            paths: Of the items' files, or None.
            distance: "cosine" or "euclidean".
            embedder: What made them, of which the index then keeps a copy, or its hash; None if nobody knows.
            numbers: What each number is kept in: "float32", or "int8" for a quarter of the bytes under the cosine.
                Search is exact among the vectors as they are kept. An embedder knows it by itself.
            store: Where items and vectors are kept; see `build`.
        """
        if is_index(path):
            raise InputError(f"{path} is an index already; open it with Index.open and add to it.")
        look_up("distance", distance, dict.fromkeys(DISTANCES))
        rows = checked_rows(vectors, "vectors")
        source = source_of_rows(rows, ids, labels, metadata)
        files = {} if paths is None else {"path": list(paths)}
        model = embedder if isinstance(embedder, Embedder) else None
        header = header_of(rows, distance, embedder, numbers)
        make_index(path, header, model, store, source=source, rows=rows, files=files)
        return cls(path)

    @classmethod
    def import_file(
        cls,
        path: str | Path,
        file: str | Path,
        *,
        embedder: Embedder | str | Path | None = None,
        distance: str | None = None,
        store: str = "",
        allow_code: Sequence[str] = (),
    ) -> Index:
        """Make an index of the vectors of a file, or add them to one that is there; what `export` wrote is the same.

        Args:
            path: The folder of the index.
            file: A .parquet file (columns embedding, id, label, path, others), an .npz or an .npy file.
            embedder: What made the vectors, for a new index, which then embeds queries by itself: an embedder or the
                folder of one. The file does not hold it, but perhaps its hash, and another is refused.
            distance: For a new index; None for what the file says, or the cosine.
            store: For a new index: where items and vectors are kept; see `build`.
            allow_code: Modules or files whose code the folder of an embedder may name.
        """
        found = read_vectors(Path(file))
        if isinstance(embedder, str | Path):
            embedder = Embedder.load(embedder, allow_code=allow_code)
        model = embedder
        check_claims(file, found, model, distance)
        rows = checked_rows(found.vectors, f"the vectors of {file}")
        source = source_of_rows(rows, found.ids, found.labels, found.metadata)
        if is_index(path):
            index = cls(path)
            _check_settled(index, store, distance)
            check_file(file, found, index.distance, index.path)
            index.changes = index._add_rows(source, rows, found.files, model or found.embedder or None)
            return index
        usual = "cosine" if model is None else model.distance
        header = header_of(rows, found.distance or distance or usual, model or found.embedder, found.numbers)
        make_index(path, header, model, store, source=source, rows=rows, files=found.files)
        index = cls(path)
        index.changes = Changes(added=len(rows))
        return index

    @property
    def path(self) -> Path:
        """Folder of the index."""
        return self._generations.index.path

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.store.header.dim

    @property
    def distance(self) -> str:
        """How vectors are compared: "cosine" or "euclidean"."""
        return self.store.header.distance

    @property
    def numbers(self) -> str:
        """What each number of a vector is kept in: "float32" or "int8"; search is exact among what is kept."""
        return self.store.header.numbers

    @property
    def embedder_hash(self) -> str:
        """`Embedder.identity` of the embedder that made the vectors; empty if they come from elsewhere."""
        return self._generations.latest().embedder

    @property
    def can_embed(self) -> bool:
        """Whether it has its embedder, so that queries may be more than vectors."""
        generation = self._generations.latest()
        return bool(generation.embedder) and has_model(generation.folder)

    @property
    def store(self) -> Store:
        """Store of the generation that serves now."""
        return self._generations.latest().store

    @property
    def generation(self) -> str:
        """Version of the content; changes with every write."""
        return self._generations.latest().state()

    @property
    def columns(self) -> dict[str, str | None]:
        """Columns that a filter may name, and the kind of value that each holds."""
        return dict(self.store.columns())

    def __len__(self) -> int:
        return self.store.count()

    def __repr__(self) -> str:
        made = f"embedder {self.embedder_hash[:12]}" if self.embedder_hash else "vectors from elsewhere"
        better = f"; searched {self.improvement}" if self.improvement else ""
        size = f"{self.dim} dimensions{'' if self.numbers == 'float32' else f' in {self.numbers}'}"
        return f"Index({str(self.path)!r}: {counted(len(self), 'item')}, {size}, {self.distance}, {made}{better})"

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections."""
        self._generations.close()

    def embedder(self) -> Embedder:
        """The index's own copy of its embedder."""
        return self._embedder_of(self._generations.latest())

    @property
    def calibration(self) -> Calibration | None:
        """From which similarity on a hit counts as the same; None if its embedder was not calibrated."""
        generation = self._generations.latest()
        return self._model.calibration(generation.folder, generation.embedder)

    def calibrate(self, calibration: Calibration) -> None:
        """Give the index's copy of its embedder a calibration, by which hits are called the same or not.

        Args:
            calibration: Of the same embedder, as `vicinal calibrate` makes it.
        """
        with self._generations.writing() as generation:
            if calibration.embedder != generation.embedder:
                raise other_embedder("has", generation.embedder, self.path)
            self._model.calibrate(generation.folder, generation.embedder, calibration)

    @property
    def improvement(self) -> Improvement | None:
        """What every search does for better neighbours; None if it goes by the vectors as they are."""
        known = self._kept.improved.improvement.of(self._generations.latest().folder)
        return None if known is None else known[0]

    def improve(self, *, whiten: Any = None, augment: int = 0, embedder: Embedder | str | None = None) -> None:
        """Have every search find better neighbours from the same vectors; without arguments: as they are again.

        Answers are then the nearest by whitened and augmented vectors, found exactly among these (also where `fast` is
        asked for); the similarities of hits, and what is called the same, stay those of the vectors themselves.
        All vectors are improved once, now and by the first search after each change of the index: for `whiten` that
        reads them all, for `augment` it is a search of all items in all. They are kept beside the index and searched in
        memory. `compact` keeps this, `reembed` does not: the vectors are then others.

        Args:
            whiten: The vectors of other items, those of training classes say, that a whitening is learned from, or a
                `Whitening`.
            augment: Neighbours that each item is drawn towards.
            embedder: What made the vectors to learn from, or its hash: another than the index's own is refused.
        """
        with self._generations.writing() as generation:
            store, folder = generation.store, generation.folder
            check_query_made_by(embedder, generation.embedder, self.path)
            wanted = as_improvement(whiten, augment, store.header.dim, store.header.distance)
            self._kept.improved.improvement.keep(folder, wanted)
            self._kept.improved.of(store, folder)

    @overload
    def search(
        self,
        query: None = None,
        k: int = 10,
        where: Where | None = None,
        *,
        item: Id,
        fast: bool = False,
        expand: int = 0,
        rerank: Reranking | bool | None = None,
    ) -> Hits: ...
    @overload
    def search(
        self,
        query: Any = None,
        k: int = 10,
        where: Where | None = None,
        *,
        vector: Any = None,
        embedder: Embedder | str | None = None,
        fast: bool = False,
        expand: int = 0,
        rerank: Reranking | bool | None = None,
    ) -> Hits | list[Hits]: ...
    def search(
        self,
        query: Any = None,
        k: int = 10,
        where: Where | None = None,
        *,
        vector: Any = None,
        item: Id | None = None,
        embedder: Embedder | str | None = None,
        fast: bool = False,
        expand: int = 0,
        rerank: Reranking | bool | None = None,
    ) -> Hits | list[Hits]:
        """Find the k items nearest to a query, nearest first, ties by id.

        Args:
            query: A path, an image, or whatever else the embedder takes; a vector if there is no embedder. A folder
                or a sequence of these asks several things at once.
            k: How many; fewer only if fewer items pass the filter.
            where: A filter, as text (`label = 'wren' and year > 2020`) or as a dict (`{"label": "wren"}`).
            vector: An embedding, or several, in place of a query.
            item: The id of an item in place of a query; it does not find itself.
            embedder: What made the vector, or its hash: another than the index's own is refused.
            fast: By codes of faiss: a few milliseconds for a million items, and nearly always the same; how nearly
                is in the `recall` of the answer. Without it every answer is exact.
            expand: Items that a query is drawn towards before it is searched; costs a second search. The similarities
                of hits, and what is called the same, stay those of the query itself.
            rerank: Put what is found in the order of shared neighbours, as the paper does (True) or by settings of
                your own; costs a search of all items in all, once.

        Returns:
            `Hits` for one query, a list of them for several.
        """
        if sum(given is not None for given in (query, vector, item)) != 1:
            raise InputError("Give one of query, vector and item.")
        k, expand = checked_count(k, "k"), checked_count(expand, "expand", least=0)
        settings = as_reranking(rerank)
        generation = self._generations.latest()
        header = generation.store.header
        condition = None if where is None else as_condition(where)
        check_query_made_by(embedder, header.embedder, self.path)
        key, single = None, True
        if item is not None:
            key, rows = vector_of(generation.store, item, self.path)
        elif vector is None and header.embedder:
            rows, single = embedded(self._embedder_of(generation), query)
        elif vector is None and as_array(query, "queries").dtype.kind in "USO":  # files or images
            raise self._model.without_embedder()
        else:
            rows, single = as_rows(query if vector is None else vector, header.dim)
        check_directions(rows, header.distance)
        answer = find_nearest(
            generation, self._kept, rows, k, condition, key=key, fast=fast, expand=expand, rerank=settings
        )
        rule = self._model.calibration(generation.folder, header.embedder)
        answers = as_hits(answer, rule, expanded=expand, reranked=settings is not None)
        return answers[0] if single else answers

    def nearest(
        self,
        queries: Any,
        k: int = 10,
        where: Where | None = None,
        *,
        embedder: Embedder | str | None = None,
        fast: bool = False,
    ) -> tuple[NDArray[Any], Float64[np.ndarray, "n k"]]:
        """Find the ids of the items nearest to vectors, and their similarities: arrays in, arrays out.

        Args:
            queries: One row per query.
            k: How many; there are fewer columns if fewer items pass the filter.
            where: A filter.
            embedder: What made the vectors, or its hash: another than the index's own is refused.
            fast: See `search`.
        """
        k = checked_count(k, "k")
        generation = self._generations.latest()
        header = generation.store.header
        check_query_made_by(embedder, header.embedder, self.path)
        rows, _ = as_rows(queries, header.dim)
        check_directions(rows, header.distance)
        condition = None if where is None else as_condition(where)
        answer = find_nearest(generation, self._kept, rows, k, condition, fast=fast, items=False)
        return answer.ids, answer.similarities

    def get(self, where: Where | None = None, *, vectors: bool = True) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """The items that pass a filter in the order of their ids, and their vectors unless these are not wanted."""
        return self.store.get(None if where is None else as_condition(where), vectors=vectors)

    def count(self, where: Where | None = None) -> int:
        """How many items pass a filter."""
        return self.store.count(None if where is None else as_condition(where))

    def add(
        self,
        items: Any = None,
        *,
        vectors: Any = None,
        ids: Sequence[Id] | NDArray[Any] | None = None,
        labels: Sequence[Any] | None = None,
        metadata: Any = None,
        paths: Sequence[str | None] | None = None,
        embedder: Embedder | str | None = None,
        progress: bool = False,
    ) -> Changes:
        """Add items; one whose id is there already takes its place.

        Args:
            items: What `refresh` takes, for the index's embedder. Nothing is removed.
            vectors: Embeddings in place of items, one row each.
            ids: Needed for vectors and for images in memory; the ids of files are their absolute paths.
            labels: One per item, or None.
            metadata: Further values: a dict of columns, a list of dicts, or a table of pandas or pyarrow.
            paths: For vectors: those of the items' files, or None.
            embedder: For vectors, if the index has an embedder: what made them, or its hash. Another is refused.
            progress: Whether to show a bar on standard error.
        """
        if (items is None) == (vectors is None):
            raise InputError("Give items or vectors.")
        if vectors is None:
            with self._generations.writing() as generation:
                model = self._embedder_of(generation)
                keys = None if ids is None else list(ids)
                source = as_source(items, ids=keys, labels=labels, metadata=metadata)
                if ids is None and len(source) and not source.paths:
                    raise InputError("Items that are not files need ids, by which they can be found and removed again.")
                return take_in(generation.store, model, replace(source, name=None), progress)
        rows = checked_rows(vectors, "vectors")
        if ids is None:
            raise InputError("Vectors need ids, by which they can be found and removed again.")
        source = source_of_rows(rows, ids, labels, metadata)
        return self._add_rows(source, rows, {} if paths is None else {"path": list(paths)}, embedder)

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Give items other values, in one step for all.

        Args:
            where: Which items.
            values: By column, `label` among them; None takes a value away.

        Returns:
            How many there were.
        """
        plain = plain_values(values)
        with self._generations.writing() as generation:
            return put_values(generation.store, as_condition(where), plain)

    def remove(self, where: Where | None = None, *, ids: Iterable[Id] | None = None) -> int:
        """Remove the items that pass a filter, or those of some ids.

        Returns:
            How many there were.
        """
        condition = to_remove(where, ids)
        with self._generations.writing() as generation:
            return generation.store.delete(condition)

    def refresh(
        self,
        data: Any,
        *,
        labels: Sequence[Any] | None = None,
        metadata: Any = None,
        progress: bool = False,
    ) -> Changes:
        """Embed what is new or changed in a folder, table or dataset, and remove what is no longer in it.

        Work is committed every few seconds, so that an interrupted call loses little, and searching goes on meanwhile.
        A file counts as unchanged if its size and time of change are the same, or else its content is.

        Args:
            data: A folder of images or of class folders, a list of paths (.txt), a table with a column `path` whose
                other columns become metadata, the name of a dataset, or a Dataset.
            labels: In place of those that the data has.
            metadata: Further values: a dict of columns, a list of dicts, or a table of pandas or pyarrow.
            progress: Whether to show a bar on standard error.
        """
        source = as_source(data, labels=labels, metadata=metadata, trust=self.trust)
        with self._generations.writing() as generation:
            return follow_source(generation.store, self._embedder_of(generation), source, progress)

    def verify(self) -> list[str]:
        """Everything that is not as it was written, one sentence each; nothing if all is well."""
        generation = self._generations.latest()
        problems = generation.store.verify()
        problems += self._model.problems(generation.folder, generation.embedder)
        return problems + self._kept.improved.improvement.problems(generation.folder)

    def measure(self, k: int = 10, seed: int = 0) -> Measurement:
        """Time exact and fast search on the index's own items, and say how often the fast way is right."""
        return measure_store(self.store, checked_count(k, "k"), seed)

    def prepare_fast(self, *, half: bool = False) -> float:
        """Have a server make what `fast=True` searches by: HNSW in PostgreSQL, lists (IVF_FLAT) in Milvus.

        The codes of an index in a folder are made by the first search that needs them, and need nothing of this.

        Args:
            half: Whether PostgreSQL is to keep half precision in its HNSW index, at half the size.

        Returns:
            The recall of the fast way, as measured on the index's own items.
        """
        with self._generations.writing() as generation:
            return generation.store.prepare_fast(half=half)

    def export(self, path: str | Path, where: Where | None = None) -> int:
        """Write items and vectors to a .parquet, .npz or .faiss file.

        Returns:
            How many there were.
        """
        prepare_export(Path(path))
        items, vectors = self.get(where)
        export_items(Path(path), self.store.header, items, vectors)
        return len(items)

    def compact(self) -> int:
        """Write the items anew, without the vectors of those that were removed or replaced.

        Returns:
            How many rows that saved.
        """
        with self._generations.writing() as generation:
            store = generation.store
            dead = store.dead()
            if dead is None:
                raise InputError(f"The items of {self.path} are kept by a server, which looks after them itself.")
            building = self._generations.index.building("compact", anew=True)
            write_compacted(store, building)
            self._model.carry_over(generation.folder, generation.embedder, building)
            carry_over(generation.folder, building)
            self._generations.index.finish(building)
            return dead

    def reembed(self, embedder: Embedder | str | Path, data: Any = None, *, progress: bool = False) -> Changes:
        """Embed all items anew with another embedder; the index serves as it was until that is done.

        An interrupted call goes on where it was. `rollback` brings the former embedder back. What `improve` was told
        is not carried over: it was about the vectors of the former embedder.

        Args:
            embedder: An embedder, or the folder of one.
            data: Where the items are, if they are not files: what they were built from.
            progress: Whether to show a bar on standard error.
        """
        if not isinstance(embedder, Embedder):
            embedder = Embedder.load(embedder, allow_code=self.trust.sources)
        model, known = embedder, embedder.identity()
        with self._generations.writing() as generation:
            if known == generation.embedder:
                raise InputError(f"{self.path} has this embedder already; there is nothing to embed anew.")
            building = self._generations.index.building(known[:16])
            changes = write_reembedded(generation.store, building, self.path, model, data, progress, self.trust)
            keep_model(building, known, model)
            self._generations.index.finish(building)
            self._model.remember(known, model)
            return changes

    def rollback(self) -> None:
        """Go back to what the index was before `compact` or `reembed`; what was changed since then is not in it."""
        with self._generations.index.writing():
            self._generations.index.rollback()

    def _embedder_of(self, generation: Generation) -> Embedder:
        return self._model.embedder(generation.folder, generation.embedder)

    def _add_rows(
        self,
        source: Source,
        rows: Float32[np.ndarray, "n d"],
        files: Mapping[str, Sequence[Any]],
        embedder: Embedder | str | None,
    ) -> Changes:
        with self._generations.writing() as generation:
            check_made_by(embedder, generation.embedder, self.path)
            return put_rows(generation.store, source, rows, files)


def _check_settled(index: Index, store: str, distance: str | None = None) -> None:
    """Refuse a store or a distance that is not the one with which an index was made."""
    if store and store != index.store.url:
        raise InputError(f"{index.path} exists already, and its store cannot be changed; leave out store= (--store).")
    if distance is not None and distance != index.distance:
        raise InputError(
            f"{index.path} exists already and compares vectors by {index.distance}; leave out distance= (--distance)."
        )
