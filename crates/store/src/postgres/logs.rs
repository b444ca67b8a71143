//! The tables of log lines: see [`crate::server::logs`]. Commits of lines do not wait for the disk: a crash
//! of the database may lose the lines of the last moment, a crash of a node does not.

use super::partitions::{Partition, PartitionedTable};
use super::sql::{arrays, names};
use super::tables::SharedDatabase;
use super::tables::read_set::columns;
use super::wire::{StatementCall, TransactionFrame, Wire};
use crate::cells::read;
use crate::fault::Fault;
use crate::layout::LINES;
use crate::server::logs::{LogTables, SizedPartition, line_rows};
use async_trait::async_trait;
use punctual_core::ports::LogLine;
use std::sync::LazyLock;

/// Appends log lines.
pub(crate) type PostgresLogs = crate::server::logs::Logs<Wire>;

const DO_NOT_WAIT: &str = "SET LOCAL synchronous_commit = off";
static INSERT_LINES: LazyLock<String> = LazyLock::new(|| {
    format!("INSERT INTO lines ({}) SELECT * FROM {}", names(LINES.columns), arrays(LINES.columns))
});
const SIZES: &str = "SELECT name, starts, ends, coalesce(pg_total_relation_size(to_regclass(name)), 0)::bigint \
     FROM partitions WHERE parent = 'lines' ORDER BY starts";

#[async_trait]
impl LogTables for Wire {
    const COUNT_LINES: &'static str = "SELECT lines.job, lines.occurrence, lines.attempt, count(*), \
         sum(octet_length(lines.message))::bigint, max(lines.number) \
         FROM unnest($1::uuid[], $2::bigint[], $3::integer[]) AS wanted(job, occurrence, attempt) JOIN lines \
         ON lines.job = wanted.job AND lines.occurrence = wanted.occurrence AND lines.attempt = wanted.attempt \
         GROUP BY lines.job, lines.occurrence, lines.attempt";
    const REMOVE_LINES: &'static [&'static str] = &["WITH gone AS (DELETE FROM lines \
           USING unnest($1::uuid[], $2::bigint[], $3::integer[]) AS ended(job, occurrence, attempt) \
           WHERE lines.job = ended.job AND lines.occurrence = ended.occurrence AND lines.attempt = ended.attempt \
           RETURNING octet_length(lines.message) AS bytes) \
         SELECT NULL, NULL, NULL, count(*), coalesce(sum(bytes), 0)::bigint FROM gone"];
    const ENDED: &'static str = "SELECT ended.place, ended.job, ended.occurrence, ended.attempt, ended.completed_at, \
         EXISTS (SELECT 1 FROM lines WHERE lines.job = ended.job AND lines.occurrence = ended.occurrence \
           AND lines.attempt = ended.attempt) \
         FROM (SELECT place, job, occurrence, attempt, completed_at FROM history WHERE place > $1 \
           ORDER BY place LIMIT $2) AS ended ORDER BY ended.place";
    const NUMBER: &'static str = "SELECT at FROM probe WHERE id = $1";
    const RAISE_NUMBER: &'static str = "INSERT INTO probe (id, at) VALUES ($1, $2) \
         ON CONFLICT (id) DO UPDATE SET at = greatest(probe.at, excluded.at)";

    async fn insert_lines(&mut self, shared: &SharedDatabase, lines: &[(i64, LogLine)]) -> Result<(), Fault> {
        if lines.is_empty() {
            return Ok(());
        }
        shared.partitions.ensure(PartitionedTable::Lines, lines.iter().map(|(number, _)| *number)).await?;
        let insert = StatementCall { sql: &INSERT_LINES, parameters: columns(line_rows(lines)) };
        self.run(TransactionFrame::BeginAndCommit, vec![StatementCall::new(DO_NOT_WAIT, []), insert])
            .await
            .map(drop)
    }

    fn forget_partitions(shared: &SharedDatabase) {
        shared.partitions.forget();
    }

    async fn sizes(&mut self) -> Result<(u64, Vec<SizedPartition<Partition>>), Fault> {
        let (mut total, mut sizes) = (0, Vec::new());
        for row in self.run_one(StatementCall::new(SIZES, [])).await? {
            let (partition, bytes) =
                (Partition::read(PartitionedTable::Lines, &row)?, read(&row, 3, "a size")?);
            total += bytes;
            sizes.push(SizedPartition { ends: partition.ends, partition, bytes });
        }
        Ok((total, sizes))
    }
}
