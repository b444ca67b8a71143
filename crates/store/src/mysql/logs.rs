//! The tables of log lines: see [`crate::server::logs`].

use super::connection::Connection;
use super::lists::{Insertion, list};
use super::maintenance::SharedMaintenance;
use super::partitions::{FIRST, Partition, PartitionedTable, REST};
use super::sql::names;
use crate::cells::{get, read};
use crate::fault::Fault;
use crate::layout::LINES;
use crate::server::logs::{LogTables, SizedPartition, line_rows};
use async_trait::async_trait;
use mysql_async::Value;
use punctual_core::ports::LogLine;
use std::sync::LazyLock;

/// Appends log lines.
pub(crate) type MySqlLogs = crate::server::logs::Logs<Connection>;

static INSERT_LINES: LazyLock<Insertion> = LazyLock::new(|| Insertion {
    head: format!("INSERT INTO log_lines ({})", names(&LINES, LINES.columns)),
    columns: LINES.columns.len(),
    tail: String::new(),
});
/// MySQL would return cached sizes that may be a day old.
const FRESH_SIZES: &str = "SET @sizes = 'fresh' /*!80000 , SESSION information_schema_stats_expiry = 0 */";
/// The result is as old as the server's statistics, which are updated after a tenth of the rows has
/// changed.
const SIZES: &str = "SELECT partition_name, partition_description, table_rows, \
     CAST(COALESCE(data_length + index_length, 0) AS SIGNED) \
     FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'log_lines' \
     AND partition_name IS NOT NULL ORDER BY partition_ordinal_position";

#[async_trait]
impl LogTables for Connection {
    const COUNT_LINES: &'static str = concat!(
        "SELECT log_lines.job, log_lines.occurrence, log_lines.attempt, COUNT(*), \
         CAST(SUM(LENGTH(log_lines.message)) AS SIGNED), MAX(log_lines.number) FROM ",
        list!(0 job id, 1 occurrence int, 2 attempt int),
        " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) \
         AND log_lines.occurrence = given.occurrence AND log_lines.attempt = given.attempt \
         GROUP BY log_lines.job, log_lines.occurrence, log_lines.attempt"
    );
    const REMOVE_LINES: &'static [&'static str] = &[
        Self::COUNT_LINES,
        concat!(
            "DELETE log_lines FROM ",
            list!(0 job id, 1 occurrence int, 2 attempt int),
            " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) \
             AND log_lines.occurrence = given.occurrence AND log_lines.attempt = given.attempt"
        ),
    ];
    const ENDED: &'static str = "SELECT ended.place, ended.job, ended.occurrence, ended.attempt, ended.completed_at, \
         EXISTS (SELECT 1 FROM log_lines FORCE INDEX (PRIMARY) WHERE log_lines.job = ended.job \
           AND log_lines.occurrence = ended.occurrence AND log_lines.attempt = ended.attempt) \
         FROM (SELECT place, job, occurrence, attempt, completed_at FROM history FORCE INDEX (PRIMARY) WHERE place > ? \
           ORDER BY place LIMIT ?) AS ended ORDER BY ended.place";
    const NUMBER: &'static str = "SELECT at FROM probe WHERE id = ?";
    const RAISE_NUMBER: &'static str =
        "INSERT INTO probe (id, at) VALUES (?, ?) ON DUPLICATE KEY UPDATE at = GREATEST(at, VALUES(at))";

    async fn insert_lines(&mut self, _: &SharedMaintenance, lines: &[(i64, LogLine)]) -> Result<(), Fault> {
        let rows = line_rows(lines);
        let rows = rows.rows().map(|row| row.iter().cloned().map(Value::from).collect()).collect();
        for statement in INSERT_LINES.of(rows) {
            self.run(&statement.sql, statement.values).await?;
        }
        self.commit().await
    }

    /// Every time has a partition.
    fn forget_partitions(_: &SharedMaintenance) {}

    async fn sizes(&mut self) -> Result<(u64, Vec<SizedPartition<Partition>>), Fault> {
        self.run_text(FRESH_SIZES).await?;
        let (mut total, mut sizes) = (0, Vec::new());
        for row in self.all(SIZES, vec![]).await? {
            let (name, bytes): (String, u64) = (get(&row, 0)?, read(&row, 3, "a size")?);
            total += bytes;
            if name != FIRST && name != REST {
                let partition = Partition::read(PartitionedTable::Lines, &row)?;
                sizes.push(SizedPartition { ends: partition.ends, partition, bytes });
            }
        }
        Ok((total, sizes))
    }
}
