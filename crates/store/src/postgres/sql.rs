//! Pieces of statements that follow from the description of the tables.

use crate::cells::ColumnKind;
use crate::layout::Column;

pub(crate) const fn type_of(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Id => "uuid",
        ColumnKind::Bytes => "bytea",
        ColumnKind::Text | ColumnKind::Document => "text",
        ColumnKind::Big => "bigint",
        ColumnKind::Int => "integer",
        ColumnKind::Small => "smallint",
        ColumnKind::Flag => "boolean",
    }
}

pub(crate) fn names<'a>(columns: impl IntoIterator<Item = &'a Column>) -> String {
    each(columns, ", ", |name| format!("\"{name}\""))
}

/// A parameter for each column, with an array of its values.
pub(crate) fn arrays(columns: &[Column]) -> String {
    let arrays = columns.iter().zip(1..).map(|(column, n)| format!("${n}::{}[]", type_of(column.kind)));
    format!("unnest({})", arrays.collect::<Vec<_>>().join(", "))
}

/// A phrase for each column.
pub(crate) fn each<'a>(
    columns: impl IntoIterator<Item = &'a Column>,
    between: &str,
    phrase: impl Fn(&str) -> String,
) -> String {
    columns.into_iter().map(|column| phrase(column.name)).collect::<Vec<_>>().join(between)
}
