//! Reads whole tables page by page, as rows of cells: for data migrations and checks. A database server as one side of
//! a data migration.

use super::connection::ServerConnection;
use crate::cells::{Cell, CellValue, Cells, get};
use crate::data_migration::{
    COPY_QUEUES, Forked, MigrationSide, Notes, OPEN_SESSIONS, Portion, fitting, fork_statements,
    number_statement,
};
use crate::fault::Fault;
use crate::layout::{Column, Layout};
use async_trait::async_trait;
use punctual_core::limits::MOVING_PAGE_ROWS_MAX;
use punctual_core::time::Timestamp;

/// How a dialect names tables and columns.
pub(crate) trait ExportedTables: ServerConnection {
    const QUOTE: char;
    /// The type of whole numbers.
    const INTEGER: &'static str;

    fn names(table: &Layout, columns: &[Column]) -> String;

    /// The source from which a table's rows are read.
    fn read_from(table: &Layout) -> &'static str;

    /// The clauses for up to this many keys after another one, in the order of the key, and their values.
    fn behind<'a>(table: &Layout, after: Option<&[Cell<'a>]>, limit: usize) -> (String, Vec<Cell<'a>>);
}

/// The columns of a row.
pub(crate) fn read(table: &Layout, row: &impl crate::cells::RowCells) -> Result<Cells, Fault> {
    table.columns.iter().enumerate().map(|(place, column)| Cell::read(row, place, column.kind)).collect()
}

/// Up to this many rows after a key, ordered by key.
pub(crate) async fn page<C: ExportedTables>(
    connection: &mut C,
    table: &Layout,
    after: Option<&[Cell<'_>]>,
    limit: usize,
) -> Result<Vec<Cells>, Fault> {
    let (behind, values) = C::behind(table, after, limit);
    let sql = format!("SELECT {} FROM {} {behind}", C::names(table, table.columns), C::read_from(table));
    connection.query(&sql, values).await?.rows.iter().map(|row| read(table, row)).collect()
}

/// How many of the next rows make a page. Their sizes are queried first if rows may be large.
pub(crate) async fn rows_of_page<C: ExportedTables>(
    connection: &mut C,
    table: &Layout,
    after: Option<&[Cell<'_>]>,
) -> Result<usize, Fault> {
    let (quote, integer) = (C::QUOTE, C::INTEGER);
    let size = |column: &Column| format!("COALESCE(OCTET_LENGTH({quote}{}{quote}), 0)", column.name);
    let sizes: Vec<String> = table.documents().map(size).collect();
    if sizes.is_empty() {
        return Ok(MOVING_PAGE_ROWS_MAX);
    }
    let (behind, values) = C::behind(table, after, MOVING_PAGE_ROWS_MAX);
    let (sizes, from) = (sizes.join(" + "), C::read_from(table));
    let sql = format!("SELECT CAST({sizes} AS {integer}) FROM {from} {behind}");
    Ok(fitting(connection.query(&sql, values).await?.column::<u64>()?))
}

/// What a dialect adds to [`ServerSide`].
#[async_trait]
pub(crate) trait CopiedDatabase: Send {
    type Connection: ExportedTables;
    /// The kind of the database and the id of the store.
    const IDENTITY: &'static str;
    /// Sessions that sent a heartbeat within their lease, by the database's clock.
    const BEATING: &'static str;
    /// Creates the table of notes unless it exists.
    const MAKE_NOTES: &'static str;
    /// Given a name and a value.
    const PUT_NOTE: &'static str;
    const CHANGE_STORE_ID: &'static str;

    fn connection(&mut self) -> &mut Self::Connection;

    /// Runs a statement that is not prepared.
    async fn run(&mut self, sql: &str) -> Result<(), Fault>;

    /// Fails if another migration may use this database by now.
    async fn stay_alone(&mut self) -> Result<(), Fault>;

    /// Describes the connections of other processes; `None` if there are none.
    async fn others(&mut self) -> Result<Option<String>, Fault>;

    /// Whether the table of notes exists.
    async fn has_notes(&mut self) -> Result<bool, Fault>;

    /// Prepares for rows that are about to be inserted.
    async fn make_room(&mut self, _: &Layout, _: &[Cells]) -> Result<(), Fault> {
        Ok(())
    }

    async fn insert(&mut self, table: &Layout, rows: &[Cells]) -> Result<(), Fault>;

    /// The statement that sets the last number of a session.
    fn set_session_number(number: i64) -> String;

    async fn empty_tables(&mut self) -> Result<(), Fault>;

    /// See [`MigrationSide::settle`].
    async fn settle(&mut self) -> Result<(), Fault>;

    /// Lets other migrations use this database.
    async fn leave(&mut self) {}
}

/// A database server as one side of a data migration.
pub(crate) struct ServerSide<D: CopiedDatabase>(pub D);

impl<D: CopiedDatabase> ServerSide<D> {
    async fn counted(&mut self, sql: &str) -> Result<u64, Fault> {
        Ok(self.0.connection().query(sql, vec![]).await?.single::<i64>("a count")?.unsigned_abs())
    }

    async fn write_note(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let values = vec![name.into_cell(), value.into_cell()];
        self.0.connection().query(D::PUT_NOTE, values).await.map(drop)
    }

    async fn write(
        &mut self,
        Portion { table, rows, note: (name, value) }: Portion<'_>,
    ) -> Result<(), Fault> {
        if table.name == "numbers" {
            for row in rows {
                self.0.run(&number_statement(row, D::set_session_number)?).await?;
            }
        } else {
            self.0.insert(table, rows).await?;
        }
        self.write_note(name, value).await
    }

    async fn fork_in_transaction(&mut self, now: Timestamp) -> Result<Forked, Fault> {
        let sessions = self.counted(OPEN_SESSIONS).await?;
        for sql in fork_statements(now) {
            self.0.run(&sql).await?;
        }
        self.0.run(D::CHANGE_STORE_ID).await?;
        Ok(Forked { queues: self.0.connection().query(COPY_QUEUES, vec![]).await?.column()?, sessions })
    }

    /// Commits a transaction that was successful, and rolls back another one.
    async fn end<T: Send>(&mut self, done: Result<T, Fault>) -> Result<T, Fault> {
        let ended = self.0.run(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
        done.and_then(|done| ended.map(|()| done))
    }
}

#[async_trait]
impl<D: CopiedDatabase> MigrationSide for ServerSide<D> {
    async fn identity(&mut self) -> Result<String, Fault> {
        self.0.connection().query(D::IDENTITY, vec![]).await?.single("the row of punctual")
    }

    async fn users(&mut self) -> Result<Option<String>, Fault> {
        if let Some(others) = self.0.others().await? {
            return Ok(Some(others));
        }
        let beating = self.counted(D::BEATING).await?;
        Ok((beating > 0).then(|| {
            format!("{beating} worker sessions sent a heartbeat within their lease; leases expire soon after the last server has stopped")
        }))
    }

    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault> {
        self.counted(&format!("SELECT COUNT(*) FROM {}", D::Connection::read_from(table))).await
    }

    async fn page(
        &mut self,
        table: &'static Layout,
        after: Option<&[Cell<'_>]>,
    ) -> Result<Vec<Cells>, Fault> {
        self.0.stay_alone().await?;
        let connection = self.0.connection();
        let limit = rows_of_page(connection, table, after).await?;
        page(connection, table, after, limit).await
    }

    async fn notes(&mut self) -> Result<Notes, Fault> {
        if !self.0.has_notes().await? {
            return Ok(Notes::new());
        }
        let notes = self.0.connection().query("SELECT name, value FROM moving", vec![]).await?;
        notes.rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        self.0.run(D::MAKE_NOTES).await?;
        self.write_note(name, value).await
    }

    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault> {
        self.0.empty_tables().await?;
        let length = about_tables.len();
        self.0.run(&format!("DELETE FROM moving WHERE SUBSTR(name, 1, {length}) = '{about_tables}'")).await
    }

    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault> {
        self.0.stay_alone().await?;
        self.0.make_room(portion.table, portion.rows).await?;
        self.0.run("START TRANSACTION").await?;
        let written = self.write(portion).await;
        self.end(written).await
    }

    async fn settle(&mut self) -> Result<(), Fault> {
        self.0.settle().await
    }

    async fn release(&mut self) -> Result<(), Fault> {
        self.0.run("DROP TABLE IF EXISTS moving").await?;
        self.0.leave().await;
        Ok(())
    }

    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault> {
        self.0.run("START TRANSACTION").await?;
        let forked = self.fork_in_transaction(now).await;
        self.end(forked).await
    }
}
