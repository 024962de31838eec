"""How benches report: a table for people, or one JSON object; and whether the aims were met."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 118

Row = dict[str, Any]


@dataclass(frozen=True)
class Aim:
    """A figure and what it should be at most."""

    what: str
    """What is measured, with its unit."""
    value: float
    """What was measured."""
    most: float
    """What it should be at most."""

    @property
    def met(self) -> bool:
        """Whether the figure is as it should be."""
        return self.value <= self.most


@dataclass(frozen=True)
class Report:
    """Everything that a bench has found."""

    bench: str
    """Name of the module."""
    machine: dict[str, Any]
    """Where it ran."""
    rows: Sequence[Row]
    """What was measured."""
    aims: Sequence[Aim]
    """What it should have been."""
    columns: dict[str, str]
    """Fields of the rows that people see, with their headings."""
    notes: Sequence[str] = ()
    """What one has to know to read the table."""

    def write(self, as_json: bool) -> None:
        """Print it."""
        if as_json:
            data = {
                "bench": self.bench,
                "machine": self.machine,
                "rows": self.rows,
                "aims": [{**asdict(aim), "met": aim.met} for aim in self.aims],
            }
            sys.stdout.write(json.dumps(data) + "\n")
            return
        console = Console(width=WIDTH, highlight=False)
        where = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.machine.items())
        console.print(Text(f"\nbench.{self.bench}: {where}", style="bold"))
        console.print(
            _table(list(self.columns.values()), [[row.get(name) for name in self.columns] for row in self.rows])
        )
        for note in self.notes:
            console.print(Text(note))
        aims = [[aim.what, aim.value, f"≤ {aim.most:g}", "met" if aim.met else "MISSED"] for aim in self.aims]
        console.print(_table(["aim", "measured", "wanted", ""], aims))


def sparkline(values: Sequence[float]) -> str:
    """Return values as a row of bars that begin at zero, so that a flat cost looks flat."""
    top = max(values, default=0) or 1
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in values)


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
