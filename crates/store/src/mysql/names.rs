//! Names that rows refer to by number: lanes, which all connections of a process know by number, and workers; and the
//! numbers of sessions.
//!
//! Numbers are given under the lock of one row and written before it is let go. So they appear in their order, and whoever
//! knows all lanes up to one asks only for those above.

use super::connection::Connection;
use super::lists::{documents, list};
use super::rows::{get, limit};
use crate::fault::Fault;
use mysql_async::{Row, Value};
use punctual_core::ids::SessionId;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const LANES_ABOVE: &str = "SELECT id, queue, job_type FROM lanes WHERE id > ? ORDER BY id";
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
const INSERT_WORKERS: &str =
    concat!("INSERT INTO workers (id, name) SELECT id, name FROM ", list!(0 id int, 1 name name));

#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<i64, Lane>>);

impl Lanes {
    /// All that are known.
    pub fn all(&self) -> Vec<(i64, Lane)> {
        self.lock().iter().map(|(number, lane)| (*number, lane.clone())).collect()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    pub fn lane(&self, number: i64) -> Result<Lane, Fault> {
        self.lock().get(&number).cloned().ok_or_else(|| Fault::Missing(format!("lane {number}")))
    }

    pub fn knows_all(&self, numbers: &BTreeSet<i64>) -> bool {
        let known = self.lock();
        numbers.iter().all(|number| known.contains_key(number))
    }

    /// Learns what others have made since.
    pub async fn refresh(&self, connection: &mut Connection) -> Result<(), Fault> {
        let highest = self.lock().last_key_value().map_or(0, |(number, _)| *number);
        let rows = connection.all(LANES_ABOVE, vec![highest.into()]).await?;
        self.learn(&rows)
    }

    /// Makes those that are new, in a transaction of their own.
    pub async fn intern(
        &self,
        connection: &mut Connection,
        wanted: &BTreeSet<(String, String)>,
    ) -> Result<(), Fault> {
        self.refresh(connection).await?;
        if self.unknown(wanted).is_empty() {
            return Ok(());
        }
        let given = last_given(connection, "lane").await?;
        // Whoever had the lock before may have made some of them.
        self.refresh(connection).await?;
        let new: Vec<(i64, (String, String))> = (given + 1..).zip(self.unknown(wanted)).collect();
        let lists = documents(&new, |row, (number, (queue, job_type))| {
            row.int(*number).text(queue).text(job_type);
        });
        for list in lists {
            connection.run(INSERT_LANES, vec![list]).await?;
        }
        give(connection, "lane", given + limit(new.len())).await?;
        connection.commit().await?;
        self.refresh(connection).await
    }

    fn unknown(&self, wanted: &BTreeSet<(String, String)>) -> Vec<(String, String)> {
        let known = self.lock();
        let known: BTreeSet<(&str, &str)> =
            known.values().map(|lane| (lane.queue(), lane.job_type())).collect();
        wanted.iter().filter(|(queue, job_type)| !known.contains(&(queue, job_type))).cloned().collect()
    }

    fn learn(&self, rows: &[Row]) -> Result<(), Fault> {
        for row in rows {
            let lane = Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?);
            self.lock().insert(get(row, 0)?, lane);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers of these workers, of which those that are new are made in a transaction of their own.
pub(crate) async fn intern_workers(
    connection: &mut Connection,
    wanted: &BTreeSet<String>,
) -> Result<Vec<(String, i64)>, Fault> {
    let mut known = find_workers(connection, wanted).await?;
    if known.len() < wanted.len() {
        let given = last_given(connection, "worker").await?;
        known = find_workers(connection, wanted).await?;
        let new: Vec<(i64, String)> =
            (given + 1..).zip(wanted.iter().filter(|name| !known.contains_key(*name)).cloned()).collect();
        let lists = documents(&new, |row, (number, name)| {
            row.int(*number).text(name);
        });
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
    let lists = documents(wanted, |row, name| {
        row.text(name);
    });
    for list in lists {
        for row in connection.all(FIND_WORKERS, vec![list]).await? {
            found.insert(get(&row, 0)?, get(&row, 1)?);
        }
    }
    Ok(found)
}

/// Numbers of new sessions, which nobody gets again.
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

/// The last number of this kind that was given. Nobody else gives any until the transaction ends.
async fn last_given(connection: &mut Connection, kind: &str) -> Result<i64, Fault> {
    connection.begin().await?;
    let row = connection.one(LAST_GIVEN, vec![kind.into()]).await?;
    get(&row.ok_or_else(|| Fault::Missing(format!("the last number of a {kind}")))?, 0)
}

async fn give(connection: &mut Connection, kind: &str, last: i64) -> Result<(), Fault> {
    connection.run(GIVE, vec![Value::Int(last), kind.into()]).await.map(drop)
}
