//! Records the locks of a transaction and asserts the rules about them. An in-memory database has no
//! concurrent transactions, so it checks the locks that would make them wait.

use super::memory_tables::Database;
use crate::draft::{Changes, Found, Wants};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default)]
pub(super) struct Locks {
    sessions: BTreeSet<SessionId>,
    jobs: BTreeSet<JobId>,
    live: BTreeSet<OccurrenceId>,
    stage: u8,
    /// The fetch in which a job was locked, and in which a key was last read.
    locked_in: BTreeMap<JobId, usize>,
    keys_read_in: BTreeMap<crate::rows::JobKey, usize>,
    fetches: usize,
}

impl Locks {
    /// Rows are locked kind by kind, and data about a job as a whole is read under its lock.
    pub fn fetched(&mut self, wants: &Wants, found: &Found) {
        self.fetches += 1;
        for stage in stages(wants) {
            assert!(stage >= self.stage, "kind {stage} after kind {}: {wants:?}", self.stage);
            self.stage = stage;
        }
        self.sessions.extend(&wants.sessions);
        self.sessions.extend(found.sessions.iter().map(|session| session.id));
        for job in wants.jobs.iter().chain(&wants.terms) {
            self.jobs.insert(*job);
            self.locked_in.entry(*job).or_insert(self.fetches);
        }
        self.live.extend(found.live.iter().map(|row| row.live.id));
        self.keys_read_in.extend(wants.keys.iter().map(|key| (key.clone(), self.fetches)));
        let of_jobs = wants.schedules.iter().chain(&wants.open_of_jobs).chain(&wants.parents_of);
        let dead = wants.dead_letters.iter().map(|id| &id.job);
        let dead = dead.chain(&wants.latest_dead_letters).chain(&wants.dead_of_jobs);
        for job in of_jobs.chain(dead) {
            assert!(self.jobs.contains(job), "{job} is not locked: {wants:?}");
        }
    }

    /// Written rows are locked, and so is the job of every change that affects the job as a whole.
    pub fn committing(&self, changes: &Changes, database: &Database) {
        let opened: BTreeSet<_> = changes.sessions_inserted.iter().map(|new| new.id).collect();
        for change in &changes.sessions_updated {
            assert!(self.sessions.contains(&change.id) || opened.contains(&change.id));
        }
        let jobs = changes.jobs_inserted.iter().chain(&changes.jobs_updated).map(|row| row.job.id);
        let marked = changes.marks.iter().map(|(job, _)| *job);
        let numbered = changes.numbered.iter().map(|numbered| numbered.job);
        let schedules = changes.schedules_inserted.iter().chain(&changes.schedules_updated);
        let schedules = schedules.map(|row| row.state.job).chain(changes.schedules_deleted.iter().copied());
        let opened = changes.live_inserted.iter().map(|row| row.live.id.job);
        let dead = changes.buried.iter().map(|buried| buried.finished.id.occurrence);
        let dead = dead.chain(changes.unburied.iter().copied()).map(|id| id.job);
        let tied = changes.dependencies_inserted.iter().flat_map(|tie| [tie.parent, tie.child]);
        let untied = changes.dependencies_deleted.iter().map(|tie| tie.child);
        let untied = untied.chain(changes.parents_forgotten.iter().copied());
        let told = changes.resolutions_inserted.iter().map(|(parent, _)| *parent);
        let all = jobs.chain(marked).chain(numbered).chain(schedules).chain(opened).chain(dead);
        for job in all.chain(tied).chain(untied).chain(told) {
            assert!(self.jobs.contains(&job), "{job} is written and not locked: {changes:?}");
        }
        self.check_live(changes, database);
        for (key, _) in &changes.keys_taken {
            let holder = database.keys[key];
            let is_read_after = self.keys_read_in[key] >= self.locked_in[&holder];
            assert!(is_read_after, "{key:?} was read before its holder was locked");
        }
    }

    fn check_live(&self, changes: &Changes, database: &Database) {
        let updated = changes.live_updated.iter().map(|row| &row.live.id);
        let updated = updated.chain(changes.leased.iter().map(|leased| &leased.id));
        for id in updated.chain(&changes.live_deleted) {
            assert!(self.live.contains(id), "{id:?} is written and not locked");
        }
        for id in &changes.live_deleted {
            let row = &database.live[id];
            // The only end that needs nothing of its job.
            let is_plain = row.is_sole && !row.live.ties.followed && !row.live.ties.awaited;
            assert!(is_plain || self.jobs.contains(&id.job), "{id:?} ends and its job is not locked");
        }
    }
}

fn stages(wants: &Wants) -> impl Iterator<Item = u8> {
    let sessions = !wants.sessions.is_empty() || wants.lost_sessions || wants.embedded_sessions;
    let jobs = !wants.jobs.is_empty() || !wants.terms.is_empty();
    let live = !wants.live.is_empty() || !wants.open_of_jobs.is_empty();
    let live = live || !wants.held_by.is_empty() || !wants.claims.is_empty();
    let wanted = [(1, sessions), (2, jobs), (3, !wants.schedules.is_empty()), (4, live)];
    wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(stage, _)| stage)
}
