//! Sessions: lost only after their counter has not changed for the whole lease, and with none of their
//! executions running.

use super::firing::answers_each;
use super::{AuditResult, Auditor, OccurrenceState, SessionModel, SessionState, rule};
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::ports::{
    Beat, BeatOutcome, CommitEffects, LeaseRef, Resync, ResyncOutcome, SessionOpening, SessionRow,
};
use punctual_core::session::{Pulse, SessionMode};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

impl Auditor {
    pub fn session_opened(&mut self, now: Timestamp, opening: &SessionOpening, id: SessionId) -> AuditResult {
        self.not_ahead(now)?;
        let session = SessionModel {
            opening: opening.clone(),
            state: SessionState::Live,
            mode: SessionMode::Open,
            mode_since: self.now,
            beat: 0,
            beaten_at: self.now,
            turn: 0,
            turn_call: 0,
        };
        let earlier = self.sessions.insert(id, session);
        rule!(earlier.is_none(), "a session id is never reused", "session {id} was {earlier:?}");
        Ok(())
    }

    pub fn beaten(&mut self, now: Timestamp, beats: &[Beat], outcomes: &[BeatOutcome]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("beat", beats.len(), outcomes.len())?;
        let true_now = self.now;
        for (beat, outcome) in beats.iter().zip(outcomes) {
            let session = self.session_mut(beat.session)?;
            let live = session.state == SessionState::Live;
            match outcome {
                BeatOutcome::Counted { cancel, drain, .. } => {
                    rule!(
                        live,
                        "only a live session beats",
                        "session {} is {:?}",
                        beat.session,
                        session.state
                    );
                    let drains_by_itself = beat.draining && session.mode != SessionMode::Draining;
                    if drains_by_itself {
                        (session.mode, session.mode_since) = (SessionMode::Draining, true_now);
                    }
                    rule!(
                        *drain == (session.mode == SessionMode::Draining),
                        "a worker gets the order to drain if it was given, or if the worker announced it",
                        "session {} is {:?} and got {drain}",
                        beat.session,
                        session.mode
                    );
                    if beat.beat > session.beat {
                        (session.beat, session.beaten_at) = (beat.beat, true_now);
                    }
                    self.stop_requests_are_complete(beat.session, cancel)?;
                    if drains_by_itself {
                        self.count("sessions that announce that they drain");
                    }
                }
                BeatOutcome::SessionLost => {
                    rule!(!live, "a live session is not called lost", "session {}", beat.session);
                }
            }
        }
        Ok(())
    }

    /// A heartbeat response lists exactly the executions that the session holds and should stop.
    fn stop_requests_are_complete(&mut self, session: SessionId, cancel: &[LeaseRef]) -> AuditResult {
        let mut expected = BTreeSet::new();
        for id in self.leased_to(session) {
            let occurrence = self.occurrence(id)?;
            if matches!(occurrence.state, OccurrenceState::Running { is_asked_to_stop: true, .. }) {
                expected
                    .insert(LeaseRef { execution: id.attempt(occurrence.attempt), epoch: occurrence.epoch });
            }
        }
        let requested: BTreeSet<LeaseRef> = cancel.iter().copied().collect();
        let mut is_right = expected.is_subset(&requested) && (requested == expected || self.is_overlapping);
        for lease in requested.difference(&expected) {
            // It ended after the transaction had read it.
            is_right &= !self.holds(session, *lease)?;
        }
        rule!(
            is_right,
            "a worker gets the executions that it is to stop",
            "session {session} got {requested:?}, asked for is {expected:?}"
        );
        if !requested.is_empty() {
            self.count("workers asked to stop something");
        }
        Ok(())
    }

    pub fn sessions_lost(&mut self, now: Timestamp, silent: &[Pulse], outcomes: &[bool]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("lose_sessions", silent.len(), outcomes.len())?;
        let true_now = self.now;
        for (pulse, lost) in silent.iter().zip(outcomes) {
            let id = pulse.session;
            let session = self.session_mut(id)?;
            if !lost || session.state == SessionState::Lost {
                continue;
            }
            let silent_for = true_now.since(session.beaten_at);
            rule!(
                session.state == SessionState::Live && pulse.beat == session.beat,
                "a session is lost only at the count that was seen",
                "session {id} is {:?} at {}, lost at {}",
                session.state,
                session.beat,
                pulse.beat
            );
            rule!(
                silent_for >= session.opening.lease,
                "a session is lost only after its counter did not change for the lease",
                "session {id} of {} was lost after {silent_for:?} of {:?}",
                session.opening.worker,
                session.opening.lease
            );
            session.state = SessionState::Lost;
            self.count("sessions lost");
            self.nothing_runs_under(id)?;
        }
        Ok(())
    }

    pub fn resynced(&mut self, now: Timestamp, resync: &Resync, outcome: &ResyncOutcome) -> AuditResult {
        self.not_ahead(now)?;
        let call = self.call;
        let session = self.session_mut(resync.session)?;
        let (live, used) = (session.state == SessionState::Live, session.turn);
        match outcome {
            ResyncOutcome::GivenBack(effects) => {
                rule!(
                    live && resync.turn > used,
                    "a resync uses a new poll sequence number",
                    "session {} with sequence number {} after {used}",
                    resync.session,
                    resync.turn
                );
                (session.turn, session.turn_call) = (resync.turn, call);
                self.count("resyncs");
                let held: BTreeSet<LeaseRef> = resync.held.iter().copied().collect();
                self.all_given_back(resync.session, &held, effects)
            }
            ResyncOutcome::StaleTurn => {
                rule!(
                    live && resync.turn <= used,
                    "a poll sequence number is stale only after it was used",
                    "session {} resynced with sequence number {} after {used}",
                    resync.session,
                    resync.turn
                );
                self.count("stale resyncs refused");
                Ok(())
            }
            ResyncOutcome::SessionLost => {
                rule!(!live, "a live session is not called lost", "session {}", resync.session);
                Ok(())
            }
        }
    }

    pub fn session_closed(&mut self, now: Timestamp, id: SessionId, outcome: &ResyncOutcome) -> AuditResult {
        self.not_ahead(now)?;
        let session = self.session_mut(id)?;
        let live = session.state == SessionState::Live;
        if let ResyncOutcome::GivenBack(effects) = outcome {
            if live {
                session.state = SessionState::Closed;
                self.count("sessions closed");
            }
            return self.all_given_back(id, &BTreeSet::new(), effects);
        }
        rule!(!live, "a live session is closed", "session {id} was answered {outcome:?}");
        Ok(())
    }

    fn all_given_back(
        &mut self,
        session: SessionId,
        held: &BTreeSet<LeaseRef>,
        effects: &[CommitEffects],
    ) -> AuditResult {
        for id in self.leased_to(session) {
            let occurrence = self.occurrence(id)?;
            let lease = LeaseRef { execution: id.attempt(occurrence.attempt), epoch: occurrence.epoch };
            if !held.contains(&lease) {
                self.unstart(id)?;
            }
        }
        let mut all = CommitEffects::default();
        effects.iter().for_each(|one| all.add(one.clone()));
        self.announced(&all)
    }

    fn leased_to(&self, session: SessionId) -> Vec<OccurrenceId> {
        let is_holder = |id: &OccurrenceId| {
            let state = self.occurrence(*id).map(|occurrence| occurrence.state);
            matches!(state, Ok(OccurrenceState::Running { session: holder, .. }) if holder == session)
        };
        self.running.iter().copied().filter(is_holder).collect()
    }

    /// Checks a read of all sessions.
    pub fn read_sessions(&mut self, rows: &[SessionRow]) -> AuditResult {
        let mut got: Vec<_> = rows.iter().map(|row| (row.pulse.session, row.pulse.beat, row.mode)).collect();
        got.sort_by_key(|(id, ..)| *id);
        let live = self.sessions.iter().filter(|(_, session)| session.state == SessionState::Live);
        let expected: Vec<_> = live.map(|(id, session)| (*id, session.beat, session.mode)).collect();
        rule!(
            got == expected,
            "all live sessions are read once, with their counters and modes",
            "expected {expected:?}, got {got:?}"
        );
        Ok(())
    }

    /// Sessions that are neither lost nor closed.
    pub fn live_sessions(&self) -> usize {
        self.sessions.values().filter(|session| session.state == SessionState::Live).count()
    }
}
