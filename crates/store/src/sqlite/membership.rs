//! The membership table in the embedded store. It knows its two tables and no rule.

use super::rows::{all, counter};
use crate::fault::Fault;
use crate::membership::read::{self, EitherRow, Leases, RawLease};
use crate::membership::{MembershipCall, MembershipReply};
use punctual_core::ports::{
    Entries, Joining, LeaseName, MalformedRow, MemberId, MemberPulse, MembershipTableName, Standing, Take,
    release_rows, take_rows,
};
use punctual_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

const ENTER: &str = "INSERT INTO cluster_members (id, beat, ttl_us, entered_at, beaten_at, card) \
     VALUES (?1, 1, ?2, ?3, ?3, ?4) \
     ON CONFLICT (id) DO UPDATE SET beat = beat + 1, ttl_us = ?2, beaten_at = ?3, card = ?4";
const BEAT: &str = "UPDATE cluster_members SET beat = beat + 1, beaten_at = ?2, card = ?3 WHERE id = ?1";
const COUNT_AS_BEAT: &str = "UPDATE cluster_members SET beat = beat + 1 WHERE id = ?1";
const GIVE_UP: &str = "DELETE FROM cluster_members WHERE id = ?1 AND beat = ?2";
const REMOVE: &str = "DELETE FROM cluster_members WHERE id = ?1";
const FREE_ALL: &str = "UPDATE cluster_leases SET holder = NULL WHERE holder = ?1";
const LEASES: &str = "SELECT name, epoch, holder FROM cluster_leases";
const HOLD: &str = "INSERT INTO cluster_leases (name, epoch, holder) VALUES (?1, ?2, ?3) \
     ON CONFLICT (name) DO UPDATE SET epoch = ?2, holder = ?3";
const FREE: &str = "UPDATE cluster_leases SET holder = NULL WHERE name = ?1";
/// For a lease whose row is malformed.
const REPAIR: &str = "UPDATE cluster_leases SET epoch = ?2, holder = NULL WHERE name = ?1";
/// Both tables in one snapshot.
const ENTRIES: &str = "SELECT 0, id, beat, ttl_us, card FROM cluster_members \
     UNION ALL SELECT 1, holder, epoch, 0, name FROM cluster_leases WHERE holder IS NOT NULL";

pub(crate) fn perform(conn: &Connection, call: &MembershipCall) -> Result<MembershipReply, Fault> {
    Ok(match call {
        MembershipCall::Enter { now, joining } => {
            enter(conn, *now, joining)?;
            MembershipReply::Entered
        }
        MembershipCall::Beat { now, member, card } => {
            MembershipReply::Beaten(beat(conn, *now, member, card)?)
        }
        MembershipCall::GiveUp { silent } => {
            let given_up = silent.iter().map(|pulse| give_up(conn, pulse)).collect::<Result<_, _>>()?;
            MembershipReply::GivenUp(given_up)
        }
        MembershipCall::Take { member, names } => MembershipReply::Taken(take(conn, member, names)?),
        MembershipCall::Release { member, held } => {
            let released = release_rows(&leases(conn)?.found, member, held);
            for name in released.freed {
                conn.prepare_cached(FREE)?.execute([name.to_string()])?;
            }
            MembershipReply::Released(released.answers)
        }
        MembershipCall::Remove { member } => {
            remove(conn, member.as_str())?;
            MembershipReply::Removed
        }
        MembershipCall::Clear { malformed } => {
            clear(conn, malformed)?;
            MembershipReply::Cleared
        }
    })
}

fn enter(conn: &Connection, now: Timestamp, joining: &Joining) -> Result<(), Fault> {
    let Joining { member, card, ttl } = joining;
    let ttl_us = counter(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
    conn.prepare_cached(ENTER)?.execute(params![member.as_str(), ttl_us, now.as_micros(), card])?;
    Ok(())
}

fn beat(conn: &Connection, now: Timestamp, member: &MemberId, card: &str) -> Result<Standing, Fault> {
    let found = conn.prepare_cached(BEAT)?.execute(params![member.as_str(), now.as_micros(), card])?;
    Ok(if found == 0 { Standing::GivenUp } else { Standing::Alive })
}

fn give_up(conn: &Connection, silent: &MemberPulse) -> Result<bool, Fault> {
    let id = silent.member.as_str();
    let is_removed = conn.prepare_cached(GIVE_UP)?.execute(params![id, counter(silent.beat)])? > 0;
    if is_removed {
        conn.prepare_cached(FREE_ALL)?.execute([id])?;
    }
    Ok(is_removed)
}

fn remove(conn: &Connection, id: &str) -> Result<(), Fault> {
    conn.prepare_cached(REMOVE)?.execute([id])?;
    conn.prepare_cached(FREE_ALL)?.execute([id])?;
    Ok(())
}

fn clear(conn: &Connection, malformed: &[MalformedRow]) -> Result<(), Fault> {
    for row in malformed.iter().filter(|row| row.table == MembershipTableName::Members) {
        remove(conn, &row.key)?;
    }
    repair(conn, &leases(conn)?)
}

fn repair(conn: &Connection, leases: &Leases) -> Result<(), Fault> {
    for row in &leases.malformed {
        conn.prepare_cached(REPAIR)?.execute(params![row.name.to_string(), counter(row.epoch.0)])?;
    }
    Ok(())
}

fn take(conn: &Connection, member: &MemberId, names: &[LeaseName]) -> Result<Vec<Take>, Fault> {
    if conn.prepare_cached(COUNT_AS_BEAT)?.execute([member.as_str()])? == 0 {
        return Ok(vec![Take::GivenUp; names.len()]);
    }
    let leases = leases(conn)?;
    repair(conn, &leases)?;
    let rows = [leases.found, leases.malformed].concat();
    let taken = take_rows(rows, member, names);
    for row in taken.changed {
        conn.prepare_cached(HOLD)?.execute(params![
            row.name.to_string(),
            counter(row.epoch.0),
            member.as_str()
        ])?;
    }
    Ok(taken.answers)
}

fn leases(conn: &Connection) -> Result<Leases, Fault> {
    let rows: Vec<RawLease> = all(&mut *conn.prepare_cached(LEASES)?, [], |row| {
        let holder = if row.get_ref(2)? == ValueRef::Null { None } else { Some(text(row, 2)?) };
        Ok((text(row, 0)?, row.get(1)?, holder))
    })?;
    Ok(read::leases(rows))
}

/// Also reads invalid text: SQLite accepts any bytes as text.
fn text(row: &Row<'_>, column: usize) -> Result<String, Fault> {
    match row.get_ref(column)? {
        ValueRef::Text(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Ok(row.get(column)?),
    }
}

pub(super) fn entries(conn: &Connection) -> Result<Entries, Fault> {
    let rows: Vec<EitherRow> = all(&mut *conn.prepare_cached(ENTRIES)?, [], |row| {
        Ok((row.get(0)?, text(row, 1)?, row.get(2)?, row.get(3)?, text(row, 4)?))
    })?;
    Ok(read::entries(rows))
}
