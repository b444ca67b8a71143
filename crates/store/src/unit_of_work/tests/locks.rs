//! Records the locks of a transaction and asserts the rules about them. An in-memory database has no
//! concurrent transactions, so it checks the locks that would make them wait.

use crate::unit_of_work::simulated_server::MemoryDatabase;
use crate::unit_of_work::{LoadedRows, ReadSet, WriteSet};
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
    pub fn fetched(&mut self, read_set: &ReadSet, found: &LoadedRows) {
        self.fetches += 1;
        for stage in stages(read_set) {
            assert!(stage >= self.stage, "kind {stage} after kind {}: {read_set:?}", self.stage);
            self.stage = stage;
        }
        self.sessions.extend(&read_set.sessions);
        self.sessions.extend(found.sessions.iter().map(|session| session.id));
        for job in read_set.jobs.iter().chain(&read_set.terms) {
            self.jobs.insert(*job);
            self.locked_in.entry(*job).or_insert(self.fetches);
        }
        self.live.extend(found.live.iter().map(|row| row.live.id));
        self.keys_read_in.extend(read_set.keys.iter().map(|key| (key.clone(), self.fetches)));
        let of_jobs = read_set.schedules.iter().chain(&read_set.open_of_jobs).chain(&read_set.parents_of);
        let dead = read_set.dead_letters.iter().map(|id| &id.job);
        let dead = dead.chain(&read_set.latest_dead_letters).chain(&read_set.dead_of_jobs);
        for job in of_jobs.chain(dead) {
            assert!(self.jobs.contains(job), "{job} is not locked: {read_set:?}");
        }
    }

    /// Written rows are locked, and so is the job of every change that affects the job as a whole.
    pub fn committing(&self, write_set: &WriteSet, database: &MemoryDatabase) {
        let opened: BTreeSet<_> = write_set.sessions_inserted.iter().map(|new| new.id).collect();
        for change in &write_set.sessions_updated {
            assert!(self.sessions.contains(&change.id) || opened.contains(&change.id));
        }
        let jobs = write_set.jobs_inserted.iter().chain(&write_set.jobs_updated).map(|row| row.job.id);
        let marked = write_set.marks.iter().map(|(job, _)| *job);
        let numbered = write_set.numbered.iter().map(|numbered| numbered.job);
        let schedules = write_set.schedules_inserted.iter().chain(&write_set.schedules_updated);
        let schedules = schedules.map(|row| row.state.job).chain(write_set.schedules_deleted.iter().copied());
        let opened = write_set.live_inserted.iter().map(|row| row.live.id.job);
        let dead = write_set.new_dead_letters.iter().map(|letter| letter.finished.id.occurrence);
        let dead = dead.chain(write_set.deleted_dead_letters.iter().copied()).map(|id| id.job);
        let tied = write_set.dependencies_inserted.iter().flat_map(|tie| [tie.parent, tie.child]);
        let untied = write_set.dependencies_deleted.iter().map(|tie| tie.child);
        let untied = untied.chain(write_set.parents_forgotten.iter().copied());
        let resolved = write_set.resolutions_inserted.iter().map(|(parent, _)| *parent);
        let all = jobs.chain(marked).chain(numbered).chain(schedules).chain(opened).chain(dead);
        for job in all.chain(tied).chain(untied).chain(resolved) {
            assert!(self.jobs.contains(&job), "{job} is written and not locked: {write_set:?}");
        }
        self.check_live(write_set, database);
        for (key, _) in &write_set.keys_taken {
            let holder = database.keys[key];
            let is_read_after = self.keys_read_in[key] >= self.locked_in[&holder];
            assert!(is_read_after, "{key:?} was read before its holder was locked");
        }
    }

    fn check_live(&self, write_set: &WriteSet, database: &MemoryDatabase) {
        let updated = write_set.live_updated.iter().map(|row| &row.live.id);
        let updated = updated.chain(write_set.leased.iter().map(|leased| &leased.id));
        for id in updated.chain(&write_set.live_deleted) {
            assert!(self.live.contains(id), "{id:?} is written and not locked");
        }
        for id in &write_set.live_deleted {
            let row = &database.live[id];
            // The only end that needs nothing of its job.
            let is_plain = row.is_sole && !row.live.flags.followed && !row.live.flags.awaited;
            assert!(is_plain || self.jobs.contains(&id.job), "{id:?} ends and its job is not locked");
        }
    }
}

fn stages(read_set: &ReadSet) -> impl Iterator<Item = u8> {
    let sessions = !read_set.sessions.is_empty() || read_set.lost_sessions || read_set.embedded_sessions;
    let jobs = !read_set.jobs.is_empty() || !read_set.terms.is_empty();
    let live = !read_set.live.is_empty() || !read_set.open_of_jobs.is_empty();
    let live = live || !read_set.held_by.is_empty() || !read_set.claims.is_empty();
    let wanted = [(1, sessions), (2, jobs), (3, !read_set.schedules.is_empty()), (4, live)];
    wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(stage, _)| stage)
}
