//! Compares the tables of a database with those that our migrations create. These are parsed from the text
//! of the migrations, because these servers cannot roll back DDL statements.

use super::connection::Connection;
use crate::cells::get;
use crate::fault::Fault;
use crate::inventory::Inventory;

const COLUMNS: &str = "SELECT table_name, column_name, \
     CONCAT(LOWER(data_type), IF(is_nullable = 'NO', ' not null', '')) \
     FROM information_schema.columns WHERE table_schema = DATABASE()";
const INDEXES: &str = "SELECT table_name, index_name, \
     CONCAT(IF(MIN(non_unique) = 0, 'unique ', ''), GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ')) \
     FROM information_schema.statistics WHERE table_schema = DATABASE() GROUP BY table_name, index_name";
const FOREIGN_TABLES: &str = "SELECT table_name, engine, table_collation FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' \
     AND (engine <> 'InnoDB' OR table_collation NOT IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin'))";

/// The differences from the tables that these statements create.
pub(super) async fn problems<'s>(
    connection: &mut Connection,
    statements: impl Iterator<Item = &'s str>,
) -> Result<Vec<String>, Fault> {
    let mut expected = Inventory::default();
    for statement in statements {
        add_table(&mut expected, statement);
    }
    let mut problems = inventory(connection).await?.problems(&expected);
    for row in connection.all(FOREIGN_TABLES, vec![]).await? {
        let (table, engine, collation): (String, String, String) =
            (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
        if expected.has(&table) {
            problems.push(format!(
                "the table {table} uses {engine} with {collation}, which differs from the schema"
            ));
        }
    }
    Ok(problems)
}

async fn inventory(connection: &mut Connection) -> Result<Inventory, Fault> {
    let mut inventory = Inventory::default();
    for row in connection.all(COLUMNS, vec![]).await? {
        let (table, column, holds): (String, String, String) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
        inventory.add_column(&table, column, holds);
    }
    for row in connection.all(INDEXES, vec![]).await? {
        let (table, index, columns): (String, String, String) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
        inventory.add_index(&table, index, columns);
    }
    Ok(inventory)
}

/// Parses a definition in our own format: each column and each key on a separate line.
fn add_table(inventory: &mut Inventory, statement: &str) {
    if let Some((table, column)) =
        statement.trim_start().strip_prefix("ALTER TABLE ").and_then(|rest| rest.split_once(" ADD COLUMN "))
    {
        return add_line(inventory, table, column);
    }
    let Some(rest) = statement.trim_start().strip_prefix("CREATE TABLE IF NOT EXISTS ") else { return };
    let Some((table, body)) = rest.split_once(" (\n") else { return };
    for line in body.lines().map(str::trim).take_while(|line| !line.starts_with(')')) {
        add_line(inventory, table, line.trim_end_matches(','));
    }
}

/// A column or a key.
fn add_line(inventory: &mut Inventory, table: &str, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let columns = || line.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')')).replace('`', "");
    match words.as_slice() {
        [] | ["--", ..] => {}
        ["PRIMARY", ..] => inventory.add_index(table, "PRIMARY", format!("unique {}", columns())),
        ["UNIQUE", "KEY", name, ..] => inventory.add_index(table, *name, format!("unique {}", columns())),
        ["KEY", name, ..] => inventory.add_index(table, *name, columns()),
        [name, kind, ..] => {
            let kind = kind.split('(').next().unwrap_or_default().to_lowercase();
            let not_null = if line.contains(" NOT NULL") { " not null" } else { "" };
            inventory.add_column(table, name.replace('`', ""), format!("{kind}{not_null}"));
        }
        [other] => inventory.add_column(table, *other, "nothing that can be read"),
    }
}
