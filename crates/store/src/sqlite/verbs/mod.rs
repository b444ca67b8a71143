//! The writing verbs, each inside a transaction that someone else opens and commits. They read, ask the rules,
//! and write what the rules said; they decide nothing.

mod begin;
mod claim;
mod control;
mod dependents;
mod fire;
mod house;
mod keys;
mod lease;
mod look;
mod notes;
mod queues;
mod report;
mod requests;
mod sessions;
mod tags;

use super::core::Tx;
use super::fault::Fault;
use super::write::{Write, WriteReply};

pub use house::Purged;

pub(crate) use {claim::FIRST_OF_LANE, notes::read_checkpoint, report::DELETE_LIVE};
#[cfg(test)]
pub(crate) use {
    claim::NEXT_LANE_WITH_WORK, claim::NEXT_OF_LANE, dependents::CHILDREN, dependents::FORGET_PARENTS,
    dependents::HAS_PARENT, fire::COUNT_OPEN, fire::LENGTHEN_SKIPPED, fire::SCHEDULE_OF_JOB,
    house::JOBS_AFTER, house::LAST_COMPLETED, house::PURGEABLE, house::RETAIN_REQUESTS, keys::IS_UNFINISHED,
    lease::FIRST_BEHIND, lease::LIVE_OF_SESSION, notes::CHECKPOINT, notes::FORGET_NOTES,
    report::HAS_OPEN_NOT_IN_LINE, tags::FORGET_TAGS,
};

pub(crate) fn perform(tx: &mut Tx<'_>, write: Write) -> Result<WriteReply, Fault> {
    Ok(match write {
        Write::Submit { now, jobs } => WriteReply::Submitted(begin::submit(tx, now, jobs)?),
        Write::Fire { now, fires } => WriteReply::Fired(fire::fire(tx, now, fires)?),
        Write::Look { now, looks } => WriteReply::Looked(look::look(tx, now, looks)?),
        Write::Resolve { now, limit } => WriteReply::Resolved(dependents::resolve(tx, now, limit)?),
        Write::Claim { now, claims } => WriteReply::Claimed(claim::claim(tx, now, claims)?),
        Write::Report { now, reports } => WriteReply::Reported(report::report(tx, now, reports)?),
        Write::Note { now, notes } => WriteReply::Noted(notes::note(tx, now, notes)?),
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
        Write::OrderSession { session, order } => {
            WriteReply::SessionOrdered(sessions::order(tx, session, order)?)
        }
        Write::Control { now, controls } => WriteReply::Controlled(control::control(tx, now, controls)?),
        Write::Cancel { now, executions } => WriteReply::Cancelled(control::cancel(tx, now, executions)?),
        Write::Redrive { now, dead } => WriteReply::Redriven(control::redrive(tx, now, dead)?),
        Write::Discard { dead } => WriteReply::Discarded(control::discard(tx, dead)?),
        Write::PauseQueue { now, queue, pausing } => {
            WriteReply::QueuePaused(queues::pause_queue(tx, now, &queue, pausing)?)
        }
        Write::SetQueue { queue, settings } => {
            queues::set_queue(tx, &queue, settings)?;
            WriteReply::QueueSet
        }
        Write::BeginRequest { now, request } => WriteReply::RequestBegun(requests::begin(tx, now, request)?),
        Write::AnswerRequest { request, answer } => {
            requests::answer(tx, &request, &answer)?;
            WriteReply::RequestAnswered
        }
        Write::Retain { horizon, limit } => WriteReply::Retained(house::retain(tx, horizon, limit)?),
        Write::Retire { now, retirement } => WriteReply::Retired(house::retire(tx, now, retirement)?),
        Write::Purge { before, limit } => WriteReply::Purged(house::purge(tx, before, limit)?),
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
