"""What importing costs: `import vicinal` against `import torch`, and the list of verbs in seconds of CPU.

    python benchmarks/imports.py [--rounds 7]

Every import is a new process; both sides alternate, and medians of user + system time are printed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys

CASES = {
    "import torch": "import torch",
    "import vicinal": "import vicinal",
    "import vicinal; vicinal.Criterion": "import vicinal; vicinal.Criterion",
    "import vicinal; vicinal.fit": "import vicinal; vicinal.fit",
    "vicinal --help": "import sys; sys.argv = ['vicinal', '--help']; from vicinal.cli.main import main; main()",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, code in CASES.items():
            seconds[name].append(cpu_seconds(code))
    usual = {name: statistics.median(times) for name, times in seconds.items()}
    print(f"{'':36}  CPU s  least  most   x torch")
    for name, median in usual.items():
        ratio = median / usual["import torch"]
        print(f"{name:36} {median:6.2f} {min(seconds[name]):6.2f} {max(seconds[name]):6.2f} {ratio:8.2f}")


def cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
