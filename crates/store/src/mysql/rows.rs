//! Values of rows and parameters as the driver of MariaDB and MySQL has them.

use crate::cells::{Cell, RowCells};
use crate::fault::Fault;
use mysql_async::{Row, Value};

fn value(row: &Row, column: usize) -> Result<Option<&Value>, Fault> {
    match row.as_ref(column) {
        Some(Value::NULL) => Ok(None),
        Some(value) => Ok(Some(value)),
        None => Err(Fault::Missing(format!("column {column} of an answer"))),
    }
}

/// Names the column and the kind of its value, not the value.
fn damaged(row: &Row, column: usize, kind: &str) -> Fault {
    let name = row.columns_ref().get(column).map(|column| column.name_str().into_owned()).unwrap_or_default();
    Fault::damaged(name, kind)
}

impl RowCells for Row {
    /// Statements that are not prepared return numbers as text.
    fn number(&self, column: usize) -> Result<Option<i64>, Fault> {
        let number = match value(self, column)? {
            None => return Ok(None),
            Some(Value::Int(number)) => Some(*number),
            Some(Value::UInt(number)) => i64::try_from(*number).ok(),
            Some(Value::Bytes(digits)) => {
                std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok())
            }
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| damaged(self, column, "no number in its range"))
    }

    fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        match self.bytes(column)? {
            None => Ok(None),
            Some(bytes) => std::str::from_utf8(bytes)
                .map(Some)
                .map_err(|_| damaged(self, column, "bytes that are no text")),
        }
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        match value(self, column)? {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(damaged(self, column, "neither text nor bytes")),
        }
    }
}

impl From<Cell<'_>> for Value {
    fn from(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Value::NULL,
            Cell::Number(number) => Value::Int(number),
            Cell::Id(id) => Value::Bytes(id.as_bytes().to_vec()),
            Cell::Text(text) => Value::Bytes(text.into_owned().into_bytes()),
            Cell::Bytes(bytes) => Value::Bytes(bytes.into_owned()),
        }
    }
}
