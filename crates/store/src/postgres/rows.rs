//! Values of rows and parameters as PostgreSQL's driver has them.

use crate::cells::{Cell, CellRead, CellValue, RowCells};
use crate::fault::Fault;
use crate::row_list::List;
use postgres_protocol::types::{ArrayDimension, array_to_sql};
use punctual_core::ids::JobId;
use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};
use uuid::Uuid;

type ColumnFailure = Box<dyn Error + Sync + Send>;

/// A number or a flag of any width.
struct AnyNumber(i64);

impl<'a> FromSql<'a> for AnyNumber {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, ColumnFailure> {
        Ok(AnyNumber(match *kind {
            Type::BOOL => bool::from_sql(kind, raw)?.into(),
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8)
    }
}

/// The bytes of an id or of a digest.
struct AnyBytes<'a>(&'a [u8]);

impl<'a> FromSql<'a> for AnyBytes<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, ColumnFailure> {
        Ok(AnyBytes(raw))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::BYTEA | Type::UUID)
    }
}

fn value<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<Option<T>, Fault> {
    row.try_get(column).map_err(|error| {
        let name = row.columns().get(column).map_or("a column", |column| column.name());
        Fault::damaged(name.to_owned(), format!("a value ({error})"))
    })
}

impl RowCells for Row {
    fn number(&self, column: usize) -> Result<Option<i64>, Fault> {
        Ok(value::<AnyNumber>(self, column)?.map(|number| number.0))
    }

    fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        value(self, column)
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        Ok(value::<AnyBytes<'_>>(self, column)?.map(|bytes| bytes.0))
    }
}

/// A cell is sent with the type of its parameter or array.
impl ToSql for Cell<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, ColumnFailure> {
        match self {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Number(number) => match *kind {
                Type::BOOL => (*number != 0).to_sql(kind, out),
                Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
                Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
                _ => number.to_sql(kind, out),
            },
            Cell::Id(id) => uuid(*id).to_sql(kind, out),
            Cell::Text(text) => clean(text).to_sql(kind, out),
            Cell::Bytes(bytes) if *kind == Type::UUID => Uuid::from_slice(bytes)?.to_sql(kind, out),
            Cell::Bytes(bytes) => bytes.as_ref().to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// One column of a list, as an array.
#[derive(Debug)]
pub(crate) struct ListColumn<'a> {
    pub list: Arc<List<'a>>,
    pub index: usize,
}

impl ToSql for ListColumn<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, ColumnFailure> {
        let Kind::Array(member) = kind.kind() else { return Err(format!("{kind} is no array").into()) };
        let dimension = ArrayDimension { len: i32::try_from(self.list.rows().len())?, lower_bound: 1 };
        let cells = self.list.rows().map(|row| &row[self.index]);
        let write = |cell: &Cell<'_>, out: &mut BytesMut| {
            Ok(match cell.to_sql(member, out)? {
                IsNull::Yes => postgres_protocol::IsNull::Yes,
                IsNull::No => postgres_protocol::IsNull::No,
            })
        };
        array_to_sql(Some(dimension), member.oid(), cells, write, out)?;
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(kind.kind(), Kind::Array(_))
    }

    to_sql_checked!();
}

impl<'a> CellValue<'a> for Uuid {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self> {
        Ok(JobId::from_row(row, column, what)?.map(uuid))
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Id(JobId::from_bytes(self.into_bytes()))
    }
}

/// A job's id as a parameter.
pub(crate) fn uuid(job: JobId) -> Uuid {
    Uuid::from_bytes(*job.as_bytes())
}

/// A text that PostgreSQL accepts: it cannot store NUL, which handlers may write.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{FFFD}")) } else { Cow::Borrowed(text) }
}
