//! The writing verbs, each inside a transaction that the caller opens and commits. They read rows, ask the
//! rules, and write what the rules return; they decide nothing. They are written once, over [`Rows`], and
//! know no database.
//!
//! A verb stops if a row is not loaded yet, and runs again from its beginning after the row is loaded. So a
//! verb takes its write by reference, and keeps no state outside the rows.

mod begin;
mod claim;
mod control;
mod dependents;
mod fire;
mod keys;
mod lease;
mod look;
mod missing_rows;
mod notes;
mod queues;
mod readmission;
mod report;
mod requests;
mod sessions;
mod settle;
mod wait_lists;

use crate::fault::Fault;
use crate::rows::Rows;
use punctual_core::ports::{Write, WriteReply};

pub(crate) use control::forget;
pub(crate) use keys::keys_of;

pub(crate) fn perform<R: Rows>(rows: &mut R, write: &Write) -> Result<WriteReply, Fault> {
    Ok(match write {
        Write::Submit { now, jobs } => WriteReply::Submitted(begin::submit(rows, *now, jobs)?),
        Write::Fire { now, fires, calendars } => WriteReply::Fired(fire::fire(rows, *now, fires, calendars)?),
        Write::Look { now, looks } => WriteReply::Looked(look::look(rows, *now, looks)?),
        Write::Resolve { now, limit } => WriteReply::Resolved(dependents::resolve(rows, *now, *limit)?),
        Write::Claim { now, claims } => WriteReply::Claimed(claim::claim(rows, *now, claims)?),
        Write::Report { now, reports } => WriteReply::Reported(report::report(rows, *now, reports)?),
        Write::Note { now, notes } => WriteReply::Noted(notes::note(rows, *now, notes)?),
        Write::GiveBack { now, session, leases } => {
            WriteReply::GivenBack(lease::give_back(rows, *now, *session, leases)?)
        }
        Write::Resync { now, resync } => WriteReply::Resynced(lease::resync(rows, *now, resync)?),
        Write::OpenSession { now, opening } => {
            WriteReply::SessionOpened(sessions::open_session(rows, *now, opening)?)
        }
        Write::Beat { now, beats } => WriteReply::Beaten(sessions::beat(rows, *now, beats)?),
        Write::LoseSessions { silent, .. } => WriteReply::SessionsLost(sessions::lose(rows, silent)?),
        Write::LoseEmbeddedSessions { .. } => {
            WriteReply::EmbeddedSessionsLost(sessions::lose_embedded(rows)?)
        }
        Write::Recover { now, limit } => WriteReply::Recovered(sessions::recover(rows, *now, *limit)?),
        Write::CloseSession { now, session } => {
            WriteReply::SessionClosed(lease::close_session(rows, *now, *session)?)
        }
        Write::OrderSession { session, order } => {
            WriteReply::SessionOrdered(sessions::order(rows, *session, *order)?)
        }
        Write::Control { now, controls } => WriteReply::Controlled(control::control(rows, *now, controls)?),
        Write::Cancel { now, executions } => WriteReply::Cancelled(control::cancel(rows, *now, executions)?),
        Write::Redrive { now, dead } => WriteReply::Redriven(control::redrive(rows, *now, dead)?),
        Write::Discard { dead } => WriteReply::Discarded(control::discard(rows, dead)?),
        Write::PauseQueue { now, queue, pausing } => {
            WriteReply::QueuePaused(queues::pause_queue(rows, *now, queue, *pausing)?)
        }
        Write::SetQueue { queue, change } => {
            queues::set_queue(rows, queue, change)?;
            WriteReply::QueueSet
        }
        Write::Admit { now, lines, limit } => {
            WriteReply::Admitted(wait_lists::admit(rows, *now, lines, *limit)?)
        }
        Write::BeginRequest { now, request } => {
            WriteReply::RequestBegun(requests::begin(rows, *now, request)?)
        }
        Write::AnswerRequest { request, answer } => {
            rows.answer_request(request, answer)?;
            WriteReply::RequestAnswered
        }
        Write::Audited { write, entries } => {
            let reply = perform(rows, write)?;
            for audited in entries {
                rows.put_audit(&audited.answered(&reply))?;
            }
            reply
        }
    })
}
