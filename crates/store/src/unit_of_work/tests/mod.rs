//! Tests of units of work over an in-memory database.

mod locks;
mod rounds;
mod simulated_server;
mod together;
mod walk;
mod writers;

use super::memory::WriterMemory;
use super::runner::Runner;
use crate::tokio_host::tokio_host;
use punctual_core::ids::SessionId;
use punctual_core::job::Job;
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, NewJob, Outcome, Report, ReportOutcome, StoreError, Write, WriteReply,
};
use punctual_core::time::Timestamp;
use simulated_server::MemoryTables;

pub(super) use crate::sqlite::tests::{at, future_job, job, opening};

/// A store over units of work, on one connection.
#[derive(Default)]
struct Store {
    tables: MemoryTables,
    memory: WriterMemory,
}

impl Store {
    async fn run(&mut self, writes: &[Write]) -> Vec<Result<WriteReply, StoreError>> {
        let host = tokio_host(7);
        Runner { tables: &mut self.tables, memory: &self.memory, host: &host }.run(writes).await
    }

    /// Runs one write that must succeed.
    async fn apply(&mut self, write: Write) -> WriteReply {
        self.run(&[write]).await.pop().unwrap().unwrap()
    }

    async fn open_session(&mut self) -> SessionId {
        match self.apply(Write::OpenSession { now: at(0), opening: opening() }).await {
            WriteReply::SessionOpened(session) => session,
            other => panic!("{other:?}"),
        }
    }

    async fn claim(&mut self, session: SessionId, turn: u64, limit: usize) -> Vec<Assignment> {
        assignments(self.apply(claim(session, turn, limit)).await)
    }

    async fn report(
        &mut self,
        session: SessionId,
        held: &[Assignment],
        outcome: Outcome,
    ) -> Vec<ReportOutcome> {
        match self.apply(report(session, held, outcome)).await {
            WriteReply::Reported(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }
}

fn submit_at(now: Timestamp, jobs: impl IntoIterator<Item = Job>) -> Write {
    Write::Submit { now, jobs: jobs.into_iter().map(|job| NewJob { job, reservation: None }).collect() }
}

fn submit(jobs: impl IntoIterator<Item = Job>) -> Write {
    submit_at(at(1), jobs)
}

fn claim(session: SessionId, turn: u64, limit: usize) -> Write {
    let claim = Claim { session, turn, limit, queues: vec![], job_types: vec!["noop".to_owned()] };
    Write::Claim { now: at(2), claims: vec![claim] }
}

fn assignments(reply: WriteReply) -> Vec<Assignment> {
    match reply {
        WriteReply::Claimed(mut outcomes) => match outcomes.pop() {
            Some(ClaimOutcome::Claimed { assignments, .. }) => assignments,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn report(session: SessionId, held: &[Assignment], outcome: Outcome) -> Write {
    let report = |assignment: &Assignment| Report {
        session,
        lease: assignment.lease(),
        end: outcome.clone().into_end(at(2), at(3)),
    };
    Write::Report { now: at(3), reports: held.iter().map(report).collect() }
}

fn success() -> Outcome {
    Outcome::Succeeded { result: None }
}

fn failure() -> Outcome {
    Outcome::failed_for_good("no".to_owned())
}
