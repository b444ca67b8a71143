//! A worker's port with the auditor attached: forwards everything, and reports requests and responses.

use crate::world::World;
use async_trait::async_trait;
use punctual_core::blobs::BlobReference;
use punctual_core::ids::SessionId;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Assignment, BeatAnswer, BlobError, BlobParts, Heartbeat, LeaseRef, LogLine, Poll, Report, ReportAnswer,
    Served, SessionGrant, SessionOpening, WorkerPort, WorkerPortError,
};
use punctual_core::slots::Demand;
use std::sync::Arc;

pub struct ObservedPort {
    pub world: Arc<World>,
    pub node: usize,
    pub port: Arc<dyn WorkerPort>,
}

#[async_trait]
impl WorkerPort for ObservedPort {
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError> {
        self.port.open_session(opening).await
    }

    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError> {
        self.world.tell(|auditor| auditor.polled(&poll));
        let answer = self.port.poll(poll.clone()).await;
        if let Ok(assignments) = &answer {
            self.world.audit(|auditor| auditor.got_assignments(&poll, assignments));
        }
        self.world.tell(|auditor| auditor.poll_is_over(&poll));
        answer
    }

    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError> {
        self.port.beat(heartbeat).await
    }

    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError> {
        self.port.demand(served).await
    }

    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        self.port.report(reports).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        self.port.note(notes).await
    }

    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        self.world.audit(|auditor| auditor.returns_leases(self.node, session, &leases));
        self.port.give_back(session, leases).await
    }

    async fn resync(
        &self,
        session: SessionId,
        turn: u64,
        held: Vec<LeaseRef>,
    ) -> Result<(), WorkerPortError> {
        self.port.resync(session, turn, held).await
    }

    async fn append_logs(&self, session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError> {
        self.port.append_logs(session, lines).await
    }

    async fn store_result(
        &self,
        session: SessionId,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        self.port.store_result(session, lease, parts).await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError> {
        self.port.close_session(session).await
    }
}
