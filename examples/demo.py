"""Train two losses on drawn characters and score them on alphabets that neither has seen."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

import vicinal as vc

LOSSES = {"multi_similarity": {"mining": "valid_triplets"}, "proxy_anchor": {}}


def main() -> None:
    console = Console()
    split = vc.split(vc.data.glyphs(), "fixed-validation", seed=0)
    console.print(f"{len(split.train.classes)} characters train, {len(split.test.classes)} of other alphabets test")
    table = Table("loss", "P@1", "MAP@R")
    for loss, options in LOSSES.items():
        model = vc.fit(split, loss=loss, steps=300, learning_rate=1e-3, evaluate_every=100, **options)
        scores = vc.evaluate(model, split.test)
        table.add_row(loss, f"{scores['P@1']:.3f}", f"{scores['MAP@R']:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
