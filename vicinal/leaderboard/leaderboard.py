"""Leaderboard: comparable runs, ranked, and the conclusions that they support."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
from rich.console import Console

from vicinal._util.code import Trust
from vicinal._util.text import counted, fraction, short
from vicinal.data import Dataset
from vicinal.data.splits import CROSS_VALIDATION
from vicinal.errors import InputError, UnknownName
from vicinal.leaderboard.advice import Advice, advise
from vicinal.leaderboard.choice import Choice, choose
from vicinal.leaderboard.entry import Entry, shared_scores
from vicinal.leaderboard.gain import Gain, gain_of, usable
from vicinal.leaderboard.text import print_leaderboard
from vicinal.runs.joined import JoinedFolds, join_folds
from vicinal.runs.journal import Journal, read_journals
from vicinal.runs.recipe import flat
from vicinal.runs.record import Network, Record
from vicinal.runs.run import Run
from vicinal.stats import (
    AlignedPair,
    Interval,
    PairTest,
    RankCorrelation,
    Tournament,
    Verdict,
    compare_aligned,
    probability_of_best,
    rank_correlation,
    tournament,
    verdict,
)
from vicinal.stats.pair_tests import basis_in_words

__all__ = ["Leaderboard", "boards_of", "leaderboards", "only_losses"]


DEFAULT_SCORE = "MAP@R"
NAMED = 3  # most settings shown to distinguish methods of the same name
OPTIONS = ("loss_options", "mining_options", "backbone_options")
FEWEST_RANKED = 5  # methods with different validation scores needed for a rank correlation
SAME_BATCHES = ", THE SAME BATCHES FOR ALL LOSSES"
SELECTED = {
    "validation": "steps selected on validation classes",
    "last": "last steps",
    "test": "SELECTED ON TEST CLASSES: scores are too high",
}
FITTED = "settings selected by cross-validation, models fitted on all training classes"


class BestProbabilities(NamedTuple):
    """Probability of each method of a network to be the best.

    Attributes:
        shares: Probability that each method has the highest mean over all classes and seeds; they sum to 1.
        basis: Classes, seeds and folds that all methods share, in words.
    """

    shares: dict[str, float]
    basis: str


@final
@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard:
    """The runs on the same data, under the same protocol, with the same selection of the reported step.

    Methods are compared within a network. Each pair is compared on the seeds and folds that *those two* share, and on
    the test classes that were scored in both. Every statement about a pair gives these counts.

    Attributes:
        runs: Finished and failed runs; at least one.
        folders: Folders of the comparisons that the runs belong to; joined folds are stored there.
        progress: Whether to show progress while folds are joined, which takes seconds per fold the first time.
        data: Dataset of the runs, if it is already open; a report then shows its images without reading it again.
    """

    runs: tuple[Run, ...]
    folders: tuple[Path, ...] = ()
    progress: bool = False
    data: Dataset | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise InputError("A leaderboard needs at least one run, got none.")

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        done = counted(len(self.runs) - len(self.failed), "run")
        return f"Leaderboard({self.title}: {done} done, {len(self.failed)} failed)"

    def _repr_html_(self) -> str:
        """The terminal output as HTML, for notebooks."""
        console = Console(record=True, width=120, file=StringIO())
        self.print(console)
        form = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'
        return console.export_html(inline_styles=True, code_format=form)

    def __str__(self) -> str:
        text = StringIO()
        self.print(Console(file=text, width=140, no_color=True))
        return text.getvalue()

    def print(self, console: Console) -> None:
        """Print the verdict, the advice and the table; then caveats, notes and missing runs."""
        print_leaderboard(self, console)

    @property
    def first(self) -> Record:
        """One of the records, to read what they all share."""
        done = [run.record for run in self.runs if run.record.status == "done"]
        trained = [record for record in done if record.role == "run"]
        return [*trained, *done, self.runs[0].record][0]

    @property
    def title(self) -> str:
        """Data, protocol, how steps were selected, and whether all losses used the same batches."""
        name, chosen = Path(self.first.dataset).name, SELECTED[self.first.selected_on]
        if self.first.protocol == CROSS_VALIDATION:
            chosen = FITTED
        return f"{name}, {self.first.protocol} protocol, {chosen}{SAME_BATCHES if self.first.same_batches else ''}"

    @property
    def records(self) -> list[Record]:
        """Records of the finished runs, best entries first."""
        return [record for entry in self.entries for record in entry.records]

    @property
    def failed(self) -> list[Record]:
        """Records of the runs that ended with an error."""
        return [run.record for run in self.runs if run.record.status == "failed"]

    @cached_property
    def score(self) -> str:
        """Name of the score that chose the steps and sorts the entries."""
        done = [run.record for run in self.runs if run.record.status == "done"]
        requested = self.first.score
        return requested if all(requested in record.test for record in done) else DEFAULT_SCORE

    @cached_property
    def entries(self) -> list[Entry]:
        """An entry for each method and network with a finished run, sorted by the mean test score, best first."""
        return self._sorted_entries("run")

    @cached_property
    def baselines(self) -> list[Entry]:
        """Entries without training, for each network, best first."""
        return self._sorted_entries("baseline")

    def _sorted_entries(self, role: str) -> list[Entry]:
        groups: dict[tuple[str, Network], list[Run]] = {}
        for run in self.runs:
            if run.record.status == "done" and run.record.role == role:
                groups.setdefault((run.record.name, run.record.network), []).append(run)
        joined = self._joined if role == "run" else {}
        entries = []
        for (name, network), runs in groups.items():
            runs.sort(key=lambda run: (run.record.seed, run.record.fold or 0))
            folds = joined.get((name, network), JoinedFolds())
            together = Entry(name, network, tuple(folds.runs)) if folds.runs else None
            entries.append(Entry(name, network, tuple(runs), together, tuple(folds.reasons)))
        return sorted(entries, key=lambda entry: (-entry.mean(self.score), entry.name, _size(entry.network)))

    @cached_property
    def _joined(self) -> dict[tuple[str, Network], JoinedFolds]:
        return join_folds([run for run in self.runs if run.record.role == "run"], self.folders, progress=self.progress)

    @cached_property
    def networks(self) -> list[Network]:
        """Backbones and dimensions, smallest dimension first."""
        return sorted({entry.network for entry in self.entries}, key=_size)

    @property
    def chosen_by(self) -> Literal["validation", "test"]:
        """Scores that choose `best` and the main network; "test", which is biased upwards, only without validation."""
        return "test" if all(entry.validation(self.score) is None for entry in self.entries) else "validation"

    @cached_property
    def choice(self) -> Choice:
        """The entry to use, with any network, and the entries that are level with it.

        It is the simplest of the entries that validation classes cannot distinguish from the best one: an untrained
        network if it is among them. Without validation classes it is the best on the test classes.

        Raises:
            InputError: If no run has finished.
        """
        untrained = [baseline for baseline in self.baselines if usable(baseline)]
        return self._chosen([*untrained, *self.entries], untrained)

    @property
    def best_entry(self) -> Entry:
        """The entry to use: that of `choice`."""
        return self.choice.entry

    @cached_property
    def best_trained(self) -> Entry:
        """The trained entry to use, chosen as in `choice`.

        Raises:
            InputError: If no run has finished.
        """
        return self._chosen(self.entries, ()).entry

    def _chosen(self, entries: Sequence[Entry], untrained: Collection[Entry]) -> Choice:
        """Choose by validation if there is any, otherwise by test."""
        if not self.entries:
            raise InputError(f"There is no best run: {counted(len(self.failed), 'run')} failed and none finished.")
        chosen = choose(entries, untrained, self.score) if self.chosen_by == "validation" else None
        if chosen is not None:
            return chosen
        best = max(entries, key=lambda entry: entry.mean(self.score))
        return Choice(best, (best,), 0)

    @property
    def best(self) -> Run:
        """The run to use: the best validated run of the best entry, among those with a saved model if there are any."""
        return self.best_entry.best_validated(self.score)

    @property
    def best_folder(self) -> Path | None:
        """Folder of the best run's embedder in its comparison; None if it was not saved."""
        best = self.best
        journals = [Journal(folder) for folder in self.folders]
        candidates = [journal.best for journal in journals if best.folder == journal.run_folder(best.record.key)]
        return next((folder_of_best for folder_of_best in candidates if folder_of_best.is_dir()), None)

    @property
    def main_network(self) -> Network:
        """The network whose details are shown: that of the best trained entry."""
        return self.best_trained.network

    @cached_property
    def gain(self) -> Gain | None:
        """Gain of the best trained entry over the best untrained network, of any backbone; None without a baseline."""
        baselines = [baseline for baseline in self.baselines if usable(baseline)] if self.entries else []
        if not baselines:
            return None
        trained, baseline = self.best_trained, self._chosen(baselines, baselines).entry
        both = all(entry.validation(self.score) is not None for entry in (trained, baseline))
        preferred = self._chosen([baseline, trained], [baseline]).entry if both else None
        return gain_of(trained, baseline, self.score, preferred if self.chosen_by == "validation" else None)

    def baselines_of(self, network: Network | None = None) -> list[Entry]:
        """Return the baselines of a network, with all features or the same dimension; by default the main network."""
        backbone, dim = self.main_network if network is None else network
        return [baseline for baseline in self.baselines if baseline.network in ((backbone, None), (backbone, dim))]

    def of_network(self, network: Network | None = None) -> list[Entry]:
        """Return the entries of a network, best first; by default the main network."""
        wanted = self.main_network if network is None else network
        return [entry for entry in self.entries if entry.network == wanted]

    def pairs(self, network: Network | None = None) -> list[PairTest]:
        """Return the test of each pair of methods that share a seed, a fold and two classes, better methods first."""
        return self._pairs[self.main_network if network is None else network]

    def verdict(self, network: Network | None = None) -> Verdict | None:
        """Return which method wins and which others it beats; None for a single method."""
        names = [entry.name for entry in self.of_network(network)]
        return verdict(self.pairs(network), methods=names) if len(names) > 1 else None

    def only(self, losses: Sequence[str]) -> Leaderboard | None:
        """Return the leaderboard with some losses and all baselines; None if no run has one of these losses.

        Args:
            losses: Names as the table shows them; spaces around "+" are ignored.
        """
        wanted = set(map(_typed, losses))
        runs = tuple(run for run in self.runs if run.record.role == "baseline" or _typed(run.record.name) in wanted)
        return replace(self, runs=runs) if any(run.record.role != "baseline" for run in runs) else None

    def advice(self, number: Callable[..., str] = fraction, unit: str = "") -> list[Advice]:
        """Return which run to use, whether training was worth it and what to do next; `number` formats scores."""
        return advise(self, number, unit)

    def to_dict(self) -> dict[str, Any]:
        """Return the leaderboard as plain data, as `vicinal compare --json` prints it."""

        return leaderboard_data(self)

    def best_probabilities(self, network: Network | None = None) -> BestProbabilities | None:
        """Return the probability that each method is the best; None for one method or fewer than two shared seeds."""
        return self._best_probabilities[self.main_network if network is None else network]

    def correlation(self, network: Network | None = None) -> RankCorrelation | None:
        """Return the rank correlation of validation and test scores; None for fewer than five methods to rank.

        For four methods even identical orders are not significant: one of 24 orders agrees by chance.
        """
        entries = [entry for entry in self.of_network(network) if entry.validation(self.score) is not None]
        validation = {entry.name: entry.validation(self.score) or 0.0 for entry in entries}
        if len(set(validation.values())) < FEWEST_RANKED:
            return None
        return rank_correlation(validation, {entry.name: entry.mean(self.score) for entry in entries})

    @cached_property
    def by_experiment(self) -> dict[str, dict[str, float]]:
        """Test score of every method in every experiment (network, seed and fold), in the format of `tournament`."""
        scores: dict[str, dict[str, float]] = {}
        for entry in self.entries:
            for records in entry.cells.values():
                value = float(np.mean([record.test[self.score] for record in records]))
                scores.setdefault(records[0].experiment, {})[entry.name] = value
        return scores

    @cached_property
    def ranks(self) -> Tournament | None:
        """Ranks of methods over experiments that have all of them; None for fewer than two experiments or methods."""
        names = {entry.name for entry in self.entries}
        complete = [scores for scores in self.by_experiment.values() if set(scores) == names]
        if len(complete) < 2 or len(names) < 2:
            return None
        return tournament(self.by_experiment, missing="drop experiments")

    @cached_property
    def network_pairs(self) -> list[PairTest]:
        """Tests between the best rows of every two networks, trained or not, better networks first."""
        best: dict[str, Entry] = {}
        usable_entries = [*self.entries, *(baseline for baseline in self.baselines if usable(baseline))]
        for entry in sorted(usable_entries, key=lambda entry: -entry.mean(self.score)):
            best.setdefault(entry.network[0], entry)
        return self._tests({f"{entry.name} on {network}": entry for network, entry in best.items()})

    @cached_property
    def _pairs(self) -> dict[Network, list[PairTest]]:
        return {
            network: self._tests({entry.name: entry for entry in self.of_network(network)}) for network in self.networks
        }

    def _tests(self, entries: Mapping[str, Entry]) -> list[PairTest]:
        """Return the test of each pair of entries that share a seed, a fold and two classes, better entries first."""
        aligned = []
        for (name, entry), (other_name, other) in combinations(entries.items(), 2):
            shared = shared_scores([entry, other], self.score)
            if shared is not None:
                first, second = shared.values
                aligned.append(AlignedPair(name, other_name, first, second, shared.queries, shared.folds))
        return compare_aligned(aligned)

    @cached_property
    def _best_probabilities(self) -> dict[Network, BestProbabilities | None]:
        probabilities: dict[Network, BestProbabilities | None] = {}
        for network in self.networks:
            entries = self.of_network(network)
            shared = shared_scores(entries, self.score) if len(entries) > 1 else None
            if shared is None or shared.values.shape[1] < 2:
                probabilities[network] = None
                continue
            values = {entry.name: scores for entry, scores in zip(entries, shared.values, strict=True)}
            _, seeds, classes = shared.values.shape
            shares = probability_of_best(values, queries=shared.queries)
            probabilities[network] = BestProbabilities(shares, basis_in_words(classes, seeds, shared.folds))
        return probabilities


def leaderboards(
    folders: Sequence[str | Path],
    *,
    runs: Sequence[Run] = (),
    progress: bool = False,
    allow_code: Sequence[str] = (),
) -> list[Leaderboard]:
    """Read the journals of folders and group their runs into leaderboards.

    Runs are compared only if they agree in the content of the data, the protocol, its folds, the selection of the
    reported step and `same_batches`.

    Args:
        folders: Folders that `vicinal compare` wrote; those of several machines are merged.
        runs: Additional runs that belong to no comparison, such as those of `vicinal train`.
        progress: Whether to show progress while folds are joined.
        allow_code: Modules or files whose code the runs may name.

    Raises:
        InputError: If a folder holds no journal, or no journal holds a run.
    """
    if not folders and not runs:
        raise InputError("A leaderboard needs at least one folder that `vicinal compare` wrote; got none.")
    return boards_of(read_journals(folders, Trust.of(allow_code)), folders, others=runs, progress=progress)


def boards_of(
    runs: Sequence[Run], folders: Sequence[str | Path], *, others: Sequence[Run] = (), progress: bool = False
) -> list[Leaderboard]:
    """Group the runs of comparisons into leaderboards, as `leaderboards` does.

    - Runs that only tried a learning rate are left out.
    - A failed run is left out if the same method later finished with that network, seed and fold.
    - Runs of a method with the same network, seed and fold but different settings get separate rows, named by what
      differs: an edited loss is not averaged with its earlier version.

    Args:
        runs: Newest record of each run, in the order of their journals.
        folders: Folders of the comparisons.
        others: Runs that belong to no comparison.
        progress: Whether to show progress while folds are joined.

    Raises:
        InputError: If there is no run.
    """
    compared = _by_settings(_not_repaired([run for run in runs if run.record.role != "rung"]))
    every = [*compared, *others]
    if not every:
        raise InputError(f"No run has finished in {', '.join(map(str, folders))}: there is nothing to report yet.")
    groups: dict[tuple[object, ...], list[Run]] = {}
    # A run that failed early may record neither the data's hash nor how its step is selected: group it with the others.
    for run in sorted(every, key=lambda run: run.record.status == "failed"):
        question = _question(run.record)
        if run.record.status == "failed" and question not in groups:
            alike = (existing for existing, members in groups.items() if _same_task(members[0].record, run.record))
            question = next(alike, question)
        groups.setdefault(question, []).append(run)
    return [Leaderboard(tuple(members), tuple(map(Path, folders)), progress) for members in groups.values()]


def only_losses(boards: Sequence[Leaderboard], losses: Sequence[str]) -> list[Leaderboard]:
    """Restrict leaderboards to some losses, and drop those that have none of them.

    Raises:
        UnknownName: If no leaderboard has a loss of that name.
    """
    methods = [run.record.name for board in boards for run in board.runs if run.record.role != "baseline"]
    available = {_typed(name): None for name in methods}
    for loss in losses:
        if _typed(loss) not in available:
            raise UnknownName("loss of this comparison", loss, available)
    return [board for board in (whole.only(losses) for whole in boards) if board is not None]


def _typed(name: str) -> str:
    """Return the name of a method as users type it: "triplet+semi_hard"."""
    return re.sub(r"\s*\+\s*", "+", name.strip())


def _not_repaired(runs: Sequence[Run]) -> list[Run]:
    """Drop failed runs that finished later, with other settings or other code."""
    last_done = {_cell(run.record): number for number, run in enumerate(runs) if run.record.status == "done"}
    return [
        run
        for number, run in enumerate(runs)
        if run.record.status == "done" or last_done.get(_cell(run.record), -1) < number
    ]


def _by_settings(runs: Sequence[Run]) -> list[Run]:
    """Rename runs so that methods with different settings in the same network, seed and fold have different names."""
    methods: dict[tuple[object, ...], list[Record]] = {}
    for run in runs:
        if run.record.status == "done" and run.record.role == "run":
            methods.setdefault((*_question(run.record), run.record.name, run.record.network), []).append(run.record)
    names: dict[str, str] = {}
    for records in methods.values():
        if len({_cell(record) for record in records}) == len(records):
            continue
        settings = {record.key: _settings(record) for record in records}
        differing = [
            name
            for name in dict.fromkeys(name for values in settings.values() for name in values)
            if len({repr(values.get(name)) for values in settings.values()}) > 1
        ]
        distinct = {repr([values.get(name) for name in differing]) for values in settings.values()}
        first = {repr([values.get(name) for name in differing[:NAMED]]) for values in settings.values()}
        for record in records:
            shown = differing[:NAMED] if len(first) == len(distinct) else differing
            words = [f"{name} {short(settings[record.key].get(name))}" for name in shown]
            names[record.key] = f"{record.name} ({'; '.join(words)})" if words else record.name
    return [
        replace(run, record=run.record.model_copy(update={"name": names[run.record.key]}))
        if run.record.key in names
        else run
        for run in runs
    ]


def _settings(record: Record) -> dict[str, object]:
    """Return the settings of a method: options under their own names, and the hashes of its code."""
    values = {name: value for name, value in flat(record.recipe).items() if name not in ("data", "seed", "fold")}
    options = {name: value for table in OPTIONS for name, value in (values.pop(table, None) or {}).items()}
    code = {f"code of {Path(name).name}": digest[:8] for name, digest in record.code.items()}
    return {**values, **options, **code}


def _cell(record: Record) -> tuple[object, ...]:
    task = record.dataset, record.protocol, record.same_batches
    return *task, record.role, record.name, record.network, record.seed, record.fold


def _question(record: Record) -> tuple[object, ...]:
    share = record.recipe.get("validation", 0.1)
    return record.protocol, record.data or record.dataset, record.selected_on, record.folds, share, record.same_batches


def _same_task(one: Record, other: Record) -> bool:
    return (one.dataset, one.protocol) == (other.dataset, other.protocol)


def _size(network: Network) -> tuple[str, int]:
    backbone, dim = network
    return backbone, dim or 0


# Leaderboard as plain data: the output of `vicinal compare --json`.


def leaderboard_data(board: Leaderboard) -> dict[str, Any]:
    """Return a leaderboard as JSON-compatible data: entries and baselines (best first), verdict, gain and advice.

    Unknown values are None: the interval over seeds for one seed, the validation score without validation, the folder
    of the best model if it was not saved.
    """
    verdict, gain = (board.verdict(), board.gain) if board.entries else (None, None)
    return {
        "title": board.title if board.records or board.failed else "",
        "score": board.score,
        "chosen_by": board.chosen_by,
        "same_batches": board.first.same_batches,
        "entries": [_entry(entry, board.score) for entry in board.entries],
        "baselines": [_entry(entry, board.score) for entry in board.baselines],
        "verdict": None
        if verdict is None
        else {
            "winner": verdict.winner,
            "significant": verdict.significant,
            "beaten": list(verdict.beaten),
            "undecided": list(verdict.undecided),
            "sentence": verdict.sentence,
        },
        "gain": None
        if gain is None
        else {
            "answer": gain.answer,
            "trained": gain.trained.name,
            "baseline": gain.baseline.name,
            "difference": None if gain.test is None else _finite(gain.test.difference),
            "interval": None if gain.test is None else [_finite(end) for end in gain.test.interval],
            "sentence": str(gain),
        },
        "advice": [{"about": each.about, "text": each.text, "command": each.command} for each in board.advice()],
        "best": None if not board.entries or board.best_folder is None else str(board.best_folder),
        "failed": [{"name": record.name, "seed": record.seed, "error": record.error} for record in board.failed],
    }


def _entry(entry: Entry, score: str) -> dict[str, Any]:
    backbone, dim = entry.network
    return {
        "name": entry.name,
        "backbone": backbone,
        "dim": dim,
        "runs": len(entry.records),
        "seconds": _finite(entry.seconds),
        "validation": _finite(entry.validation(score)),
        "mean": _finite(entry.mean(score)),
        "over_seeds": _ends(entry.over_seeds(score)),
        "over_classes": _ends(entry.over_classes(score)),
        "scores": {name: _finite(entry.mean(name)) for name in sorted(entry.scores)},
    }


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [_finite(interval.low), _finite(interval.high)]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
