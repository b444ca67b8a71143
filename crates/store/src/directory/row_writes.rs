//! The statements that write one row of the directory. They follow from the layouts of its tables, whose key is `id`,
//! and from what a dialect spells differently.

use crate::cells::Cell;
use crate::layout::{Column, DOCUMENTS, Layout, SECRETS, TOKENS, USERS};
use crate::server::connection::{Argument, ServerCall};
use std::collections::BTreeMap;

const TABLES: [Layout; 4] = [TOKENS, USERS, SECRETS, DOCUMENTS];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowWrite {
    /// Whether or not the key exists.
    Put,
    /// Fails if the key exists.
    Add,
    /// Unless the key exists.
    AddIfNew,
    /// If the row with the same key is still as expected.
    Replace,
    /// Given the key alone.
    Remove,
    /// If the row is still as expected.
    RemoveExpected,
}

impl RowWrite {
    const ALL: [RowWrite; 6] =
        [Self::Put, Self::Add, Self::AddIfNew, Self::Replace, Self::Remove, Self::RemoveExpected];

    /// Whether it writes this column. The last use of a replaced token stays.
    fn sets(self, column: &Column) -> bool {
        match self {
            RowWrite::Put | RowWrite::Add | RowWrite::AddIfNew => true,
            RowWrite::Replace => !matches!(column.name, "id" | "last_used_at"),
            RowWrite::Remove | RowWrite::RemoveExpected => false,
        }
    }

    /// Whether this column must have the value that the caller expects. The version and the ciphertext of a secret stand
    /// for all of it, and documents were compared when they were locked.
    fn compares(self, table: &Layout, column: &Column) -> bool {
        matches!(self, RowWrite::Replace | RowWrite::RemoveExpected)
            && match table.name {
                "tokens" | "users" => !matches!(column.name, "id" | "created_at" | "last_used_at"),
                "secrets" => matches!(column.name, "version" | "sealed"),
                _ => false,
            }
    }

    const fn has_condition(self) -> bool {
        matches!(self, RowWrite::Replace | RowWrite::Remove | RowWrite::RemoveExpected)
    }
}

/// What the dialects spell differently.
pub(crate) struct RowDialect {
    /// The parameter with this number, from 1.
    pub parameter: fn(usize) -> String,
    /// Compares two values that may be NULL.
    pub is_same: &'static str,
    /// Inserts a row unless its key exists: the verb, and the end of the statement.
    pub insert_if_new: (&'static str, &'static str),
    /// Overwrites columns if the key of an inserted row exists.
    pub overwrite: &'static str,
    /// The inserted value of a column, where columns are overwritten.
    pub inserted: fn(&str) -> String,
    /// Counts the written rows.
    pub counted: &'static str,
}

/// The statements of a dialect, by table.
pub(crate) struct RowWrites(BTreeMap<(&'static str, RowWrite), String>);

impl RowWrites {
    pub fn of(dialect: &RowDialect) -> Self {
        let of_table = |table: Layout| {
            RowWrite::ALL.map(|write| ((table.name, write), dialect.statement(&table, write)))
        };
        RowWrites(TABLES.into_iter().flat_map(of_table).collect())
    }

    /// Writes one row, or none. Both rows begin with the key.
    pub fn call<'a>(
        &'static self,
        table: &Layout,
        write: RowWrite,
        row: &[Cell<'a>],
        expected: &[Cell<'a>],
    ) -> ServerCall<'a> {
        let columns = || table.columns.iter();
        let set = columns().zip(row).filter(|(column, _)| write.sets(column));
        let key = write.has_condition().then_some((&table.columns[0], &row[0]));
        let compared = columns().zip(expected).filter(|(column, _)| write.compares(table, column));
        let cells = set.chain(key).chain(compared).map(|(_, cell)| Argument::Value(cell.clone()));
        ServerCall::new(&self.0[&(table.name, write)], cells)
    }
}

impl RowDialect {
    fn statement(&self, table: &Layout, write: RowWrite) -> String {
        let mut parameters = (1..).map(self.parameter);
        let mut next = || parameters.next().unwrap_or_default();
        let names = || table.columns.iter().map(|column| column.name);
        let row = format!("INTO {} ({})", table.name, names().collect::<Vec<_>>().join(", "));
        let mut values =
            || format!("{row} VALUES ({})", names().map(|_| next()).collect::<Vec<_>>().join(", "));
        let start = match write {
            RowWrite::Put => {
                let set = names().skip(1).map(|name| format!("{name} = {}", (self.inserted)(name)));
                format!("INSERT {} {} {}", values(), self.overwrite, set.collect::<Vec<_>>().join(", "))
            }
            RowWrite::Add => format!("INSERT {}", values()),
            RowWrite::AddIfNew => format!("{} {}{}", self.insert_if_new.0, values(), self.insert_if_new.1),
            RowWrite::Replace => {
                let set = table.columns.iter().filter(|column| write.sets(column));
                let set = set.map(|column| format!("{} = {}", column.name, next())).collect::<Vec<_>>();
                format!("UPDATE {} SET {}", table.name, set.join(", "))
            }
            RowWrite::Remove | RowWrite::RemoveExpected => format!("DELETE FROM {}", table.name),
        };
        let mut condition = String::new();
        if write.has_condition() {
            condition = format!(" WHERE id = {}", next());
            for column in table.columns.iter().filter(|column| write.compares(table, column)) {
                condition += &format!(" AND {} {} {}", column.name, self.is_same, next());
            }
        }
        format!("{start}{condition}{}", self.counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    static WRITES: LazyLock<RowWrites> = LazyLock::new(|| {
        RowWrites::of(&RowDialect {
            parameter: |n| format!("${n}"),
            is_same: "IS NOT DISTINCT FROM",
            insert_if_new: ("INSERT", " ON CONFLICT (id) DO NOTHING"),
            overwrite: "ON CONFLICT (id) DO UPDATE SET",
            inserted: |column| format!("excluded.{column}"),
            counted: " RETURNING 1",
        })
    });

    /// The statement, and its values: the new row has the numbers from 0, the expected one those from 10.
    fn call(table: &Layout, write: RowWrite) -> (&'static str, Vec<i64>) {
        let cells = |first: i64| (first..).map(Cell::Number).take(table.columns.len()).collect::<Vec<_>>();
        let call = WRITES.call(table, write, &cells(0), &cells(10));
        let number = |argument: &Argument<'_>| match argument {
            Argument::Value(Cell::Number(number)) => *number,
            other => panic!("{other:?}"),
        };
        (call.sql, call.arguments.iter().map(number).collect())
    }

    #[test]
    fn a_replaced_token_keeps_its_last_use_and_must_be_as_expected() {
        let sql = "UPDATE tokens SET secret_sha256 = $1, role = $2, created_at = $3, expires_at = $4, about = $5 \
             WHERE id = $6 AND secret_sha256 IS NOT DISTINCT FROM $7 AND role IS NOT DISTINCT FROM $8 \
             AND expires_at IS NOT DISTINCT FROM $9 AND about IS NOT DISTINCT FROM $10 RETURNING 1";
        let values = vec![1, 2, 3, 4, 6, 0, 11, 12, 14, 16];
        assert_eq!(call(&TOKENS, RowWrite::Replace), (sql, values));
    }

    #[test]
    fn a_removed_secret_must_have_the_expected_version_and_text() {
        let sql = "DELETE FROM secrets WHERE id = $1 AND version IS NOT DISTINCT FROM $2 \
             AND sealed IS NOT DISTINCT FROM $3 RETURNING 1";
        assert_eq!(call(&SECRETS, RowWrite::RemoveExpected), (sql, vec![0, 11, 13]));
    }

    #[test]
    fn a_put_row_overwrites_all_columns_but_its_key() {
        let sql = "INSERT INTO documents (id, version, body) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET version = excluded.version, body = excluded.body RETURNING 1";
        assert_eq!(call(&DOCUMENTS, RowWrite::Put), (sql, vec![0, 1, 2]));
    }
}
