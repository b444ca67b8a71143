//! Which connected workers could run a job, and which of those accept no new work.

use punctual_core::job::JobSpec;
use punctual_core::ports::{Lane, SessionRow};
use punctual_core::session::SessionMode;

/// The workers that have a job's handler and serve its queue.
pub struct Able<'a> {
    /// Workers that accept work.
    pub open: Vec<&'a SessionRow>,
    /// Workers that are paused or draining, or that refuse work by themselves.
    pub held: Vec<&'a SessionRow>,
}

impl<'a> Able<'a> {
    pub fn to_run(spec: &JobSpec, sessions: &'a [SessionRow]) -> Self {
        Able::in_lane(&lane(spec), sessions)
    }

    pub fn in_lane(lane: &Lane, sessions: &'a [SessionRow]) -> Self {
        let able = sessions.iter().filter(|row| row.has_handler(lane.job_type()) && row.serves(lane.queue()));
        let (open, held) = able.partition(|row| row.mode == SessionMode::Open && row.refuses().is_empty());
        Able { open, held }
    }

    /// The workers that keep the job waiting: all workers that could run it, if none of them accepts work.
    pub fn in_the_way(&self) -> &[&'a SessionRow] {
        if self.open.is_empty() { &self.held } else { &[] }
    }
}

/// The lane of a job's executions.
pub fn lane(spec: &JobSpec) -> Lane {
    Lane::new(&spec.queue, &spec.job_type)
}

/// The worker's name as its routes accept it. A name that several sessions share is ambiguous, so the session
/// id is used then.
pub fn unmistakable(row: &SessionRow, sessions: &[SessionRow]) -> String {
    let is_shared = sessions.iter().filter(|other| other.worker == row.worker).count() > 1;
    if is_shared { row.pulse.session.to_string() } else { row.worker.clone() }
}

/// A worker and the reason why it accepts no work.
pub fn held(row: &SessionRow) -> String {
    match row.mode {
        SessionMode::Open => format!("{} refuses work ({})", row.worker, row.refuses().join("; ")),
        SessionMode::Paused => format!("{} is paused", row.worker),
        SessionMode::Draining => format!("{} is draining", row.worker),
    }
}
