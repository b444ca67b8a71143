//! The membership table on PostgreSQL. It has its own connection, so that a heartbeat never waits for other
//! work: a busy node is not dead. It knows its two tables and no rule.
//!
//! Members are locked before leases, each ordered by name.

use super::options::Target;
use super::rows::clean;
use super::wire::{Call, Frame, OwnWire, Parameter, Wire, column, value};
use crate::cells::get;
use crate::codecs::counter;
use crate::fault::Fault;
use crate::membership::read::{self, EitherRow, Leases, RawLease};
use crate::membership::{MembershipCall, MembershipReply};
use punctual_core::ports::{
    Entries, HeldLease, Joining, LeaseName, LeaseRow, MemberId, MemberPulse, OddRow, RegisterTable, Standing,
    Take, release_rows, take_rows,
};
use punctual_core::time::Timestamp;
use std::time::Duration;
use tokio_postgres::Row;

const CLUSTER: &str = "SELECT cluster::text FROM punctual WHERE id = 1";
const ENTER: &str = "INSERT INTO cluster_members AS kept (id, beat, ttl_us, entered_at, beaten_at, card) \
     VALUES ($1, 1, $2, $3, $3, $4) \
     ON CONFLICT (id) DO UPDATE SET beat = kept.beat + 1, ttl_us = excluded.ttl_us, \
     beaten_at = excluded.beaten_at, card = excluded.card";
const BEAT: &str =
    "UPDATE cluster_members SET beat = beat + 1, beaten_at = $2, card = $3 WHERE id = $1 RETURNING 1";
const COUNT_AS_BEAT: &str = "UPDATE cluster_members SET beat = beat + 1 WHERE id = $1 RETURNING 1";
const LOCK_MEMBERS: &str =
    "SELECT id, beat FROM cluster_members WHERE id = ANY($1) ORDER BY id COLLATE \"C\" FOR UPDATE";
const REMOVE: &str = "DELETE FROM cluster_members WHERE id = ANY($1)";
const LOCK_HELD: &str =
    "SELECT name FROM cluster_leases WHERE holder = ANY($1) ORDER BY name COLLATE \"C\" FOR UPDATE";
const FREE_ALL: &str = "UPDATE cluster_leases SET holder = NULL WHERE holder = ANY($1)";
const LOCK_LEASES: &str = "SELECT name, epoch, holder FROM cluster_leases WHERE name = ANY($1) ORDER BY name COLLATE \"C\" FOR UPDATE";
/// Another process may have inserted the same row meanwhile: then everything is rolled back and run again.
const MAKE: &str = "INSERT INTO cluster_leases (name, epoch, holder) \
     SELECT name, epoch, $3 FROM unnest($1::text[], $2::bigint[]) AS new(name, epoch)";
const HOLD: &str = "UPDATE cluster_leases SET epoch = new.epoch, holder = $3 \
     FROM unnest($1::text[], $2::bigint[]) AS new(name, epoch) WHERE cluster_leases.name = new.name";
const FREE: &str = "UPDATE cluster_leases SET holder = NULL WHERE name = ANY($1)";
/// For leases whose rows are malformed.
const REPAIR: &str = "UPDATE cluster_leases SET epoch = new.epoch, holder = NULL \
     FROM unnest($1::text[], $2::bigint[]) AS new(name, epoch) WHERE cluster_leases.name = new.name";
/// Both tables in one snapshot.
const ENTRIES: &str = "SELECT 0::bigint, id, beat, ttl_us, card FROM cluster_members \
     UNION ALL SELECT 1, holder, epoch, 0, name FROM cluster_leases WHERE holder IS NOT NULL";

/// How often a call is retried after a conflict, and the pause, multiplied by the tries so far.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct PostgresMembership {
    own: OwnWire,
}

impl PostgresMembership {
    pub fn new(target: Target) -> Self {
        PostgresMembership { own: OwnWire::new(target) }
    }

    pub async fn call(&self, call: &MembershipCall) -> Result<MembershipReply, Fault> {
        let mut tries = 1;
        loop {
            let mut used = self.own.take().await?;
            match perform(&mut used.wire, call).await {
                Ok(reply) => {
                    used.keep();
                    return Ok(reply);
                }
                Err(fault) if fault.is_conflict() && tries < TRIES => {
                    used.wire.roll_back().await?;
                    used.keep();
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// The id of the database, which is also the id of its cluster.
    pub async fn cluster(&self) -> Result<String, Fault> {
        let mut used = self.own.take().await?;
        let rows = used.wire.run_one(Call::new(CLUSTER, [])).await?;
        used.keep();
        rows.first().map_or_else(|| Err(Fault::Missing("the database's id".to_owned())), |row| get(row, 0))
    }

    pub async fn entries(&self) -> Result<Entries, Fault> {
        let mut used = self.own.take().await?;
        let rows = used.wire.run_one(Call::new(ENTRIES, [])).await?;
        used.keep();
        let either = |row: &Row| -> Result<EitherRow, Fault> {
            Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?))
        };
        Ok(read::entries(rows.iter().map(either).collect::<Result<_, _>>()?))
    }
}

async fn perform(wire: &mut Wire, call: &MembershipCall) -> Result<MembershipReply, Fault> {
    Ok(match call {
        MembershipCall::Enter { now, joining } => {
            enter(wire, *now, joining).await?;
            MembershipReply::Entered
        }
        MembershipCall::Beat { now, member, card } => {
            MembershipReply::Beaten(beat(wire, *now, member, card).await?)
        }
        MembershipCall::GiveUp { silent } => MembershipReply::GivenUp(give_up(wire, silent).await?),
        MembershipCall::Take { member, names } => MembershipReply::Taken(take(wire, member, names).await?),
        MembershipCall::Release { member, held } => {
            MembershipReply::Released(release(wire, member, held).await?)
        }
        MembershipCall::Remove { member } => {
            let id = || column([member.as_str()]);
            let lock = vec![Call::new(LOCK_MEMBERS, [id()]), Call::new(LOCK_HELD, [id()])];
            wire.run(Frame::Begin, lock).await?;
            remove(wire, vec![member.as_str()]).await?;
            MembershipReply::Removed
        }
        MembershipCall::Clear { malformed } => {
            clear(wire, malformed).await?;
            MembershipReply::Cleared
        }
    })
}

async fn enter(wire: &mut Wire, now: Timestamp, joining: &Joining) -> Result<(), Fault> {
    let Joining { member, card, ttl } = joining;
    let ttl_us = counter(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
    let values = [value(member.as_str()), value(ttl_us), value(now.as_micros()), value(clean(card))];
    wire.run_one(Call::new(ENTER, values)).await.map(drop)
}

async fn beat(wire: &mut Wire, now: Timestamp, member: &MemberId, card: &str) -> Result<Standing, Fault> {
    let values = [value(member.as_str()), value(now.as_micros()), value(clean(card))];
    let found = wire.run_one(Call::new(BEAT, values)).await?;
    Ok(if found.is_empty() { Standing::GivenUp } else { Standing::Alive })
}

async fn give_up(wire: &mut Wire, silent: &[MemberPulse]) -> Result<Vec<bool>, Fault> {
    let ids = column(silent.iter().map(|pulse| pulse.member.as_str()));
    let rows = wire.run(Frame::Begin, vec![Call::new(LOCK_MEMBERS, [ids])]).await?;
    let mut found = Vec::new();
    for row in rows.iter().flatten() {
        if let (Some(member), Some(beat)) = (MemberId::new(get::<String>(row, 0)?), read::count(get(row, 1)?))
        {
            found.push(MemberPulse { member, beat });
        }
    }
    let answers: Vec<bool> = silent.iter().map(|pulse| found.contains(pulse)).collect();
    let gone: Vec<&str> =
        found.iter().filter(|pulse| silent.contains(pulse)).map(|pulse| pulse.member.as_str()).collect();
    wire.run(Frame::None, vec![Call::new(LOCK_HELD, [column(gone.iter().copied())])]).await?;
    remove(wire, gone).await?;
    Ok(answers)
}

/// Completes a transaction that has locked the members and their leases.
async fn remove(wire: &mut Wire, members: Vec<&str>) -> Result<(), Fault> {
    let ids = || column(members.iter().copied());
    let calls = vec![Call::new(REMOVE, [ids()]), Call::new(FREE_ALL, [ids()])];
    wire.run(Frame::Commit, calls).await.map(drop)
}

async fn clear(wire: &mut Wire, malformed: &[OddRow]) -> Result<(), Fault> {
    let keys = |table| malformed.iter().filter(move |row| row.table == table).map(|row| row.key.as_str());
    let ids = || column(keys(RegisterTable::Members));
    let locked = vec![
        Call::new(LOCK_MEMBERS, [ids()]),
        Call::new(LOCK_HELD, [ids()]),
        Call::new(LOCK_LEASES, [column(keys(RegisterTable::Leases))]),
    ];
    let found = wire.run(Frame::Begin, locked).await?;
    let leases = leases(found.last().into_iter().flatten())?;
    wire.run(Frame::None, vec![repair(&leases.malformed)]).await?;
    remove(wire, keys(RegisterTable::Members).collect()).await
}

fn repair<'a>(malformed: &[LeaseRow]) -> Call<'a> {
    let (names, epochs) = names_and_epochs(malformed.iter());
    Call::new(REPAIR, [names, epochs])
}

async fn take(wire: &mut Wire, member: &MemberId, names: &[LeaseName]) -> Result<Vec<Take>, Fault> {
    let counted = Call::new(COUNT_AS_BEAT, [value(member.as_str())]);
    let found = wire.run(Frame::Begin, vec![counted, lock(names.iter().copied())]).await?;
    let [counted, found] = found.as_slice() else { return Err(Fault::Missing("an answer".to_owned())) };
    if counted.is_empty() {
        wire.run(Frame::Commit, vec![]).await?;
        return Ok(vec![Take::GivenUp; names.len()]);
    }
    let leases = leases(found)?;
    if !leases.malformed.is_empty() {
        wire.run(Frame::None, vec![repair(&leases.malformed)]).await?;
    }
    let found = [leases.found, leases.malformed].concat();
    let known: Vec<LeaseName> = found.iter().map(|row| row.name).collect();
    let taken = take_rows(found, member, names);
    let (kept, new): (Vec<_>, Vec<_>) = taken.changed.iter().partition(|row| known.contains(&row.name));
    let calls = [(HOLD, kept), (MAKE, new)].into_iter().filter(|(_, rows)| !rows.is_empty());
    wire.run(Frame::Commit, calls.map(|(sql, rows)| hold(sql, member, &rows)).collect()).await?;
    Ok(taken.answers)
}

fn hold<'a>(sql: &'static str, member: &'a MemberId, rows: &[&LeaseRow]) -> Call<'a> {
    let (names, epochs) = names_and_epochs(rows.iter().copied());
    Call::new(sql, [names, epochs, value(member.as_str())])
}

fn names_and_epochs<'a, 'row>(
    rows: impl Iterator<Item = &'row LeaseRow> + Clone,
) -> (Parameter<'a>, Parameter<'a>) {
    let names = column(rows.clone().map(|row| row.name.to_string()));
    (names, column(rows.map(|row| counter(row.epoch.0))))
}

async fn release(wire: &mut Wire, member: &MemberId, held: &[HeldLease]) -> Result<Vec<bool>, Fault> {
    let found = wire.run(Frame::Begin, vec![lock(held.iter().map(|lease| lease.name))]).await?;
    let released = release_rows(&leases(found.iter().flatten())?.found, member, held);
    let freed = column(released.freed.iter().map(LeaseName::to_string));
    wire.run(Frame::Commit, vec![Call::new(FREE, [freed])]).await?;
    Ok(released.answers)
}

fn lock<'a>(names: impl IntoIterator<Item = LeaseName>) -> Call<'a> {
    Call::new(LOCK_LEASES, [column(names.into_iter().map(|name| name.to_string()))])
}

fn leases<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Result<Leases, Fault> {
    let lease = |row: &Row| -> Result<RawLease, Fault> { Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?)) };
    Ok(read::leases(rows.into_iter().map(lease).collect::<Result<_, _>>()?))
}
