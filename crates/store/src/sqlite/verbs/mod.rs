//! The writing verbs, each inside a transaction that someone else opens and commits. They read, ask the rules,
//! and write what the rules said; they decide nothing.

mod begin;
mod claim;
mod fire;
mod house;
mod lease;
mod open;
mod report;
mod sessions;

use super::core::Tx;
use super::fault::Fault;
use super::write::{Write, WriteReply};

pub(crate) use {claim::FIRST_OF_LANE, report::DELETE_LIVE};
#[cfg(test)]
pub(crate) use {
    claim::NEXT_LANE_WITH_WORK, claim::NEXT_OF_LANE, fire::COUNT_OPEN, fire::LENGTHEN_SKIPPED,
    fire::SCHEDULE_OF_JOB, lease::LIVE_OF_SESSION,
};

pub(crate) fn perform(tx: &mut Tx<'_>, write: Write) -> Result<WriteReply, Fault> {
    Ok(match write {
        Write::Submit { now, jobs } => WriteReply::Submitted(begin::submit(tx, now, jobs)?),
        Write::Fire { now, fires } => WriteReply::Fired(fire::fire(tx, now, fires)?),
        Write::OpenTimeGates { now, gates } => {
            WriteReply::TimeGatesOpened(open::open_time_gates(tx, now, gates)?)
        }
        Write::Claim { now, claims } => WriteReply::Claimed(claim::claim(tx, now, claims)?),
        Write::Report { now, reports } => WriteReply::Reported(report::report(tx, now, reports)?),
        Write::GiveBack { now, session, leases } => {
            WriteReply::GivenBack(lease::give_back(tx, now, session, leases)?)
        }
        Write::Resync { now, resync } => WriteReply::Resynced(lease::resync(tx, now, resync)?),
        Write::OpenSession { now, opening } => {
            WriteReply::SessionOpened(sessions::open_session(tx, now, opening)?)
        }
        Write::Beat { now, beats } => WriteReply::Beaten(sessions::beat(tx, now, beats)?),
        Write::LoseSessions { silent, .. } => WriteReply::SessionsLost(sessions::lose(tx, silent)?),
        Write::LoseEmbeddedSessions { .. } => WriteReply::EmbeddedSessionsLost(sessions::lose_embedded(tx)?),
        Write::Recover { now, limit } => WriteReply::Recovered(sessions::recover(tx, now, limit)?),
        Write::CloseSession { now, session } => {
            WriteReply::SessionClosed(lease::close_session(tx, now, session)?)
        }
        Write::Retain { before, limit } => WriteReply::Retained(house::retain(tx, before, limit)?),
        Write::Probe { now } => {
            house::probe(tx, now)?;
            WriteReply::Probed
        }
        Write::PutToken { token } => {
            house::put_token(tx, &token)?;
            WriteReply::TokenPut
        }
    })
}
