"""Results: records of runs, journals of records, leaderboards of runs, and what others have published.

`leaderboards(folders)` reads what comparisons left; terminal, report, tournament and Python read the same object.
"""

from __future__ import annotations

from vicinal.results.advice import Advice
from vicinal.results.entry import Entry
from vicinal.results.gain import Gain
from vicinal.results.influences import Influence, weigh_influences
from vicinal.results.item_scores import score_test_items
from vicinal.results.journal import Journal, read_journals
from vicinal.results.leaderboard import Leaderboard, leaderboards
from vicinal.results.literature import Published, published, same_method, thesis_tables
from vicinal.results.record import Network, Record
from vicinal.results.run import EmbeddedItems, Run, RunFiles
from vicinal.results.searches import SearchRecord, read_searches

__all__ = [
    "Advice",
    "EmbeddedItems",
    "Entry",
    "Gain",
    "Influence",
    "Journal",
    "Leaderboard",
    "Network",
    "Published",
    "Record",
    "Run",
    "RunFiles",
    "SearchRecord",
    "leaderboards",
    "published",
    "read_journals",
    "read_searches",
    "same_method",
    "score_test_items",
    "thesis_tables",
    "weigh_influences",
]
