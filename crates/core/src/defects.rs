//! Rules broken on purpose, so that the simulator can show that it would notice.
//!
//! Compiled only with the `planted-defects` feature, which nothing but the simulator turns on; without it
//! [`planted`] is a constant `false` and the branches disappear.

/// One deliberately broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A fire no longer compares the schedule's version.
    DropVersionCheck,
    /// A report is accepted whatever its lease epoch.
    DropEpoch,
    /// A session is lost by the age of its last beat on the wall clock, not by an observer's own clock.
    ExpireByWallClock,
    /// Opening a gate does not look whether it was still closed.
    OpenGateTwice,
    /// A failed attempt that should be retried is dropped instead.
    LoseRetry,
    /// A poll is answered without comparing the session's turn, so a doubled message leases twice.
    DropTurn,
    /// A worker keeps its handlers running after its lease has run out.
    KeepRunningWithoutLease,
    /// A retry or give-back of a paused job's execution does not wait for the resume.
    ForgetPause,
    /// The end of an occurrence does not open the overlap gate of the one that waits behind it.
    ForgetFollower,
    /// A dependent is released when any of the jobs it depends on has succeeded.
    ReleaseByAnyParent,
    /// A claim hands out an execution whose expiry has passed.
    ClaimExpired,
    /// A unique key admits a second unfinished job.
    AdmitSecondHolder,
    /// A note is accepted whatever its lease epoch.
    AcceptStaleNote,
    /// An execution that moves to another lane is still counted in the old one.
    DriftTally,
    /// A session that people have paused or drain still claims.
    ClaimWhilePaused,
    /// A queue takes in one more than its `max_depth`.
    ExceedMaxDepth,
    /// A poll that waits is not looked at again when work may have appeared elsewhere.
    LoseWakeUp,
    /// Whoever follows history goes on one place too far after a full page.
    SkipHistoryRow,
    /// A scheduler that has lost coordination keeps to the segments that it had.
    KeepOldSegments,
    /// A segment that a scheduler takes later than its first ones is not scanned.
    ForgetTakenSegment,
    /// A limit lets one more go on than it has room for.
    AdmitOneTooMany,
    /// What becomes ready goes on although others wait in line.
    PassTheLine,
    /// A line moves from its end.
    AdmitTheLast,
    /// A start out of a line is not counted against the rate.
    ForgetPace,
    /// What has ended still counts against the limit of its key.
    KeepPlaceOfEnded,
    /// A line in which there is room again is not looked at, unless somebody joins it.
    ForgetLine,
    /// The lines of a paused queue move.
    MoveWhilePaused,
    /// A limit that becomes tighter does not reach what is queued.
    ForgetBacklog,
    /// What a worker has given back after holding it for too long, it starts all the same.
    KeepWhatIsGivenBack,
    /// Retention goes on by a clock that has jumped.
    RetainThroughClockJump,
    /// A replay that finds no room skips its occurrence instead of waiting.
    CutReplay,
    /// A regular occurrence is skipped because a replayed one is open.
    SkipForReplay,
}

impl Defect {
    pub const ALL: [Defect; 32] = [
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
    ];
}

#[cfg(feature = "planted-defects")]
mod active {
    use super::Defect;
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// Breaks one rule for everything that runs on this thread, or mends it again with `None`.
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

/// Whether this rule is broken: never, in a build for users.
#[cfg(not(feature = "planted-defects"))]
pub const fn planted(_defect: Defect) -> bool {
    false
}
