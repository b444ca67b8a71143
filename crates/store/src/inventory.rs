//! Compares the tables of an existing database with those that our migrations create.

use std::collections::BTreeMap;

/// A database to which no migration was ever applied.
pub(crate) const NO_TABLES: &str =
    "there are no tables of Punctual in this database: run `punctual migrate up`";

/// Tables by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inventory(BTreeMap<String, TableInventory>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct TableInventory {
    /// The type of each column.
    columns: BTreeMap<String, String>,
    /// The definition of each index.
    indexes: BTreeMap<String, String>,
}

impl Inventory {
    pub fn add_column(&mut self, table: &str, column: impl Into<String>, holds: impl Into<String>) {
        self.0.entry(table.to_owned()).or_default().columns.insert(column.into(), holds.into());
    }

    pub fn add_index(&mut self, table: &str, index: impl Into<String>, definition: impl Into<String>) {
        self.0.entry(table.to_owned()).or_default().indexes.insert(index.into(), definition.into());
    }

    pub fn has(&self, table: &str) -> bool {
        self.0.contains_key(table)
    }

    /// Describes each difference in a sentence. Foreign tables and indexes are ignored. Foreign columns are
    /// reported, because our inserts do not set columns that they do not know.
    pub fn problems(&self, expected: &Inventory) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, expected) in &expected.0 {
            match self.0.get(name) {
                None => problems.push(format!("the table {name} is missing")),
                Some(found) => found.differences(name, expected, &mut problems),
            }
        }
        problems
    }
}

impl TableInventory {
    fn differences(&self, name: &str, expected: &TableInventory, problems: &mut Vec<String>) {
        for (column, holds) in &expected.columns {
            match self.columns.get(column) {
                None => problems.push(format!("the column {name}.{column} is missing")),
                Some(found) if found != holds => {
                    problems.push(format!("the column {name}.{column} holds {found}, not {holds}"));
                }
                Some(_) => {}
            }
        }
        for column in self.columns.keys().filter(|column| !expected.columns.contains_key(*column)) {
            problems.push(format!("the column {name}.{column} is not part of the schema"));
        }
        for (index, definition) in &expected.indexes {
            match self.indexes.get(index) {
                None => problems.push(format!("the index {index} of {name} is missing")),
                Some(found) if found != definition => {
                    problems.push(format!("the index {index} of {name} is {found}, not {definition}"));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_listed() {
        let mut expected = Inventory::default();
        expected.add_column("jobs", "id", "uuid");
        expected.add_column("jobs", "lane", "bigint");
        expected.add_column("live", "job", "uuid");
        expected.add_index("jobs", "jobs_lane", "(lane)");
        expected.add_index("jobs", "jobs_pkey", "(id)");
        let mut found = Inventory::default();
        found.add_column("jobs", "id", "text");
        found.add_column("jobs", "foo", "text");
        found.add_index("jobs", "jobs_pkey", "(foo)");
        found.add_index("jobs", "jobs_of_mine", "(foo)");
        found.add_column("theirs", "id", "uuid");
        let problems = [
            "the column jobs.id holds text, not uuid",
            "the column jobs.lane is missing",
            "the column jobs.foo is not part of the schema",
            "the index jobs_lane of jobs is missing",
            "the index jobs_pkey of jobs is (foo), not (id)",
            "the table live is missing",
        ];
        assert_eq!(found.problems(&expected), problems);
        assert_eq!(expected.problems(&expected), Vec::<String>::new());
    }
}
