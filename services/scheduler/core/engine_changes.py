"""What the engine must be told with the next step."""

from __future__ import annotations

from services.scheduler.core.plan import RowStart, StepPlan, TableWrite


class EngineChanges:
    """Rows released, rows started and table writes since the last launched step."""

    def __init__(self) -> None:
        self._known: set[int] = set()  # rows the engine holds state for
        self._released: list[int] = []
        self.starts: list[RowStart] = []
        self.writes: list[TableWrite] = []

    def release(self, row: int) -> None:
        self.writes = [write for write in self.writes if write.row != row]
        self.starts = [start for start in self.starts if start.row != row]
        if row in self._known:
            self._known.remove(row)
            self._released.append(row)

    def take(self) -> tuple[tuple[int, ...], tuple[RowStart, ...], tuple[TableWrite, ...]]:
        """Released rows, started rows, table writes: to be applied in this order."""
        taken = tuple(self._released), tuple(self.starts), tuple(self.writes)
        self._known.update(start.row for start in self.starts)
        self._released, self.starts, self.writes = [], [], []
        return taken

    def undo(self, plan: StepPlan) -> None:
        """The plan was not applied: tell its changes again."""
        self._known.difference_update(start.row for start in plan.row_starts)
        self._released = [*plan.released_rows, *self._released]
        self.starts = [*plan.row_starts, *self.starts]
        self.writes = [*plan.table_writes, *self.writes]
