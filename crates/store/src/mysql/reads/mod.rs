//! A connection for one read verb of [`crate::reads`]. If a verb takes more than one statement, they see one
//! snapshot.

mod settled;
pub(crate) mod statements;

use super::lists::documents;
use crate::cells::{Cell, CellValue, RowCells, get, read};
use crate::codecs::{execution_id, job_id};
use crate::counters::{LaneCounts, StoredCounts};
use crate::fault::Fault;
use crate::layout::LIVE;
use crate::lists::heads_looked_at;
use crate::malformed::skip_malformed;
use crate::reads::{EndedAt, FetchedRows, Query, ReadBatches, ReadConnection, ReadKind};
use crate::row_list::{self, List};
use async_trait::async_trait;
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::ports::HistorySpan;
use punctual_core::time::Timestamp;
use statements::*;
use std::collections::{BTreeMap, BTreeSet};

/// Rows to fetch at a time if a row may be large: a page is often full before it has all its items.
const ROWS_AT_ONCE: usize = 100;
/// Lanes whose heads one statement reads.
const HEADS_AT_ONCE: usize = 50;

const BATCHES: ReadBatches = ReadBatches {
    rows: ROWS_AT_ONCE,
    dead_letters: ROWS_AT_ONCE,
    candidates: VIEWS_AT_ONCE,
    views: VIEWS_AT_ONCE,
    details: VIEWS_AT_ONCE,
    is_pipelined: false,
    has_standing: false,
    has_errors_apart: false,
};

/// A connection of a pool, which is closed unless it is returned.
#[derive(Debug)]
pub(crate) struct MySqlReading {
    /// Always `Some`, except while it is being returned.
    conn: Option<Conn>,
}

impl Drop for MySqlReading {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // It is marked as closed before anything is sent, so that the pool discards it. Whether the
            // server receives the message or finds the socket closed does not matter.
            let _ = conn.disconnect().now_or_never();
        }
    }
}

/// A row, extended by the columns of a row that another statement returned.
struct JoinedRow {
    row: Row,
    joined: Option<Cell<'static>>,
}

impl JoinedRow {
    fn of(rows: Vec<Row>) -> Vec<Self> {
        rows.into_iter().map(|row| JoinedRow { row, joined: None }).collect()
    }

    fn joined(&self, column: usize) -> Option<&[Cell<'static>]> {
        self.joined.as_ref().filter(|_| column == self.row.len()).map(std::slice::from_ref)
    }
}

impl RowCells for JoinedRow {
    fn number(&self, column: usize) -> Result<Option<i64>, Fault> {
        self.joined(column).map_or_else(|| self.row.number(column), |cell| cell.number(0))
    }

    fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        self.joined(column).map_or_else(|| self.row.text(column), |cell| cell.text(0))
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        self.joined(column).map_or_else(|| self.row.bytes(column), |cell| cell.bytes(0))
    }
}

impl MySqlReading {
    pub fn new(conn: Conn) -> Self {
        MySqlReading { conn: Some(conn) }
    }

    /// Returns the connection after a verb is complete.
    pub fn give_back(mut self) {
        drop(self.conn.take());
    }

    fn conn(&mut self) -> Result<&mut Conn, Fault> {
        self.conn.as_mut().ok_or_else(|| Fault::Missing("a connection".to_owned()))
    }

    /// The server's id of this connection.
    #[cfg(test)]
    pub async fn connection_number(&mut self) -> Result<u64, Fault> {
        let row = self.one("SELECT CONNECTION_ID()", vec![]).await?;
        get(&row.ok_or_else(|| Fault::Missing("a connection".to_owned()))?, 0)
    }

    /// All rows of a statement that has its own limit. It is prepared once.
    async fn all(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let params = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        Ok(self.conn()?.exec(sql, params).await?)
    }

    /// The first row of a statement, if there is one.
    async fn one(&mut self, sql: &str, values: Vec<Value>) -> Result<Option<Row>, Fault> {
        Ok(self.all(sql, values).await?.into_iter().next())
    }

    /// The rows of a statement about all rows of a list.
    async fn listed(&mut self, sql: &str, list: &List<'_>) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        for document in documents(list) {
            rows.extend(self.all(sql, vec![document]).await?);
        }
        Ok(rows)
    }

    async fn rows(&mut self, query: Query<'_>) -> Result<Vec<JoinedRow>, Fault> {
        if query.is_needless() {
            return Ok(vec![]);
        }
        let Query { read, list, values } = query;
        let (is_listed, list) = (list.is_some(), list.unwrap_or_default());
        let chosen = |places: &[usize]| -> Vec<Value> {
            places.iter().map(|place| values[*place].clone().into()).collect()
        };
        let rows = match read {
            ReadKind::DueSchedules | ReadKind::DueLive => self.due(read, &list, chosen(&[0, 1])).await?,
            ReadKind::HeadsOfLanes => self.heads_of_lanes(&list, chosen(&[0])).await?,
            ReadKind::Ahead => self.ahead(chosen(&[0, 1, 2])).await?,
            ReadKind::OneJob => self.listed(JOBS_BY_ID, &List::of(values.into_iter().map(|id| [id]))).await?,
            ReadKind::ActiveJobs => self.active_jobs(chosen(&[0, 1]), get(&values[..], 1)?).await?,
            ReadKind::OpenOfJobs => self.of_each(OPEN_OF_JOB, &list).await?,
            ReadKind::LastFinished => self.last_finished(&list).await?,
            ReadKind::Running if values[0] == Cell::Number(0) => {
                self.all(RUNNING_FIRST, chosen(&[3])).await?
            }
            _ if is_listed => self.listed(statement(read).0, &list).await?,
            _ => {
                let (sql, places) = statement(read);
                self.all(sql, chosen(places)).await?
            }
        };
        match read {
            ReadKind::Running | ReadKind::OpenExecutions => self.with_workers(rows).await,
            ReadKind::Depths => self.with_oldest(rows).await,
            _ => Ok(JoinedRow::of(rows)),
        }
    }

    async fn due(&mut self, read: ReadKind, list: &List<'_>, bounds: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let segments: Vec<i64> = list.rows().map(|segment| get(segment, 0)).collect::<Result<_, _>>()?;
        let sql = if read == ReadKind::DueLive { due_live(&segments) } else { due_schedules(&segments) };
        self.all(&sql, segments.iter().flat_map(|_| bounds.clone()).collect()).await
    }

    async fn heads_of_lanes(&mut self, lanes: &List<'_>, most: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        for lane in lanes.rows().flatten() {
            let values = [vec![lane.clone().into()], most.clone()].concat();
            rows.extend(self.all(HEAD_OF_LANE, values).await?);
        }
        Ok(rows)
    }

    async fn ahead(&mut self, values: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let [job, number, most] = &values[..] else { return Ok(vec![]) };
        let Some(place) = self.one(QUEUED_PLACE, vec![job.clone(), number.clone()]).await? else {
            return Ok(vec![]);
        };
        let (lane, rank): (i64, i64) = (get(&place, 0)?, get(&place, 1)?);
        let mut bounds: Vec<Value> = [lane, rank, rank].map(Value::from).into();
        bounds.extend([job, job, number, most].map(Value::clone));
        self.all(AHEAD, bounds).await
    }

    /// The latest jobs with open or future occurrences.
    async fn active_jobs(&mut self, bounds: Vec<Value>, count: usize) -> Result<Vec<Row>, Fault> {
        let mut ids = BTreeSet::new();
        for sql in [ACTIVE_LIVE, ACTIVE_SCHEDULES] {
            for row in self.all(sql, bounds.clone()).await? {
                ids.insert(job_id(&row, 0)?);
            }
        }
        self.listed(JOBS_BY_ID, &row_list::ids(ids.iter().rev().take(count))).await
    }

    /// The first rows of each job.
    async fn of_each(&mut self, branch: &str, jobs: &List<'_>) -> Result<Vec<Row>, Fault> {
        let keys = jobs.rows().flatten().cloned().map(Value::from).collect();
        let (sql, keys) = branches(branch, keys);
        self.all(&sql, keys).await
    }

    /// The execution of each job that ended last among the latest few.
    async fn last_finished(&mut self, jobs: &List<'_>) -> Result<Vec<Row>, Fault> {
        let mut latest: BTreeMap<JobId, (Timestamp, ExecutionId, u64)> = BTreeMap::new();
        for row in self.of_each(LATEST_OF_JOB, jobs).await? {
            let read = || -> Result<_, Fault> {
                Ok((
                    read(&row, 3, "history.completed_at")?,
                    execution_id(&row, 0)?,
                    read(&row, 4, "history.place")?,
                ))
            };
            let Some(candidate) = skip_malformed(read())? else { continue };
            let last = latest.entry(candidate.1.occurrence.job).or_insert(candidate);
            *last = candidate.max(*last);
        }
        let ended = latest.into_values().map(|(completed_at, _, place)| EndedAt { place, completed_at });
        self.listed(FINISHED_AT, &EndedAt::list(ended)).await
    }

    /// Adds the names of the workers that hold these executions.
    async fn with_workers(&mut self, rows: Vec<Row>) -> Result<Vec<JoinedRow>, Fault> {
        const SESSION: usize = LIVE.at("session");
        let sessions = rows.iter().map(|row| get(row, SESSION)).collect::<Result<Vec<Option<i64>>, _>>()?;
        let held: BTreeSet<i64> = sessions.iter().flatten().copied().collect();
        let mut workers: BTreeMap<i64, String> = BTreeMap::new();
        for row in self.listed(WORKERS_OF_SESSIONS, &row_list::numbers(held)).await? {
            workers.insert(get(&row, 0)?, get(&row, 1)?);
        }
        let worker = |session: Option<i64>| session.and_then(|session| workers.get(&session)).cloned();
        let join = |(row, session)| JoinedRow { row, joined: Some(worker(session).into_cell()) };
        Ok(rows.into_iter().zip(sessions).map(join).collect())
    }

    /// Of the counters of lanes, those that are not zero, with the time since which the head of the lane has
    /// been queued.
    async fn with_oldest(&mut self, rows: Vec<Row>) -> Result<Vec<JoinedRow>, Fault> {
        let (mut used, mut queued) = (Vec::new(), Vec::new());
        for row in rows {
            let lane: i64 = get(&row, 0)?;
            let counts = LaneCounts::read(1, |column| get(&row, column))?;
            queued.extend((counts.queued > 0).then_some(lane));
            used.extend(counts.each().any(|count| count > 0).then_some((lane, row)));
        }
        let (mut oldest, looked_at) = (BTreeMap::new(), heads_looked_at(queued.len()));
        for some in queued.chunks(HEADS_AT_ONCE) {
            // The text is hardly ever the same, so that preparing it would be useless.
            let heads: Vec<Row> = self.conn()?.query(heads(some, looked_at)).await?;
            for row in &heads {
                oldest.insert(get::<i64>(row, 0)?, get::<Option<i64>>(row, 1)?);
            }
        }
        let join = |(lane, row)| {
            let oldest: Option<i64> = oldest.get(&lane).copied().flatten();
            JoinedRow { row, joined: Some(oldest.into_cell()) }
        };
        Ok(used.into_iter().map(join).collect())
    }
}

#[async_trait]
impl ReadConnection for MySqlReading {
    fn batches(&self) -> &'static ReadBatches {
        &BATCHES
    }

    async fn fetch(&mut self, queries: Vec<Query<'_>>) -> Result<Vec<FetchedRows>, Fault> {
        let mut fetched = Vec::with_capacity(queries.len());
        for query in queries {
            fetched.push(FetchedRows::new(self.rows(query).await?));
        }
        Ok(fetched)
    }

    async fn begin_snapshot(&mut self) -> Result<(), Fault> {
        Ok(self.conn()?.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await?)
    }

    async fn end_snapshot(&mut self) -> Result<(), Fault> {
        Ok(self.conn()?.query_drop("COMMIT").await?)
    }

    async fn settled_below(&mut self) -> Result<Option<i64>, Fault> {
        Ok(None)
    }

    async fn history_span(&mut self) -> Result<HistorySpan, Fault> {
        self.begin_snapshot().await?;
        let span = self.span().await?;
        self.end_snapshot().await?;
        Ok(span)
    }
}
