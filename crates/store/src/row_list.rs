//! Rows of values that are sent with one statement: as arrays, as a JSON document or as `VALUES`, whichever
//! the database reads fastest.

use crate::cells::{Cell, ColumnKind, RowCells};
use crate::fault::Fault;
use crate::layout::StoredCounts;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};

/// Rows of equal length.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct List<'a> {
    cells: Vec<Cell<'a>>,
    width: usize,
}

/// The values of a row as cells.
macro_rules! row {
    ($($value:expr),* $(,)?) => {
        [$($crate::cells::CellValue::into_cell($value)),*]
    };
}
pub(crate) use row;

impl<'a> List<'a> {
    pub fn of<const N: usize>(rows: impl IntoIterator<Item = [Cell<'a>; N]>) -> Self {
        List { cells: rows.into_iter().flatten().collect(), width: N }
    }

    pub fn try_of<const N: usize>(
        rows: impl IntoIterator<Item = Result<[Cell<'a>; N], Fault>>,
    ) -> Result<Self, Fault> {
        let rows = rows.into_iter();
        let mut cells = Vec::with_capacity(rows.size_hint().0 * N);
        for row in rows {
            cells.extend(row?);
        }
        Ok(List { cells, width: N })
    }

    /// Keys, each with the counters of its row.
    pub fn of_counts<const N: usize, C: StoredCounts>(
        rows: impl IntoIterator<Item = ([Cell<'a>; N], C)>,
    ) -> Self {
        let mut cells = Vec::new();
        for (key, counts) in rows {
            cells.extend(key);
            cells.extend(counts.each().map(Cell::Number));
        }
        List { cells, width: N + C::COLUMNS.len() }
    }

    /// The first columns of rows that were read.
    pub fn read(rows: &[impl RowCells], columns: &[ColumnKind]) -> Result<Self, Fault> {
        let mut cells = Vec::with_capacity(rows.len() * columns.len());
        for row in rows {
            for (place, kind) in columns.iter().enumerate() {
                cells.push(Cell::read(row, place, *kind)?);
            }
        }
        Ok(List { cells, width: columns.len() })
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[Cell<'a>]> {
        self.cells.chunks_exact(self.width.max(1))
    }
}

pub(crate) fn ids<'a, 'b>(jobs: impl IntoIterator<Item = &'b JobId>) -> List<'a> {
    List::of(jobs.into_iter().map(|job| row![*job]))
}

pub(crate) fn occurrences<'a, 'b>(ids: impl IntoIterator<Item = &'b OccurrenceId>) -> List<'a> {
    List::of(ids.into_iter().map(|id| row![id.job, id.number]))
}

pub(crate) fn executions<'a>(ids: impl IntoIterator<Item = ExecutionId>) -> List<'a> {
    List::of(ids.into_iter().map(|id| row![id.occurrence.job, id.occurrence.number, id.attempt]))
}

pub(crate) fn numbers<'a>(numbers: impl IntoIterator<Item = i64>) -> List<'a> {
    List::of(numbers.into_iter().map(|number| row![number]))
}

pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> List<'a> {
    List::of(names.into_iter().map(|name| row![name.as_str()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_rows() {
        let list = List::of([row![1_i64, "a"], row![2_i64, "b"]]);
        assert_eq!(list.width(), 2);
        assert_eq!(list.rows().collect::<Vec<_>>(), [row![1_i64, "a"], row![2_i64, "b"]]);
        assert!(List::of::<1>([]).is_empty());
    }
}
