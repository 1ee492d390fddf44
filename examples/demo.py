"""Which loss is best on drawn characters? Five losses, three seeds, on alphabets that none of them has seen.

    python examples/demo.py --out runs/demo

Stop it at any moment and start it again: it goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

import vicinal as vc
from vicinal.report import write_report

LOSSES = ["contrastive", "triplet+semi_hard", "multi_similarity+valid_triplets", "proxy_anchor", "n_pair"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    console = Console()
    console.print(f"{len(LOSSES)} losses, {arguments.seeds} seeds, {arguments.steps} steps: about three minutes.")
    found = vc.compare(
        "glyphs", LOSSES, recipe="glyphs", seeds=arguments.seeds, steps=arguments.steps, out=arguments.out
    )
    found.print(console)
    console.print(f"The report is {write_report([arguments.out])}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
