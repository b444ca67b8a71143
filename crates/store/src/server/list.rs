//! Rows of values that are sent with one statement: as arrays, as a JSON document or as `VALUES`, whichever
//! the database reads fastest.

use crate::cells::{Cell, ColumnKind, RowCells};
use crate::fault::Fault;

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
        let mut cells = Vec::new();
        for row in rows {
            cells.extend(row?);
        }
        Ok(List { cells, width: N })
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

    pub fn rows(&self) -> impl Iterator<Item = &[Cell<'a>]> {
        self.cells.chunks_exact(self.width.max(1))
    }

    /// One list for each column.
    pub fn into_columns(self) -> Vec<Vec<Cell<'a>>> {
        let rows = self.cells.len() / self.width.max(1);
        let mut columns: Vec<Vec<Cell<'a>>> = (0..self.width).map(|_| Vec::with_capacity(rows)).collect();
        for (place, cell) in self.cells.into_iter().enumerate() {
            columns[place % self.width].push(cell);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let list = List::of([row![1_i64, "a"], row![2_i64, "b"]]);
        assert_eq!(list.rows().count(), 2);
        assert_eq!(list.into_columns(), [row![1_i64, 2_i64], row!["a", "b"]]);
        assert!(List::of::<1>([]).is_empty());
    }
}
