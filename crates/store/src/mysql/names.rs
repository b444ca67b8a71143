//! Names that rows refer to by number: lanes, of which connections remember some (see [`LaneCache`]), and
//! workers; and the numbers of sessions.
//!
//! Numbers are assigned under the lock of one row and written before it is released. So they appear in
//! order, and a process that knows all lanes up to a number queries only those above it. Numbers are never
//! reused.

use super::connection::Connection;
use super::lists::list;
use super::tables::LANES_WITH_WORK;
use crate::cells::get;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::row_list::{self, List, row};
use crate::server::connection::{Argument, ServerCall, Statements, TransactionFrame};
pub(crate) use crate::server::names::look_up;
use crate::server::names::{LaneName, LaneStatements, by_name, missing};
use crate::unit_of_work::LaneCache;
use async_trait::async_trait;
use mysql_async::Value;
use punctual_core::ids::SessionId;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const LANES_ABOVE: &str = "SELECT id, queue, job_type FROM lanes WHERE id > ? ORDER BY id LIMIT ?";
pub(crate) const LANES_BY_NUMBER: &str = concat!(
    "SELECT lanes.id, lanes.queue, lanes.job_type FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN lanes FORCE INDEX (PRIMARY) ON lanes.id = given.number"
);
pub(crate) const LANES_BY_NAME: &str = concat!(
    "SELECT lanes.id, lanes.queue, lanes.job_type FROM ",
    list!(0 queue name, 1 job_type name),
    " STRAIGHT_JOIN lanes FORCE INDEX (lanes_name) ON lanes.queue = given.queue AND lanes.job_type = given.job_type"
);
const LAST_GIVEN: &str = "SELECT given FROM numbers WHERE name = ? FOR UPDATE";
const GIVE: &str = "UPDATE numbers SET given = ? WHERE name = ?";
const INSERT_LANES: &str = concat!(
    "INSERT INTO lanes (id, queue, job_type) SELECT id, queue, job_type FROM ",
    list!(0 id int, 1 queue name, 2 job_type name)
);
pub(crate) const FIND_WORKERS: &str = concat!(
    "SELECT workers.name, workers.id FROM ",
    list!(0 name name),
    " STRAIGHT_JOIN workers FORCE INDEX (workers_name) ON workers.name = given.name"
);
const NOTE_USED_WORKERS: &str = concat!(
    "UPDATE ",
    list!(0 name name),
    " STRAIGHT_JOIN workers FORCE INDEX (workers_name) ON workers.name = given.name \
     SET workers.unused_since = NULL WHERE workers.unused_since IS NOT NULL"
);
const INSERT_WORKERS: &str =
    concat!("INSERT INTO workers (id, name) SELECT id, name FROM ", list!(0 id int, 1 name name));

#[async_trait]
impl LaneStatements for Connection {
    const LANES_ABOVE: &'static str = LANES_ABOVE;
    const LANES_BY_NUMBER: &'static str = LANES_BY_NUMBER;
    const LANES_BY_NAME: &'static str = LANES_BY_NAME;

    async fn create_lanes(
        &mut self,
        wanted: &BTreeSet<LaneName>,
        _: Vec<(i64, Lane)>,
    ) -> Result<Vec<(i64, Lane)>, Fault> {
        // The next statement must not see the old snapshot.
        self.commit().await?;
        let given = last_given(self, "lane").await?;
        // The previous holder of the lock may have created some of them.
        let mut lanes = by_name(self, wanted).await?;
        let new: Vec<(i64, &LaneName)> = (given + 1..).zip(missing(wanted, &lanes)).collect();
        let rows =
            new.iter().map(|(number, (queue, job_type))| row![*number, queue.as_str(), job_type.as_str()]);
        let insert = ServerCall::new(INSERT_LANES, [Argument::Rows(List::of(rows))]);
        self.send(TransactionFrame::None, vec![insert]).await?;
        give(self, "lane", given + limit(new.len())).await?;
        self.commit().await?;
        let made = |(number, (queue, job_type)): (i64, &LaneName)| {
            (number, Lane::new(queue.as_str(), job_type.as_str()))
        };
        lanes.extend(new.into_iter().map(made));
        Ok(lanes)
    }

    async fn lanes_with_work(&mut self, known: &LaneCache) -> Result<Vec<(i64, Lane)>, Fault> {
        let busy = self.send_one(TransactionFrame::None, ServerCall::new(LANES_WITH_WORK, [])).await?;
        let (named, unknown) = known.known(&busy.column()?.into_iter().collect());
        let mut lanes: Vec<(i64, Lane)> = named.into_iter().collect();
        if !unknown.is_empty() {
            lanes.extend(look_up(known, self, unknown).await?);
        }
        Ok(lanes)
    }
}

/// The numbers of these workers; new ones are created in a separate transaction.
pub(crate) async fn intern_workers(
    connection: &mut Connection,
    wanted: &BTreeSet<String>,
) -> Result<Vec<(String, i64)>, Fault> {
    let mut known = find_workers(connection, wanted).await?;
    let used = ServerCall::new(NOTE_USED_WORKERS, [Argument::Rows(row_list::names(wanted))]);
    connection.send_one(TransactionFrame::None, used).await?;
    if known.len() < wanted.len() {
        connection.commit().await?;
        let given = last_given(connection, "worker").await?;
        known = find_workers(connection, wanted).await?;
        let new: Vec<(i64, String)> =
            (given + 1..).zip(wanted.iter().filter(|name| !known.contains_key(*name)).cloned()).collect();
        let rows = List::of(new.iter().map(|(number, name)| row![*number, name.as_str()]));
        connection
            .send_one(TransactionFrame::None, ServerCall::new(INSERT_WORKERS, [Argument::Rows(rows)]))
            .await?;
        give(connection, "worker", given + limit(new.len())).await?;
        known.extend(new.into_iter().map(|(number, name)| (name, number)));
    }
    connection.commit().await?;
    Ok(known.into_iter().collect())
}

async fn find_workers(
    connection: &mut Connection,
    wanted: &BTreeSet<String>,
) -> Result<BTreeMap<String, i64>, Fault> {
    let find = ServerCall::new(FIND_WORKERS, [Argument::Rows(row_list::names(wanted))]);
    let found = connection.send_one(TransactionFrame::None, find).await?;
    found.rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
}

/// Numbers of new sessions, which are never reused.
pub(crate) async fn session_numbers(
    connection: &mut Connection,
    count: usize,
) -> Result<Vec<SessionId>, Fault> {
    let given = last_given(connection, "session").await?;
    let last = given + limit(count);
    give(connection, "session", last).await?;
    connection.commit().await?;
    Ok((given + 1..=last).map(SessionId).collect())
}

/// The last number of this kind that was assigned. No other transaction assigns any until this one ends.
async fn last_given(connection: &mut Connection, kind: &str) -> Result<i64, Fault> {
    connection.begin().await?;
    let row = connection.one(LAST_GIVEN, vec![kind.into()]).await?;
    get(&row.ok_or_else(|| Fault::Missing(format!("the last number of a {kind}")))?, 0)
}

async fn give(connection: &mut Connection, kind: &str, last: i64) -> Result<(), Fault> {
    connection.run(GIVE, vec![Value::Int(last), kind.into()]).await.map(drop)
}
