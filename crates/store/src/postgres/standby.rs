//! A standby from which lists may be read: whether it answers, and whether it is close enough to its
//! primary.
//!
//! A standby cannot say how far behind it is. If nothing is written, its latest change is old although it
//! lacks nothing. If it has lost its primary, it does not know what it lacks. So the primary is asked from
//! time to time how far it has written, and the standby how far it has replayed. The lag is at most the age
//! of the latest of these marks that the standby has passed, by our own clock. A standby that has passed no
//! recent mark is not used.

use crate::fault::Fault;
use deadpool_postgres::Pool;
use punctual_core::limits;
use punctual_core::ports::Denial;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::{Instant, timeout};

/// How far a primary has written, in bytes since its beginning.
const WRITTEN: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";
/// How far a standby has replayed. NULL if it is not a standby: its databases may be replicated by other
/// means, about which nothing is known.
const REPLAYED: &str = "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint";

pub(super) struct Replica {
    pool: Pool,
    state: Mutex<ReplicaState>,
}

#[derive(Default)]
struct ReplicaState {
    /// The standby is not tried before this time.
    rests_until: Option<Instant>,
    /// When its lag was last checked.
    looked_at: Option<Instant>,
    is_near: bool,
    /// The earliest comes first.
    marks: VecDeque<WrittenMark>,
}

/// How far the primary had written at a time.
#[derive(Debug, Clone, Copy)]
struct WrittenMark {
    at: Instant,
    written: i64,
}

impl Replica {
    pub fn new(pool: Pool) -> Self {
        Replica { pool, state: Mutex::default() }
    }

    /// Its connection pool, unless it is too far behind or failed a moment ago.
    pub async fn near(&self, primary: &Pool) -> Option<&Pool> {
        let now = Instant::now();
        let must_look = {
            let mut state = self.state();
            if state.rests_until.is_some_and(|until| now < until) {
                return None;
            }
            state.must_look(now)
        };
        if must_look && let Err(fault) = self.look(primary).await {
            self.rest(&fault.to_string());
            return None;
        }
        self.state().is_near.then_some(&self.pool)
    }

    /// Does not use it for a while.
    pub fn rest(&self, reason: &str) {
        tracing::warn!(reason, "the replica cannot be read: lists are read from the primary for now");
        let mut state = self.state();
        state.rests_until = Some(Instant::now() + limits::REPLICA_REST);
        state.looked_at = None;
    }

    async fn look(&self, primary: &Pool) -> Result<(), Fault> {
        // If the primary is unreachable, no mark is added, and the existing ones age.
        if let Ok(Some(written)) = number(primary, WRITTEN).await {
            self.state().marks.push_back(WrittenMark { at: Instant::now(), written });
        }
        let replayed = match number(&self.pool, REPLAYED).await {
            Ok(replayed) => replayed,
            // A server that does not know the function, or denies access to it, cannot be judged by it.
            Err(Fault::Postgres(_) | Fault::Denied(Denial::Right, _)) => None,
            Err(fault) => return Err(fault),
        };
        self.state().judge(replayed, Instant::now());
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, ReplicaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaState {
    /// Whether this caller must run the check. Others use the last result meanwhile.
    fn must_look(&mut self, now: Instant) -> bool {
        let is_due = self.looked_at.is_none_or(|looked_at| now >= looked_at + limits::REPLICA_LOOK_INTERVAL);
        if is_due {
            self.looked_at = Some(now);
        }
        is_due
    }

    fn judge(&mut self, replayed: Option<i64>, now: Instant) {
        while self.marks.front().is_some_and(|mark| now > mark.at + limits::REPLICA_BEHIND_MAX) {
            self.marks.pop_front();
        }
        let has_passed = |replayed: i64| self.marks.iter().any(|mark| mark.written <= replayed);
        let is_near = replayed.is_none_or(has_passed);
        if self.is_near && !is_near {
            let seconds = limits::REPLICA_BEHIND_MAX.as_secs();
            tracing::warn!("the replica is more than {seconds} s behind: lists are read from the primary");
        }
        self.is_near = is_near;
    }
}

async fn number(pool: &Pool, sql: &str) -> Result<Option<i64>, Fault> {
    let asked = async {
        let client = pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query_one(&statement, &[]).await?.try_get(0)?)
    };
    let seconds = limits::DATABASE_HOST_TIMEOUT.as_secs_f64();
    timeout(limits::DATABASE_HOST_TIMEOUT, asked)
        .await
        .unwrap_or_else(|_| Err(Fault::Away(format!("it has not answered within {seconds} s"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_standby_that_has_passed_a_recent_mark_is_used() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut state = ReplicaState::default();
        let mut judged = |mark: Option<i64>, replayed, seconds| {
            state.marks.extend(mark.map(|written| WrittenMark { at: after(seconds), written }));
            state.judge(replayed, after(seconds));
            state.is_near
        };
        assert!(!judged(Some(100), Some(90), 0), "the lag is not known yet");
        assert!(judged(Some(200), Some(100), 1), "it has replayed what the primary had written a second ago");
        assert!(judged(Some(300), Some(100), 10), "it has made no progress, but not for long");
        assert!(!judged(Some(400), Some(100), 12), "it has passed no recent mark");
        assert!(judged(Some(400), Some(400), 13), "nothing is written, and it has replayed everything");
        assert!(judged(None, Some(400), 20), "the primary is unreachable");
        assert!(!judged(None, Some(400), 40), "unreachable for so long that the lag is unknown");
        assert!(judged(None, None, 41), "it is not a standby");
    }

    #[test]
    fn one_caller_at_a_time_checks_the_lag() {
        let (start, mut state) = (Instant::now(), ReplicaState::default());
        assert!(state.must_look(start));
        assert!(!state.must_look(start));
        assert!(state.must_look(start + limits::REPLICA_LOOK_INTERVAL));
    }
}
