//! Single values of rows, the same for every database: which values a column may hold, and how they are read and
//! written. Each driver only defines how its own rows return numbers, texts and bytes.

use crate::codes::Code;
use crate::fault::Fault;
use punctual_core::ids::{Epoch, JobId, SessionId};
use punctual_core::job::Priority;
use punctual_core::notes::Percent;
use punctual_core::ports::AuditId;
use punctual_core::time::Timestamp;
use std::borrow::Cow;
use std::marker::PhantomData;

/// One value. Flags are numbers, because some databases store true as 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Number(i64),
    /// A job's id, which is written without a copy on the heap. Rows are read as bytes.
    Id(JobId),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

/// A row that was read, or that is copied between databases.
pub(crate) type Cells = Vec<Cell<'static>>;

/// A row as its driver returns it. `None` is NULL.
pub(crate) trait RowCells {
    fn number(&self, column: usize) -> Result<Option<i64>, Fault>;
    fn text(&self, column: usize) -> Result<Option<&str>, Fault>;
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault>;
}

/// A value that was read; `None` is NULL.
pub(crate) type CellRead<T> = Result<Option<T>, Fault>;

/// A value that a column can hold.
pub(crate) trait CellValue<'a>: Sized {
    /// `what` names the column in errors.
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self>;

    fn into_cell(self) -> Cell<'a>;
}

/// A column of a query whose meaning is clear from its position.
pub(crate) fn get<'a, T: CellValue<'a>>(
    row: &'a (impl RowCells + ?Sized),
    column: usize,
) -> Result<T, Fault> {
    read(row, column, "a column")
}

/// A column that is named in errors.
pub(crate) fn read<'a, T: CellValue<'a>>(
    row: &'a (impl RowCells + ?Sized),
    column: usize,
    what: &'static str,
) -> Result<T, Fault> {
    T::from_row(row, column, what)?.ok_or_else(|| Fault::damaged(what, "NULL"))
}

fn in_range<T: TryFrom<i64>>(number: i64, what: &'static str) -> Result<T, Fault> {
    T::try_from(number).map_err(|_| Fault::damaged(what, number))
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl<'a> CellValue<'a> for $type {
            fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self> {
                row.number(column)?.map(|number| in_range(number, what)).transpose()
            }

            fn into_cell(self) -> Cell<'a> {
                Cell::Number(i64::try_from(self).unwrap_or(i64::MAX))
            }
        }
    )*};
}
numbers!(i64, i32, i16, u64, u32, u16, u8, usize);

/// Values that are stored as a simpler one.
macro_rules! stored_as {
    ($($type:ty as $stored:ty: |$read:ident, $what:ident| $from:expr, |$write:ident| $to:expr;)*) => {$(
        impl<'a> CellValue<'a> for $type {
            fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, $what: &'static str) -> CellRead<Self> {
                let Some($read) = <$stored as CellValue>::from_row(row, column, $what)? else { return Ok(None) };
                Ok(Some($from))
            }

            fn into_cell(self) -> Cell<'a> {
                let $write = self;
                CellValue::into_cell($to)
            }
        }
    )*};
}
stored_as! {
    bool as i64: |number, _what| number != 0, |flag| i64::from(flag);
    Timestamp as i64: |micros, what| Timestamp::stored(micros).ok_or_else(|| Fault::damaged(what, micros))?,
        |time| time.to_stored();
    AuditId as JobId: |id, _what| AuditId::from_bytes(*id.as_bytes()), |id| JobId::from_bytes(*id.as_bytes());
    SessionId as i64: |number, _what| SessionId(number), |session| session.0;
    Epoch as u32: |number, _what| Epoch(number), |epoch| epoch.0;
    Percent as u16: |number, what| Percent::from_hundredths(number).ok_or_else(|| Fault::damaged(what, number))?,
        |percent| percent.hundredths();
    Priority as u8: |bits, what| Priority::new(bits).ok_or_else(|| Fault::damaged(what, bits))?, |priority| priority.get();
}

impl<'a> CellValue<'a> for String {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, _what: &'static str) -> CellRead<Self> {
        Ok(row.text(column)?.map(str::to_owned))
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Text(Cow::Owned(self))
    }
}

impl<'a, T: Code> CellValue<'a> for T {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self> {
        row.number(column)?.map(|code| <T as Code>::read(code, what)).transpose()
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Number(self.code())
    }
}

impl<'a> CellValue<'a> for JobId {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self> {
        Ok(<[u8; 16]>::from_row(row, column, what)?.map(JobId::from_bytes))
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Id(self)
    }
}

impl<'a> CellValue<'a> for &'a str {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, _what: &'static str) -> CellRead<Self> {
        row.text(column)
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Text(Cow::Borrowed(self))
    }
}

impl<'a> CellValue<'a> for Cow<'a, str> {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, _what: &'static str) -> CellRead<Self> {
        Ok(row.text(column)?.map(Cow::Borrowed))
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Text(self)
    }
}

impl<'a> CellValue<'a> for &'a [u8] {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, _what: &'static str) -> CellRead<Self> {
        row.bytes(column)
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Bytes(Cow::Borrowed(self))
    }
}

impl<'a> CellValue<'a> for Vec<u8> {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, _what: &'static str) -> CellRead<Self> {
        Ok(row.bytes(column)?.map(<[u8]>::to_vec))
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Bytes(Cow::Owned(self))
    }
}

impl<'a, const N: usize> CellValue<'a> for [u8; N] {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self> {
        let sized = |bytes: &[u8]| {
            bytes.try_into().map_err(|_| Fault::damaged(what, format!("{} bytes", bytes.len())))
        };
        row.bytes(column)?.map(sized).transpose()
    }

    fn into_cell(self) -> Cell<'a> {
        Cell::Bytes(Cow::Owned(self.to_vec()))
    }
}

impl<'a, T: CellValue<'a>> CellValue<'a> for Option<T> {
    fn from_row<R: RowCells + ?Sized>(row: &'a R, column: usize, what: &'static str) -> CellRead<Self> {
        T::from_row(row, column, what).map(Some)
    }

    fn into_cell(self) -> Cell<'a> {
        self.map_or(Cell::Null, CellValue::into_cell)
    }
}

/// The type of a column: how databases store it, and the value that it holds.
pub(crate) trait ColumnType {
    const KIND: ColumnKind;
    type Value<'a>: CellValue<'a>;
}

/// How databases store a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// The 16 bytes of the id of a job or an audit entry.
    Id,
    Bytes,
    /// A name or another short text.
    Text,
    /// A text that may be long.
    Document,
    Big,
    Int,
    Small,
    Flag,
}

macro_rules! column_types {
    ($($(#[$doc:meta])* $type:ident: $kind:ident of $value:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $type;

        impl ColumnType for $type {
            const KIND: ColumnKind = ColumnKind::$kind;
            type Value<'a> = $value;
        }
    )*};
}
column_types! {
    Id: Id of JobId;
    AuditKey: Id of AuditId;
    /// A SHA-256.
    Digest: Bytes of [u8; 32];
    Big: Big of i64;
    Time: Big of Timestamp;
    /// An occurrence number or another one of 32 bits.
    Number: Big of u32;
    /// A counter that never falls below zero.
    Count: Big of u64;
    Session: Big of SessionId;
    /// A version or an attempt.
    Int: Int of u32;
    Lease: Int of Epoch;
    HttpStatus: Int of u16;
    Bits: Small of u8;
    Rank: Small of Priority;
    Hundredths: Small of Percent;
    Shard: Small of i64;
    Flag: Flag of bool;
}

/// A name or another short text.
#[derive(Debug)]
pub(crate) struct ShortText;

impl ColumnType for ShortText {
    const KIND: ColumnKind = ColumnKind::Text;
    type Value<'a> = Cow<'a, str>;
}

/// A text that may be long.
#[derive(Debug)]
pub(crate) struct Document;

impl ColumnType for Document {
    const KIND: ColumnKind = ColumnKind::Document;
    type Value<'a> = Cow<'a, str>;
}

/// An enum as a small integer.
#[derive(Debug)]
pub(crate) struct Coded<T>(PhantomData<T>);

impl<T: Code> ColumnType for Coded<T> {
    const KIND: ColumnKind = ColumnKind::Small;
    type Value<'a> = T;
}

impl<T: ColumnType> ColumnType for Option<T> {
    const KIND: ColumnKind = T::KIND;
    type Value<'a> = Option<T::Value<'a>>;
}

/// Rows that are copied or checked as plain cells.
impl RowCells for [Cell<'_>] {
    fn number(&self, column: usize) -> Result<Option<i64>, Fault> {
        match &self[column] {
            Cell::Null => Ok(None),
            Cell::Number(number) => Ok(Some(*number)),
            other => Err(Fault::damaged("a column", other.kind())),
        }
    }

    fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        match &self[column] {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            other => Err(Fault::damaged("a column", other.kind())),
        }
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        match &self[column] {
            Cell::Null => Ok(None),
            Cell::Id(id) => Ok(Some(id.as_bytes())),
            Cell::Bytes(bytes) => Ok(Some(bytes)),
            other => Err(Fault::damaged("a column", other.kind())),
        }
    }
}

impl Cell<'_> {
    /// A column of this kind.
    pub fn read(row: &impl RowCells, column: usize, kind: ColumnKind) -> Result<Self, Fault> {
        let cell = match kind {
            ColumnKind::Id | ColumnKind::Bytes => {
                row.bytes(column)?.map(|bytes| Cell::Bytes(bytes.to_vec().into()))
            }
            ColumnKind::Text | ColumnKind::Document => {
                row.text(column)?.map(|text| Cell::Text(text.to_owned().into()))
            }
            ColumnKind::Big | ColumnKind::Int | ColumnKind::Small | ColumnKind::Flag => {
                row.number(column)?.map(Cell::Number)
            }
        };
        Ok(cell.unwrap_or(Cell::Null))
    }

    /// Versions, attempts and epochs that no correct caller reaches saturate.
    pub fn stored_as(self, kind: ColumnKind) -> Self {
        match self {
            Cell::Number(number) if kind == ColumnKind::Int => Cell::Number(number.min(i64::from(i32::MAX))),
            cell => cell,
        }
    }

    /// A description for error messages, which do not repeat texts.
    pub fn kind(&self) -> String {
        match self {
            Cell::Null => "NULL".to_owned(),
            Cell::Number(number) => number.to_string(),
            Cell::Text(_) => "a text".to_owned(),
            Cell::Id(_) | Cell::Bytes(_) => "bytes that are no text".to_owned(),
        }
    }
}
