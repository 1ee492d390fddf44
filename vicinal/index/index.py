"""The `Index` class: items, their embeddings and the embedder, with durable changes and exact search."""

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
from vicinal.index.model import CachedModel, has_model, header_for, keep_model
from vicinal.index.refresh import check_file, follow_source, plain_values, put_rows, put_values, take_in, to_remove
from vicinal.index.search import SearchCache, embedded, find_nearest, vector_of
from vicinal.index.sources import Source, as_rows, as_source, check_directions, checked_rows, source_of_rows
from vicinal.index.stores.store import Store
from vicinal.neighbours.inputs import as_array, checked_count
from vicinal.neighbours.reranking import Reranking, as_reranking
from vicinal.neighbours.similarity import DISTANCES

__all__ = ["Index"]


@final
class Index:
    """Items and their embeddings in one folder, searched exactly.

    Create it with `build` (with an embedder) or `of_vectors` (without), and open it with `open`. Every change is
    atomic, and on disk when the call returns. One process writes at a time, any number can search; each search sees
    complete changes only, including the latest.

    Args:
        path: Folder of an index.
        follow: Whether to switch to a new generation (after `compact`, `reembed`, `rollback`) once there is one;
            otherwise all calls use the generation that was current when the index was opened.
        allow_code: Modules or files whose code the index's embedder may import.

    Attributes:
        changes: Changes made by `build` or `import_file`; empty after `open`.

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
        self._model = CachedModel(self.path, self.trust)
        self._kept = SearchCache()
        self.changes = Changes()

    @classmethod
    def open(cls, path: str | Path, *, follow: bool = True, allow_code: Sequence[str] = ()) -> Index:
        """Open an index that `build` or `of_vectors` created.

        Args:
            path: Folder of the index.
            follow: Whether to switch to a new generation when another process has made one current.
            allow_code: Modules or files whose code the index's embedder may import.
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
        """Create an index, or update one that was created with the same embedder; an interrupted build is resumed.

        Args:
            path: Folder of the index.
            embedder: An embedder, or the folder of an embedder, a run or a comparison; the index keeps a copy.
            data: Data to index: see `refresh`. None creates an empty index.
            labels: Labels that replace those of the data.
            metadata: Additional columns: a dict of columns, a list of dicts, or a pandas or pyarrow table.
            store: URL of the store for items and vectors: `postgresql://user@host/database` or
                `milvus://host:19530`; by default they are in the folder.
            progress: Whether to show a progress bar on standard error.
            allow_code: Modules or files whose code the embedder's folder or the name of the data may import.
        """
        model = embedder if isinstance(embedder, Embedder) else Embedder.load(embedder, allow_code=allow_code)
        # Listed before anything is created, so that missing data leaves no empty index behind.
        trust = Trust.of(allow_code)
        source = None if data is None else as_source(data, labels=labels, metadata=metadata, trust=trust)
        identity = model.identity()
        if is_index(path):
            index = cls(path, allow_code=allow_code)
            _check_settled(index, store)
            if index.embedder_hash != identity:
                folder = None if isinstance(embedder, Embedder) else embedder
                raise other_embedder("was built with", index.embedder_hash, index.path, folder)
            if not index.can_embed:
                with index._generations.writing() as generation:
                    keep_model(generation.folder, identity, model)
            if model.calibration is not None and model.calibration != index.calibration:
                index.calibrate(model.calibration)
        else:
            make_index(path, header_for(model), model, store)
            index = cls(path, allow_code=allow_code)
        index._model.remember(identity, model)
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
        """Create an index from vectors made elsewhere; its queries are vectors, too, unless it has an embedder.

        Args:
            path: Folder of the index; it must not hold an index yet.
            vectors: One row per item.
            ids: Unique strings or integers; by default 0, 1, 2, ...
            labels: One label per item, or None.
            metadata: Additional columns: a dict of columns, a list of dicts, or a pandas or pyarrow table.
            paths: Paths of the items' files, or None.
            distance: "cosine" or "euclidean".
            embedder: Embedder that made the vectors, of which the index keeps a copy, or its hash; None if unknown.
            numbers: Number format of the stored vectors: "float32", or "int8" for a quarter of the bytes (cosine
                only). Search is exact among the stored vectors. Taken from the embedder if there is one.
            store: URL of the store for items and vectors; see `build`.
        """
        if is_index(path):
            raise InputError(f"{path} is already an index; open it with Index.open and add to it.")
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
        """Create an index from the vectors of a file, or add them to an existing one; the inverse of `export`.

        Args:
            path: Folder of the index.
            file: A .parquet file (columns embedding, id, label, path, others), an .npz or an .npy file.
            embedder: Embedder that made the vectors, or its folder, for a new index, which can then embed queries.
                The file does not hold the embedder, but may hold its hash; an embedder with another hash is refused.
            distance: Distance of a new index; None for the one that the file names, or the cosine.
            store: URL of the store of a new index; see `build`.
            allow_code: Modules or files whose code the embedder's folder may import.
        """
        foreign = read_vectors(Path(file))
        if isinstance(embedder, str | Path):
            embedder = Embedder.load(embedder, allow_code=allow_code)
        model = embedder
        check_claims(file, foreign, model, distance)
        rows = checked_rows(foreign.vectors, f"the vectors of {file}")
        source = source_of_rows(rows, foreign.ids, foreign.labels, foreign.metadata)
        if is_index(path):
            index = cls(path, allow_code=allow_code)
            _check_settled(index, store, distance)
            check_file(file, foreign, index.distance, index.path)
            index.changes = index._add_rows(source, rows, foreign.files, model or foreign.embedder or None)
            return index
        usual = "cosine" if model is None else model.distance
        header = header_of(rows, foreign.distance or distance or usual, model or foreign.embedder, foreign.numbers)
        make_index(path, header, model, store, source=source, rows=rows, files=foreign.files)
        index = cls(path, allow_code=allow_code)
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
        """Number format of the stored vectors: "float32" or "int8"; search is exact among the stored vectors."""
        return self.store.header.numbers

    @property
    def embedder_hash(self) -> str:
        """`Embedder.identity` of the embedder that made the vectors; empty if they come from elsewhere."""
        return self._generations.latest().embedder

    @property
    def can_embed(self) -> bool:
        """Whether the index has its embedder, so that queries need not be vectors."""
        generation = self._generations.latest()
        return bool(generation.embedder) and has_model(generation.folder)

    @property
    def store(self) -> Store:
        """Store of the current generation."""
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
        origin = f"embedder {self.embedder_hash[:12]}" if self.embedder_hash else "vectors from elsewhere"
        better = f"; searched {self.improvement}" if self.improvement else ""
        size = f"{self.dim} dimensions{'' if self.numbers == 'float32' else f' in {self.numbers}'}"
        return f"Index({str(self.path)!r}: {counted(len(self), 'item')}, {size}, {self.distance}, {origin}{better})"

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections."""
        self._generations.close()

    def embedder(self) -> Embedder:
        """Return the index's own copy of its embedder."""
        return self._embedder_of(self._generations.latest())

    @property
    def calibration(self) -> Calibration | None:
        """Calibration with the threshold above which a hit counts as the same; None if there is none."""
        generation = self._generations.latest()
        return self._model.calibration(generation.folder, generation.embedder)

    def calibrate(self, calibration: Calibration) -> None:
        """Calibrate the index's copy of its embedder, so that hits are labelled as same or not.

        Args:
            calibration: Calibration of the same embedder, as `vicinal calibrate` computes it.
        """
        with self._generations.writing() as generation:
            if calibration.embedder != generation.embedder:
                raise other_embedder("has", generation.embedder, self.path)
            self._model.calibrate(generation.folder, generation.embedder, calibration)

    @property
    def improvement(self) -> Improvement | None:
        """Transformation that every search applies to the vectors; None if the original vectors are searched."""
        current = self._kept.improved.improvement.of(self._generations.latest().folder)
        return None if current is None else current[0]

    def improve(self, *, whiten: Any = None, augment: int = 0, embedder: Embedder | str | None = None) -> None:
        """Make every search whiten or augment the vectors first; without arguments, search the original vectors again.

        Hits are then the nearest by whitened and augmented vectors. Search among these is exact, even with `fast`. The
        similarities of hits and the same/other verdicts stay those of the original vectors.
        The vectors of all items are transformed now, and by the first search after each change of the index: `whiten`
        reads them all, `augment` searches all items among all items. The transformed vectors are cached next to the
        index and searched in memory. `compact` keeps the improvement; `reembed` drops it, since the vectors differ.

        Args:
            whiten: Vectors of other items (for example of the training classes) to learn a whitening from, or a
                `Whitening`.
            augment: Number of neighbours that each item is averaged with.
            embedder: Embedder that made the vectors in `whiten`, or its hash; any other than the index's own is
                refused.
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
            query: A path, an image, or any other input of the embedder; a vector if there is no embedder. A folder
                or a sequence of these is a batch of queries.
            k: Number of neighbours; fewer are returned only if fewer items pass the filter.
            where: Filter, as text (`label = 'wren' and year > 2020`) or as a dict (`{"label": "wren"}`).
            vector: One or more embeddings instead of a query.
            item: Id of an item to search by instead of a query; the item itself is not returned.
            embedder: Embedder that made the vector, or its hash; any other than the index's own is refused.
            fast: Whether to search by faiss codes: a few milliseconds for a million items, with nearly the same
                results. The `recall` of the answer says how nearly. Without it every answer is exact.
            expand: Number of items that a query is averaged with before the search; costs a second search. The
                similarities of hits and the same/other verdicts stay those of the original query.
            rerank: Whether to order the hits by shared neighbours: with the settings from the paper (True), or with
                your own; costs one search of all items among all items.

        Returns:
            `Hits` for a single query, a list of them for a batch.
        """
        if sum(source is not None for source in (query, vector, item)) != 1:
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
            k: Number of neighbours; there are fewer columns if fewer items pass the filter.
            where: Filter on the items.
            embedder: Embedder that made the vectors, or its hash; any other than the index's own is refused.
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
        """Return the items that pass a filter, ordered by id, and their vectors if `vectors` is True."""
        return self.store.get(None if where is None else as_condition(where), vectors=vectors)

    def count(self, where: Where | None = None) -> int:
        """Return the number of items that pass a filter."""
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
        """Add items; an item replaces the existing one with the same id.

        Args:
            items: Items to embed, in any form that `refresh` accepts. Nothing is removed.
            vectors: Embeddings instead of items, one row per item.
            ids: Ids, required for vectors and for images in memory; the ids of files are their absolute paths.
            labels: One label per item, or None.
            metadata: Additional columns: a dict of columns, a list of dicts, or a pandas or pyarrow table.
            paths: Paths of the items' files if vectors are given, or None.
            embedder: Embedder that made the vectors, or its hash; required if the index has an embedder, and any
                other is refused.
            progress: Whether to show a progress bar on standard error.
        """
        if (items is None) == (vectors is None):
            raise InputError("Give items or vectors.")
        if vectors is None:
            with self._generations.writing() as generation:
                model = self._embedder_of(generation)
                keys = None if ids is None else list(ids)
                source = as_source(items, ids=keys, labels=labels, metadata=metadata, trust=self.trust)
                if ids is None and len(source) and not source.paths:
                    raise InputError("Items that are not files need ids.")
                return take_in(generation.store, model, replace(source, name=None), progress)
        rows = checked_rows(vectors, "vectors")
        if ids is None:
            raise InputError("Vectors need ids.")
        source = source_of_rows(rows, ids, labels, metadata)
        return self._add_rows(source, rows, {} if paths is None else {"path": list(paths)}, embedder)

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Set values of items, in one atomic step.

        Args:
            where: Filter that selects the items.
            values: New values by column, including `label`; None removes a value.

        Returns:
            Number of items updated.
        """
        plain = plain_values(values)
        with self._generations.writing() as generation:
            return put_values(generation.store, as_condition(where), plain)

    def remove(self, where: Where | None = None, *, ids: Iterable[Id] | None = None) -> int:
        """Remove the items that pass a filter, or those with the given ids.

        Returns:
            Number of items removed.
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
        """Embed new and changed items of a folder, table or dataset, and remove those no longer in it.

        Work is committed every few seconds, so an interrupted call loses little, and the index stays searchable.
        A file counts as unchanged if its size and modification time are the same, or if its content is.

        Args:
            data: A folder of images or of class folders, a list of paths (.txt), a table with a column `path` whose
                other columns become metadata, the name of a dataset, or a Dataset.
            labels: Labels that replace those of the data.
            metadata: Additional columns: a dict of columns, a list of dicts, or a pandas or pyarrow table.
            progress: Whether to show a progress bar on standard error.
        """
        source = as_source(data, labels=labels, metadata=metadata, trust=self.trust)
        with self._generations.writing() as generation:
            return follow_source(generation.store, self._embedder_of(generation), source, progress)

    def verify(self) -> list[str]:
        """Check all files and return the problems found, one sentence each; an empty list if there are none."""
        generation = self._generations.latest()
        problems = generation.store.verify()
        problems += self._model.problems(generation.folder, generation.embedder)
        return problems + self._kept.improved.improvement.problems(generation.folder)

    def measure(self, k: int = 10, seed: int = 0) -> Measurement:
        """Time exact and fast search on the index's own items, and measure the recall of fast search."""
        return measure_store(self.store, checked_count(k, "k"), seed)

    def prepare_fast(self, *, half: bool = False) -> float:
        """Build the index that `fast=True` uses in a server: HNSW in PostgreSQL, IVF_FLAT in Milvus.

        An index in a folder does not need this: its codes are computed by the first search that uses them.

        Args:
            half: Whether PostgreSQL stores half precision in its HNSW index, at half the size.

        Returns:
            Recall of fast search, measured on the index's own items.
        """
        with self._generations.writing() as generation:
            return generation.store.prepare_fast(half=half)

    def export(self, path: str | Path, where: Where | None = None) -> int:
        """Write items and vectors to a .parquet, .npz or .faiss file.

        Returns:
            Number of items written.
        """
        prepare_export(Path(path))
        items, vectors = self.get(where)
        export_items(Path(path), self.store.header, items, vectors)
        return len(items)

    def compact(self) -> int:
        """Rewrite the items, without the vectors of those that were removed or replaced.

        Returns:
            Number of rows saved.
        """
        with self._generations.writing() as generation:
            store = generation.store
            dead = store.dead()
            if dead is None:
                raise InputError(
                    f"The items of {self.path} are stored on a database server, which maintains them itself."
                )
            building = self._generations.index.building("compact", fresh=True)
            write_compacted(store, building)
            self._model.carry_over(generation.folder, generation.embedder, building)
            carry_over(generation.folder, building)
            self._generations.index.finish(building)
            return dead

    def reembed(self, embedder: Embedder | str | Path, data: Any = None, *, progress: bool = False) -> Changes:
        """Re-embed all items with another embedder; the index can be searched as it was until that is done.

        An interrupted call is resumed. `rollback` restores the previous embedder. The settings of `improve` are not
        carried over: they apply to the vectors of the previous embedder.

        Args:
            embedder: An embedder, or the folder of one.
            data: Data that the items came from, if they are not files.
            progress: Whether to show a progress bar on standard error.
        """
        if not isinstance(embedder, Embedder):
            embedder = Embedder.load(embedder, allow_code=self.trust.sources)
        model, identity = embedder, embedder.identity()
        with self._generations.writing() as generation:
            if identity == generation.embedder:
                raise InputError(f"{self.path} already has this model; there is nothing to re-embed.")
            building = self._generations.index.building(identity[:16])
            changes = write_reembedded(generation.store, building, self.path, model, data, progress, self.trust)
            keep_model(building, identity, model)
            self._generations.index.finish(building)
            self._model.remember(identity, model)
            return changes

    def rollback(self) -> None:
        """Restore the state of the index before `compact` or `reembed`; later changes are not in it."""
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
    """Refuse a store or a distance other than that of an existing index."""
    if store and store != index.store.url:
        raise InputError(f"{index.path} already exists and its store cannot be changed; drop store= (--store).")
    if distance is not None and distance != index.distance:
        raise InputError(
            f"{index.path} already exists and uses the {index.distance} distance; drop distance= (--distance)."
        )
