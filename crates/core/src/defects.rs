//! Deliberate defects, with which the simulator proves that it detects broken rules.
//!
//! Compiled only with the `planted-defects` feature, which only the simulator turns on. Without it,
//! [`planted`] is a constant `false` and the branches disappear.

/// One deliberately broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A fire no longer compares the schedule's version.
    DropVersionCheck,
    /// A report is accepted whatever its lease epoch.
    DropEpoch,
    /// A session expires by the age of its last heartbeat on the wall clock, not by an observer's monotonic
    /// clock.
    ExpireByWallClock,
    /// Opening a gate does not check whether it is still closed.
    OpenGateTwice,
    /// A failed attempt that should be retried is dropped instead.
    LoseRetry,
    /// A poll is answered without comparing its poll sequence number, so a duplicate message leases twice.
    DropTurn,
    /// A worker keeps its handlers running after its lease has expired.
    KeepRunningWithoutLease,
    /// A retry or give-back of a paused job's execution does not wait for the resume.
    ForgetPause,
    /// The end of an occurrence does not open the overlap gate of the next waiting one.
    ForgetFollower,
    /// A dependent is released when any of the jobs it depends on has succeeded.
    ReleaseByAnyParent,
    /// A claim hands out an execution whose expiry has passed.
    ClaimExpired,
    /// A unique key admits a second unfinished job.
    AdmitSecondHolder,
    /// A note is accepted whatever its lease epoch.
    AcceptStaleNote,
    /// An execution that moves to another lane still counts in the old one.
    DriftTally,
    /// A paused or draining session still claims.
    ClaimWhilePaused,
    /// A queue accepts one execution more than its `max_depth`.
    ExceedMaxDepth,
    /// A waiting poll is not checked again when work may have appeared elsewhere.
    LoseWakeUp,
    /// A follower of history skips one position after a full page.
    SkipHistoryRow,
    /// A scheduler that has lost coordination keeps the segments that it had.
    KeepOldSegments,
    /// A segment that a scheduler acquires after its first ones is not scanned.
    ForgetTakenSegment,
    /// A limit admits one execution more than it has room for.
    AdmitOneTooMany,
    /// An execution that becomes ready is admitted although others are on the wait list.
    PassTheLine,
    /// A wait list is served from its end.
    AdmitTheLast,
    /// A start from a wait list does not count against the rate.
    ForgetPace,
    /// An ended execution still counts against the limit of its key.
    KeepPlaceOfEnded,
    /// A wait list that has room again is not scanned until another execution joins it.
    ForgetLine,
    /// The wait lists of a paused queue are served.
    MoveWhilePaused,
    /// A limit that becomes tighter does not affect executions that are already queued.
    ForgetBacklog,
    /// A worker still starts an execution that it has given back after holding it for too long.
    KeepWhatIsGivenBack,
    /// Retention continues after its clock has jumped.
    RetainThroughClockJump,
    /// A replay without room skips its occurrence instead of waiting.
    CutReplay,
    /// A regular occurrence is skipped because a replayed one is open.
    SkipForReplay,
    /// An update restarts a schedule whose recurrence stays the same.
    RestartUnchanged,
    /// A server store claims queued executions without locking them.
    ClaimUnlocked,
    /// A server store reads rows before it has locked them.
    ReadBeforeLock,
    /// A transaction that the database rolled back is answered as if it had been committed.
    AnswerDespiteConflict,
    /// A transaction whose commit was not answered runs again, although it may have taken effect.
    RetryLostCommit,
    /// Of several executions that one transaction leases, the last is not written.
    DropRowOfBatch,
    /// Counters of verbs that ran before all rows were loaded are added to those of the next round.
    CountAgainOnRetry,
}

impl Defect {
    pub const ALL: [Defect; 39] = [
        Defect::DropVersionCheck,
        Defect::DropEpoch,
        Defect::ExpireByWallClock,
        Defect::OpenGateTwice,
        Defect::LoseRetry,
        Defect::DropTurn,
        Defect::KeepRunningWithoutLease,
        Defect::ForgetPause,
        Defect::ForgetFollower,
        Defect::ReleaseByAnyParent,
        Defect::ClaimExpired,
        Defect::AdmitSecondHolder,
        Defect::AcceptStaleNote,
        Defect::DriftTally,
        Defect::ClaimWhilePaused,
        Defect::ExceedMaxDepth,
        Defect::LoseWakeUp,
        Defect::SkipHistoryRow,
        Defect::KeepOldSegments,
        Defect::ForgetTakenSegment,
        Defect::AdmitOneTooMany,
        Defect::PassTheLine,
        Defect::AdmitTheLast,
        Defect::ForgetPace,
        Defect::KeepPlaceOfEnded,
        Defect::ForgetLine,
        Defect::MoveWhilePaused,
        Defect::ForgetBacklog,
        Defect::KeepWhatIsGivenBack,
        Defect::RetainThroughClockJump,
        Defect::CutReplay,
        Defect::SkipForReplay,
        Defect::RestartUnchanged,
        Defect::ClaimUnlocked,
        Defect::ReadBeforeLock,
        Defect::AnswerDespiteConflict,
        Defect::RetryLostCommit,
        Defect::DropRowOfBatch,
        Defect::CountAgainOnRetry,
    ];

    /// Those of the unit of work, which only runs on server stores show.
    pub const OF_SERVER_STORES: [Defect; 6] = [
        Defect::ClaimUnlocked,
        Defect::ReadBeforeLock,
        Defect::AnswerDespiteConflict,
        Defect::RetryLostCommit,
        Defect::DropRowOfBatch,
        Defect::CountAgainOnRetry,
    ];
}

#[cfg(feature = "planted-defects")]
mod active {
    use super::Defect;
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// Breaks one rule for all code on this thread; `None` restores it.
    pub fn plant(defect: Option<Defect>) {
        ACTIVE.with(|active| active.set(defect));
    }

    /// Whether this rule is broken on this thread.
    pub fn planted(defect: Defect) -> bool {
        ACTIVE.with(|active| active.get() == Some(defect))
    }
}

#[cfg(feature = "planted-defects")]
pub use active::{plant, planted};

/// Whether this rule is broken: never, in a production build.
#[cfg(not(feature = "planted-defects"))]
pub const fn planted(_defect: Defect) -> bool {
    false
}
