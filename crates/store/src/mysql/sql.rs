//! Pieces of statements that follow from the description of the tables.

use super::connection::text_type;
use crate::cells::ColumnKind;
use crate::layout::{Column, Layout};

/// The name of a column in this schema.
pub(crate) fn column_name(table: &Layout, column: &Column) -> String {
    match (table.name, column.name) {
        ("live", "rank") => "`claim_rank`".to_owned(),
        (_, name) => format!("`{name}`"),
    }
}

pub(crate) fn names(table: &Layout, columns: &[Column]) -> String {
    each(table, columns, str::to_owned)
}

/// A phrase for each column.
pub(crate) fn each<'a>(
    table: &Layout,
    columns: impl IntoIterator<Item = &'a Column>,
    phrase: impl Fn(&str) -> String,
) -> String {
    columns.into_iter().map(|column| phrase(&column_name(table, column))).collect::<Vec<_>>().join(", ")
}

/// A list with these columns.
pub(crate) fn json_table(columns: &[Column]) -> String {
    let kind = |column: &Column| match column.kind {
        ColumnKind::Id => "CHAR(32)",
        ColumnKind::Text => text_type!("255"),
        ColumnKind::Document | ColumnKind::Bytes => "LONGTEXT CHARACTER SET utf8mb4",
        ColumnKind::Big | ColumnKind::Int | ColumnKind::Small | ColumnKind::Flag => "BIGINT",
    };
    let columns = columns.iter().enumerate();
    let columns =
        columns.map(|(place, column)| format!("`{}` {} PATH '$[{place}]'", column.name, kind(column)));
    format!("JSON_TABLE(?, '$[*]' COLUMNS ({})) AS given", columns.collect::<Vec<_>>().join(", "))
}

/// The value of a column in a list.
pub(crate) fn given(column: &Column) -> String {
    match column.kind {
        ColumnKind::Id => format!("UNHEX(given.`{}`)", column.name),
        _ => format!("given.`{}`", column.name),
    }
}

/// Joins a table to a list by these columns. The list is visited in the order in which it was sent.
pub(crate) fn join(table: &Layout, by: &[Column]) -> String {
    let equal =
        by.iter().map(|column| format!("{}.{} = {}", table.name, column_name(table, column), given(column)));
    let equal = equal.collect::<Vec<_>>().join(" AND ");
    format!("STRAIGHT_JOIN {} FORCE INDEX ({}) ON {equal}", table.name, index(table, by))
}

/// The index for a search by these columns.
fn index(table: &Layout, by: &[Column]) -> &'static str {
    match (table.name, by[0].name) {
        ("job_tags", "job") => "job_tags_job",
        ("job_keys", "job") => "job_keys_job",
        ("dead_letters", "job") => "dead_letters_occurrence",
        ("dependencies", "child") => "dependencies_child",
        _ => "PRIMARY",
    }
}
