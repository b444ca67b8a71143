//! The membership table on a database server. It has its own connection, so that a heartbeat never waits for
//! other work: a busy node is not dead. It knows its two tables and no rule.
//!
//! Members are locked before leases, each ordered by name.

use super::connection::{
    Argument, OwnConnection, ServerCall, ServerConnection, StatementVerb, TransactionFrame, value,
};
use crate::cells::{RowCells, get};
use crate::codecs::counter;
use crate::fault::Fault;
use crate::membership::read::{self, EitherRow, Leases, RawLease};
use crate::membership::{MembershipCall, MembershipReply};
use crate::row_list::{List, row};
use async_trait::async_trait;
use punctual_core::ports::{
    Entries, HeldLease, Joining, LeaseName, LeaseRow, MalformedRow, MemberId, MemberPulse, Standing, Take,
    release_rows, take_rows,
};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// The statements of a dialect. Leases are given as names and epochs.
#[async_trait]
pub(crate) trait MembershipStatements: ServerConnection {
    const CLUSTER: &'static str;
    /// Given a member, its time to live, the time twice, and its card.
    const ENTER: &'static str;
    /// Given the time, the card and the member.
    const BEAT: &'static str;
    const COUNT_AS_BEAT: &'static str;
    /// Given names: their leases with epochs and holders.
    const LOCK_LEASES: &'static str;
    /// Given leases and their new holder.
    const HOLD: &'static str;
    /// Given the holder of new leases, and the leases. Another process may have inserted the same row
    /// meanwhile: then everything is rolled back and run again.
    const MAKE: &'static str;
    /// Given leases and their holder.
    const FREE: &'static str;
    /// For leases whose rows are malformed.
    const REPAIR: &'static str;
    /// Both tables in one snapshot.
    const ENTRIES: &'static str;
    /// Whether rows that were locked may have changed when they are written.
    const CHECKS_WRITES: bool;

    /// Removes members whose beat is unchanged, and frees their leases.
    async fn give_up(&mut self, silent: &[MemberPulse]) -> Result<Vec<bool>, Fault>;

    async fn remove(&mut self, member: &MemberId) -> Result<(), Fault>;

    async fn clear(&mut self, malformed: &[MalformedRow]) -> Result<(), Fault>;
}

pub(crate) struct ServerMembership<C: MembershipStatements> {
    own: OwnConnection<C>,
}

impl<C: MembershipStatements> ServerMembership<C> {
    pub fn new(target: C::Target) -> Self {
        ServerMembership { own: OwnConnection::new(target) }
    }

    pub async fn call(&self, call: &MembershipCall) -> Result<MembershipReply, Fault> {
        self.own.run(call).await
    }

    /// The id of the database, which is also the id of its cluster.
    pub async fn cluster(&self) -> Result<String, Fault> {
        self.own.send(ServerCall::new(C::CLUSTER, [])).await?.single("the database's id")
    }

    pub async fn entries(&self) -> Result<Entries, Fault> {
        let rows = self.own.send(ServerCall::new(C::ENTRIES, [])).await?.rows;
        let either = |row: &C::Row| -> Result<EitherRow, Fault> {
            Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?))
        };
        Ok(read::entries(rows.iter().map(either).collect::<Result<_, _>>()?))
    }

    /// The connection, to close it.
    pub fn into_connection(self) -> Option<C> {
        self.own.into_kept()
    }
}

#[async_trait]
impl<C: MembershipStatements> StatementVerb<C> for MembershipCall {
    type Reply = MembershipReply;

    async fn perform(&self, connection: &mut C) -> Result<MembershipReply, Fault> {
        Ok(match self {
            MembershipCall::Enter { now, joining } => {
                enter(connection, *now, joining).await?;
                MembershipReply::Entered
            }
            MembershipCall::Beat { now, member, card } => {
                let values = [value(*now), value(card.as_str()), value(member.as_str())];
                let found = connection.send_alone(ServerCall::new(C::BEAT, values)).await?.count;
                MembershipReply::Beaten(if found == 0 { Standing::GivenUp } else { Standing::Alive })
            }
            MembershipCall::GiveUp { silent } => MembershipReply::GivenUp(connection.give_up(silent).await?),
            MembershipCall::Take { member, names } => {
                MembershipReply::Taken(take(connection, member, names).await?)
            }
            MembershipCall::Release { member, held } => {
                MembershipReply::Released(release(connection, member, held).await?)
            }
            MembershipCall::Remove { member } => {
                connection.remove(member).await?;
                MembershipReply::Removed
            }
            MembershipCall::Clear { malformed } => {
                connection.clear(malformed).await?;
                MembershipReply::Cleared
            }
        })
    }
}

async fn enter<C: MembershipStatements>(
    connection: &mut C,
    now: Timestamp,
    joining: &Joining,
) -> Result<(), Fault> {
    let Joining { member, card, ttl } = joining;
    let ttl_us = counter(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
    let values = [value(member.as_str()), value(ttl_us), value(now), value(now), value(card.as_str())];
    connection.send_alone(ServerCall::new(C::ENTER, values)).await.map(drop)
}

async fn take<C: MembershipStatements>(
    connection: &mut C,
    member: &MemberId,
    names: &[LeaseName],
) -> Result<Vec<Take>, Fault> {
    let counted = ServerCall::new(C::COUNT_AS_BEAT, [value(member.as_str())]);
    let locked = lock_leases::<C>(names.iter().copied());
    let found = connection.send(TransactionFrame::Begin, vec![counted, locked]).await?;
    let [counted, found] = found.as_slice() else { return Err(Fault::Missing("an answer".to_owned())) };
    if counted.count == 0 {
        connection.send(TransactionFrame::Commit, vec![]).await?;
        return Ok(vec![Take::GivenUp; names.len()]);
    }
    let leases = leases(&found.rows)?;
    connection.send(TransactionFrame::None, vec![repair::<C>(&leases)]).await?;
    let found = [leases.found, leases.malformed].concat();
    let known: Vec<LeaseName> = found.iter().map(|row| row.name).collect();
    let taken = take_rows(found, member, names);
    let (kept, new): (Vec<&LeaseRow>, Vec<&LeaseRow>) =
        taken.changed.iter().partition(|row| known.contains(&row.name));
    let calls = vec![
        ServerCall::new(C::HOLD, [lease_list(kept), value(member.as_str())]),
        ServerCall::new(C::MAKE, [value(member.as_str()), lease_list(new)]),
    ];
    write(connection, calls, taken.changed.len()).await?;
    Ok(taken.answers)
}

async fn release<C: MembershipStatements>(
    connection: &mut C,
    member: &MemberId,
    held: &[HeldLease],
) -> Result<Vec<bool>, Fault> {
    let locked = lock_leases::<C>(held.iter().map(|lease| lease.name));
    let found = leases(&connection.send_one(TransactionFrame::Begin, locked).await?.rows)?.found;
    let released = release_rows(&found, member, held);
    let freed: Vec<&LeaseRow> = found.iter().filter(|row| released.freed.contains(&row.name)).collect();
    let count = freed.len();
    let free = ServerCall::new(C::FREE, [lease_list(freed), value(member.as_str())]);
    write(connection, vec![free], count).await?;
    Ok(released.answers)
}

/// Writes this many leases and commits. A row that differs from what was read was changed on another node.
async fn write<C: MembershipStatements>(
    connection: &mut C,
    calls: Vec<ServerCall<'_>>,
    count: usize,
) -> Result<(), Fault> {
    if !C::CHECKS_WRITES {
        return connection.send(TransactionFrame::Commit, calls).await.map(drop);
    }
    let written = connection.send(TransactionFrame::None, calls).await?;
    all_changed(written.iter().map(|answer| answer.count).sum(), count)?;
    connection.send(TransactionFrame::Commit, vec![]).await.map(drop)
}

pub(crate) fn all_changed(changed: u64, count: usize) -> Result<(), Fault> {
    if changed == count as u64 {
        return Ok(());
    }
    Err(Fault::Conflict("a lease has changed since it was read".to_owned()))
}

/// Locks rows ordered by name.
pub(crate) fn lock_leases<'a, C: MembershipStatements>(
    names: impl Iterator<Item = LeaseName>,
) -> ServerCall<'a> {
    let names: BTreeSet<String> = names.map(|name| name.to_string()).collect();
    let names = List::of(names.into_iter().map(|name| row![name]));
    ServerCall::new(C::LOCK_LEASES, [Argument::Rows(names)])
}

pub(crate) fn repair<'a, C: MembershipStatements>(leases: &Leases) -> ServerCall<'a> {
    ServerCall::new(C::REPAIR, [lease_list(&leases.malformed)])
}

/// Names and epochs.
pub(crate) fn lease_list<'a, 'row>(rows: impl IntoIterator<Item = &'row LeaseRow>) -> Argument<'a> {
    Argument::Rows(List::of(rows.into_iter().map(|row| row![row.name.to_string(), row.epoch.0])))
}

pub(crate) fn member_list<'a>(ids: impl IntoIterator<Item = &'a str>) -> Argument<'a> {
    Argument::Rows(List::of(ids.into_iter().map(|id| row![id])))
}

pub(crate) fn leases<R: RowCells>(rows: &[R]) -> Result<Leases, Fault> {
    let lease = |row: &R| -> Result<RawLease, Fault> { Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?)) };
    Ok(read::leases(rows.iter().map(lease).collect::<Result<_, _>>()?))
}
