//! Names that rows refer to by number: lanes, of which connections remember some (see [`LaneCache`]), and
//! workers; and the numbers of sessions.
//!
//! Numbers are assigned under the lock of one row and written before it is released. So they appear in
//! order, and a process that knows all lanes up to a number queries only those above it. Numbers are never
//! reused.

use super::connection::Connection;
use super::lists::{documents, list, numbers};
use super::tables::LANES_WITH_WORK;
use crate::cells::get;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::server::asks;
use crate::server::list::{List, row};
use crate::unit_of_work::{LANES_ASKED_MAX, LaneCache, LanesToAsk, LanesToRead};
use mysql_async::{Row, Value};
use punctual_core::ids::SessionId;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

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

/// Looks up unknown lanes. Lanes that do not exist are left out.
pub(crate) async fn look_up(
    known: &LaneCache,
    connection: &mut Connection,
    wanted: Vec<i64>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let mut lanes = Vec::new();
    for list in numbers(wanted) {
        lanes.extend(read(&connection.all(LANES_BY_NUMBER, vec![list]).await?)?);
    }
    known.learn(&lanes);
    Ok(lanes)
}

/// The numbers of these lanes; new ones are created in a separate transaction.
pub(crate) async fn intern(
    known: &LaneCache,
    connection: &mut Connection,
    wanted: &BTreeSet<(String, String)>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let mut lanes = by_name(connection, wanted).await?;
    if lanes.len() < wanted.len() {
        // The next statement must not see the old snapshot.
        connection.commit().await?;
        let given = last_given(connection, "lane").await?;
        // The previous holder of the lock may have created some of them.
        lanes = by_name(connection, wanted).await?;
        let found: BTreeSet<(&str, &str)> =
            lanes.iter().map(|(_, lane)| (lane.queue(), lane.job_type())).collect();
        let is_new =
            |(queue, job_type): &&(String, String)| !found.contains(&(queue.as_str(), job_type.as_str()));
        let new: Vec<(i64, &(String, String))> = (given + 1..).zip(wanted.iter().filter(is_new)).collect();
        let lists =
            new.iter().map(|(number, (queue, job_type))| row![*number, queue.as_str(), job_type.as_str()]);
        let lists = documents(&List::of(lists));
        for list in lists {
            connection.run(INSERT_LANES, vec![list]).await?;
        }
        give(connection, "lane", given + limit(new.len())).await?;
        connection.commit().await?;
        let made: Vec<(i64, Lane)> = new
            .into_iter()
            .map(|(number, (queue, job_type))| (number, Lane::new(queue.as_str(), job_type.as_str())))
            .collect();
        lanes.extend(made);
    }
    known.learn(&lanes);
    Ok(lanes)
}

/// The lanes that claims query; `None` if it is too early to read them again.
pub(crate) async fn to_ask(
    known: &LaneCache,
    connection: &mut Connection,
) -> Result<Option<LanesToAsk>, Fault> {
    let began = Instant::now();
    let mut reading = known.to_read(began);
    if let LanesToRead::Above(number) = reading {
        let bounds = vec![number.into(), limit(LANES_ASKED_MAX + 1).into()];
        let lanes = read(&connection.all(LANES_ABOVE, bounds).await?)?;
        if let Some(to_ask) = known.read_above(number, lanes, began) {
            return Ok(Some(to_ask));
        }
        reading = known.to_read(began);
    }
    if reading != LanesToRead::WithWork {
        return Ok(None);
    }
    let began = Instant::now();
    let rows = connection.all(LANES_WITH_WORK, vec![]).await?;
    let busy = rows.iter().map(|row| get(row, 0)).collect::<Result<BTreeSet<i64>, _>>()?;
    let (named, unknown) = known.known(&busy);
    let mut lanes: Vec<(i64, Lane)> = named.into_iter().collect();
    if !unknown.is_empty() {
        lanes.extend(look_up(known, connection, unknown).await?);
    }
    Ok(Some(known.read_with_work(lanes, began, Instant::now())))
}

async fn by_name(
    connection: &mut Connection,
    wanted: &BTreeSet<(String, String)>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let mut lanes = Vec::new();
    let lists = wanted.iter().map(|(queue, job_type)| row![queue.as_str(), job_type.as_str()]);
    let lists = documents(&List::of(lists));
    for list in lists {
        lanes.extend(read(&connection.all(LANES_BY_NAME, vec![list]).await?)?);
    }
    Ok(lanes)
}

fn read(rows: &[Row]) -> Result<Vec<(i64, Lane)>, Fault> {
    let read = |row: &Row| Ok((get(row, 0)?, Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?)));
    rows.iter().map(read).collect()
}

/// The numbers of these workers; new ones are created in a separate transaction.
pub(crate) async fn intern_workers(
    connection: &mut Connection,
    wanted: &BTreeSet<String>,
) -> Result<Vec<(String, i64)>, Fault> {
    let mut known = find_workers(connection, wanted).await?;
    let lists = documents(&asks::names(wanted));
    for list in lists {
        connection.run(NOTE_USED_WORKERS, vec![list]).await?;
    }
    if known.len() < wanted.len() {
        connection.commit().await?;
        let given = last_given(connection, "worker").await?;
        known = find_workers(connection, wanted).await?;
        let new: Vec<(i64, String)> =
            (given + 1..).zip(wanted.iter().filter(|name| !known.contains_key(*name)).cloned()).collect();
        let lists = documents(&List::of(new.iter().map(|(number, name)| row![*number, name.as_str()])));
        for list in lists {
            connection.run(INSERT_WORKERS, vec![list]).await?;
        }
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
    let mut found = BTreeMap::new();
    let lists = documents(&asks::names(wanted));
    for list in lists {
        for row in connection.all(FIND_WORKERS, vec![list]).await? {
            found.insert(get(&row, 0)?, get(&row, 1)?);
        }
    }
    Ok(found)
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
