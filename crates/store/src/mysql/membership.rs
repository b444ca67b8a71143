//! The membership table on MariaDB and MySQL. It has its own connection, so that a heartbeat never waits
//! for other work: a busy node is not dead. It knows its two tables and no rule.
//!
//! Members are locked before leases, each ordered by name. Nodes of a Galera cluster do not see each
//! other's locks. There two transactions conflict at commit if they have written the same row. So a
//! transaction that takes a lease writes its own member row, and a transaction that removes the member
//! deletes that row.

use super::connection::{Connection, OwnConnection};
use super::lists::{documents, list};
use super::options::Target;
use crate::cells::get;
use crate::codecs::counter;
use crate::fault::Fault;
use crate::membership::read::{self, EitherRow, Leases, RawLease};
use crate::membership::{MembershipCall, MembershipReply};
use crate::mysql::connection::for_update_of;
use crate::server::asks;
use crate::server::list::{List, row};
use mysql_async::{Row, Value};
use punctual_core::ports::{
    Entries, HeldLease, Joining, LeaseName, LeaseRow, MemberId, MemberPulse, OddRow, RegisterTable, Standing,
    Take, release_rows, take_rows,
};
use punctual_core::time::Timestamp;
use std::time::Duration;

const CLUSTER: &str = "SELECT LOWER(HEX(cluster)) FROM punctual WHERE id = 1";
const ENTER: &str = "INSERT INTO cluster_members (id, beat, ttl_us, entered_at, beaten_at, card) \
     VALUES (?, 1, ?, ?, ?, ?) \
     ON DUPLICATE KEY UPDATE beat = beat + 1, ttl_us = VALUES(ttl_us), beaten_at = VALUES(beaten_at), \
     card = VALUES(card)";
const BEAT: &str = "UPDATE cluster_members SET beat = beat + 1, beaten_at = ?, card = ? WHERE id = ?";
const COUNT_AS_BEAT: &str = "UPDATE cluster_members SET beat = beat + 1 WHERE id = ?";
const GIVE_UP: &str = "DELETE FROM cluster_members WHERE id = ? AND beat = ?";
const REMOVE: &str = "DELETE FROM cluster_members WHERE id = ?";
/// There are few leases, and locking all of them keeps the order.
const LOCK_ALL: &str = "SELECT name, epoch, holder FROM cluster_leases ORDER BY name FOR UPDATE";
const LOCK: &str = concat!(
    "SELECT cluster_leases.name, epoch, holder FROM ",
    list!(0 name name),
    " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) ON cluster_leases.name = given.name",
    for_update_of!("cluster_leases")
);
/// The condition checks that the row is as it was read. If another node has written it since, everything is
/// rolled back and run again.
const HOLD: &str = concat!(
    "UPDATE ",
    list!(0 name name, 1 epoch int),
    " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) ON cluster_leases.name = given.name \
     SET cluster_leases.epoch = given.epoch, holder = ? WHERE holder IS NULL"
);
const MAKE: &str = concat!(
    "INSERT INTO cluster_leases (name, epoch, holder) SELECT given.name, given.epoch, ? FROM ",
    list!(0 name name, 1 epoch int)
);
const FREE: &str = concat!(
    "UPDATE ",
    list!(0 name name, 1 epoch int),
    " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) \
     ON cluster_leases.name = given.name AND cluster_leases.epoch = given.epoch \
     SET holder = NULL WHERE holder = ?"
);
/// For a lease whose row is malformed.
const REPAIR: &str = "UPDATE cluster_leases SET epoch = ?, holder = NULL WHERE name = ?";
/// Both tables in one snapshot.
const ENTRIES: &str = "SELECT 0, id, beat, ttl_us, card FROM cluster_members \
     UNION ALL SELECT 1, holder, epoch, 0, name FROM cluster_leases WHERE holder IS NOT NULL";

/// How often a call is retried after a conflict, and the pause, multiplied by the tries so far.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct MySqlMembership {
    own: OwnConnection,
}

impl MySqlMembership {
    pub fn new(target: Target) -> Self {
        MySqlMembership { own: OwnConnection::new(target) }
    }

    pub async fn call(&self, call: &MembershipCall) -> Result<MembershipReply, Fault> {
        let mut tries = 1;
        loop {
            match self.call_once(call).await {
                Err(fault) if fault.is_conflict() && tries < TRIES => {
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                done => return done,
            }
        }
    }

    /// A kept connection may be closed since, which only a statement notices; then a new one is used.
    async fn call_once(&self, call: &MembershipCall) -> Result<MembershipReply, Fault> {
        let mut used = self.own.take().await?;
        let mut done = transact(&mut used.connection, call).await;
        if used.was_kept && done.as_ref().is_err_and(Fault::is_outage) {
            used.renew().await?;
            done = transact(&mut used.connection, call).await;
        }
        if done.is_err() {
            used.connection.roll_back().await;
        }
        if !used.connection.is_broken() {
            used.keep();
        }
        done
    }

    /// The id of the database, which is also the id of its cluster.
    pub async fn cluster(&self) -> Result<String, Fault> {
        let mut used = self.own.take().await?;
        let row = used.connection.one(CLUSTER, vec![]).await?;
        used.connection.commit().await?;
        used.keep();
        row.map_or_else(|| Err(Fault::Missing("the database's id".to_owned())), |row| get(&row, 0))
    }

    pub async fn entries(&self) -> Result<Entries, Fault> {
        let mut used = self.own.take().await?;
        let mut rows = used.connection.all(ENTRIES, vec![]).await;
        if used.was_kept && rows.as_ref().is_err_and(Fault::is_outage) {
            used.renew().await?;
            rows = used.connection.all(ENTRIES, vec![]).await;
        }
        let rows = rows?;
        used.connection.commit().await?;
        used.keep();
        let either = |row: &Row| -> Result<EitherRow, Fault> {
            Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?))
        };
        Ok(read::entries(rows.iter().map(either).collect::<Result<_, _>>()?))
    }

    pub async fn close(self) {
        if let Ok(used) = self.own.take().await
            && used.was_kept
        {
            used.connection.close().await;
        }
    }
}

async fn transact(connection: &mut Connection, call: &MembershipCall) -> Result<MembershipReply, Fault> {
    connection.begin().await?;
    let reply = perform(connection, call).await?;
    connection.commit().await?;
    Ok(reply)
}

async fn perform(connection: &mut Connection, call: &MembershipCall) -> Result<MembershipReply, Fault> {
    Ok(match call {
        MembershipCall::Enter { now, joining } => {
            enter(connection, *now, joining).await?;
            MembershipReply::Entered
        }
        MembershipCall::Beat { now, member, card } => {
            let values = vec![now.as_micros().into(), card.as_str().into(), member.as_str().into()];
            let found = connection.run(BEAT, values).await?;
            MembershipReply::Beaten(if found == 0 { Standing::GivenUp } else { Standing::Alive })
        }
        MembershipCall::GiveUp { silent } => MembershipReply::GivenUp(give_up(connection, silent).await?),
        MembershipCall::Take { member, names } => {
            MembershipReply::Taken(take(connection, member, names).await?)
        }
        MembershipCall::Release { member, held } => {
            MembershipReply::Released(release(connection, member, held).await?)
        }
        MembershipCall::Remove { member } => {
            connection.run(REMOVE, vec![member.as_str().into()]).await?;
            free_all(connection, &[member]).await?;
            MembershipReply::Removed
        }
        MembershipCall::Clear { malformed } => {
            clear(connection, malformed).await?;
            MembershipReply::Cleared
        }
    })
}

async fn enter(connection: &mut Connection, now: Timestamp, joining: &Joining) -> Result<(), Fault> {
    let Joining { member, card, ttl } = joining;
    let ttl_us = counter(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
    let now = Value::Int(now.as_micros());
    let values = vec![member.as_str().into(), ttl_us.into(), now.clone(), now, card.as_str().into()];
    connection.run(ENTER, values).await.map(drop)
}

async fn give_up(connection: &mut Connection, silent: &[MemberPulse]) -> Result<Vec<bool>, Fault> {
    let mut sorted: Vec<&MemberPulse> = silent.iter().collect();
    sorted.sort();
    sorted.dedup();
    let mut gone = Vec::new();
    for pulse in sorted {
        let values = vec![pulse.member.as_str().into(), counter(pulse.beat).into()];
        if connection.run(GIVE_UP, values).await? > 0 {
            gone.push(&pulse.member);
        }
    }
    if !gone.is_empty() {
        free_all(connection, &gone).await?;
    }
    Ok(silent.iter().map(|pulse| gone.contains(&&pulse.member)).collect())
}

async fn free_all(connection: &mut Connection, members: &[&MemberId]) -> Result<(), Fault> {
    let rows = leases(&connection.all(LOCK_ALL, vec![]).await?)?;
    for member in members {
        let held = rows.found.iter().filter(|row| row.holder.as_ref() == Some(*member));
        free(connection, member, &held.collect::<Vec<_>>()).await?;
    }
    Ok(())
}

/// A lease whose holder has an invalid id is malformed itself.
async fn clear(connection: &mut Connection, malformed: &[OddRow]) -> Result<(), Fault> {
    let ids = malformed.iter().filter(|row| row.table == RegisterTable::Members).map(|row| row.key.as_str());
    for id in ids.clone() {
        connection.run(REMOVE, vec![id.into()]).await?;
    }
    let members: Vec<MemberId> = ids.filter_map(MemberId::new).collect();
    free_all(connection, &members.iter().collect::<Vec<_>>()).await?;
    let leases = leases(&connection.all(LOCK_ALL, vec![]).await?)?;
    repair(connection, &leases).await
}

async fn repair(connection: &mut Connection, leases: &Leases) -> Result<(), Fault> {
    for row in &leases.malformed {
        let values = vec![counter(row.epoch.0).into(), row.name.to_string().into()];
        connection.run(REPAIR, values).await?;
    }
    Ok(())
}

async fn free(connection: &mut Connection, holder: &MemberId, rows: &[&LeaseRow]) -> Result<(), Fault> {
    let mut freed = 0;
    for list in lists(rows) {
        freed += connection.run(FREE, vec![list, holder.as_str().into()]).await?;
    }
    all_changed(rows, freed)
}

/// Names and epochs. All in one statement, because a distant database takes a while to answer, and callers
/// do not wait long.
fn lists(rows: &[&LeaseRow]) -> Vec<Value> {
    documents(&List::of(rows.iter().map(|row| row![row.name.to_string(), row.epoch.0])))
}

async fn take(
    connection: &mut Connection,
    member: &MemberId,
    names: &[LeaseName],
) -> Result<Vec<Take>, Fault> {
    if connection.run(COUNT_AS_BEAT, vec![member.as_str().into()]).await? == 0 {
        return Ok(vec![Take::GivenUp; names.len()]);
    }
    let leases = locked(connection, names.iter().copied()).await?;
    repair(connection, &leases).await?;
    let found = [leases.found, leases.malformed].concat();
    let known: Vec<LeaseName> = found.iter().map(|row| row.name).collect();
    let taken = take_rows(found, member, names);
    let (kept, new): (Vec<&LeaseRow>, Vec<&LeaseRow>) =
        taken.changed.iter().partition(|row| known.contains(&row.name));
    let mut held = 0;
    for list in lists(&kept) {
        held += connection.run(HOLD, vec![list, member.as_str().into()]).await?;
    }
    all_changed(&kept, held)?;
    for list in lists(&new) {
        connection.run(MAKE, vec![member.as_str().into(), list]).await?;
    }
    Ok(taken.answers)
}

async fn release(
    connection: &mut Connection,
    member: &MemberId,
    held: &[HeldLease],
) -> Result<Vec<bool>, Fault> {
    let found = locked(connection, held.iter().map(|lease| lease.name)).await?.found;
    let released = release_rows(&found, member, held);
    let freed: Vec<&LeaseRow> = found.iter().filter(|row| released.freed.contains(&row.name)).collect();
    free(connection, member, &freed).await?;
    Ok(released.answers)
}

/// A row that differs from what was read was changed on another node.
fn all_changed(rows: &[&LeaseRow], changed: u64) -> Result<(), Fault> {
    if usize::try_from(changed).is_ok_and(|changed| changed == rows.len()) {
        return Ok(());
    }
    Err(Fault::Conflict("a lease has changed since it was read".to_owned()))
}

/// Locks rows ordered by name.
async fn locked(
    connection: &mut Connection,
    names: impl IntoIterator<Item = LeaseName>,
) -> Result<Leases, Fault> {
    let mut names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    let mut rows = Vec::new();
    let lists = documents(&asks::names(&names));
    for list in lists {
        rows.append(&mut connection.all(LOCK, vec![list]).await?);
    }
    leases(&rows)
}

fn leases(rows: &[Row]) -> Result<Leases, Fault> {
    let lease = |row: &Row| -> Result<RawLease, Fault> { Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?)) };
    Ok(read::leases(rows.iter().map(lease).collect::<Result<_, _>>()?))
}
