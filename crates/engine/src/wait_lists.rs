//! The wait lists of limits that this node knows of: which are not empty, and which may have room now. Losing
//! this state costs a second: the periodic scan of all wait lists finds them again.

use punctual_core::defects::{Defect, planted};
use punctual_core::limiter::{LimiterId, WaitList};
use punctual_core::limits;
use punctual_core::ports::{Admitted, CommitEffects, Page};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct WaitLists {
    known: Mutex<WaitListState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct WaitListState {
    /// Wait lists that are not empty, and when room appears by the passing of time alone; `None` if it does
    /// not.
    waited_in: BTreeMap<WaitList, Option<Timestamp>>,
    /// Wait lists that may have room.
    ready: BTreeSet<WaitList>,
    /// Whether to scan all wait lists at once.
    is_look_due: bool,
}

impl WaitLists {
    /// Applies the effects of a commit on wait lists. Room on a list without known entries needs no action;
    /// an execution that joins a list does, because room may have appeared meanwhile.
    pub fn follow(&self, effects: &CommitEffects) {
        if effects.joined.is_empty() && effects.freed.is_empty() {
            return;
        }
        let mut known = self.lock();
        for line in &effects.joined {
            known.waited_in.entry(line.clone()).or_default();
        }
        let is_waited_in =
            |line: &&WaitList| known.waited_in.contains_key(line) && !planted(Defect::ForgetLine);
        let freed = effects.freed.iter().filter(is_waited_in);
        let ready: Vec<WaitList> = effects.joined.iter().chain(freed).cloned().collect();
        known.ready.extend(ready);
        let is_any_ready = !known.ready.is_empty();
        drop(known);
        if is_any_ready {
            self.changed.notify_one();
        }
    }

    /// Applies a page of the scan: all wait lists that are not empty, of those that a page after this limiter
    /// covers.
    pub fn found(&self, after: Option<LimiterId>, page: Page<WaitList, LimiterId>) {
        let is_on_page = |line: &WaitList| {
            let id = line.id();
            after.is_none_or(|after| id > after) && page.next.is_none_or(|last| id <= last)
        };
        let found: BTreeSet<&WaitList> = page.items.iter().collect();
        let mut known = self.lock();
        known.waited_in.retain(|line, _| !is_on_page(line) || found.contains(line));
        for line in page.items {
            known.waited_in.entry(line.clone()).or_default();
            if !planted(Defect::ForgetLine) {
                known.ready.insert(line);
            }
        }
    }

    /// Limits have changed: waiting executions may proceed.
    pub fn look(&self) {
        self.lock().is_look_due = true;
        self.changed.notify_one();
    }

    /// Whether to scan all wait lists at once; resets the request.
    pub fn take_look(&self) -> bool {
        std::mem::take(&mut self.lock().is_look_due)
    }

    /// The wait lists that may have room now, as many as one step handles.
    pub fn take(&self, now: Timestamp) -> Vec<WaitList> {
        let mut known = self.lock();
        let opened = known.waited_in.iter().filter(|(_, at)| at.is_some_and(|at| at <= now));
        let opened: Vec<WaitList> = opened.map(|(line, _)| line.clone()).collect();
        known.ready.extend(opened);
        let lines: Vec<WaitList> = known.ready.iter().take(limits::LINES_PER_STEP_MAX).cloned().collect();
        for line in &lines {
            known.ready.remove(line);
        }
        lines
    }

    /// When room next appears by the passing of time alone.
    pub fn opens_at(&self) -> Option<Timestamp> {
        self.lock().waited_in.values().flatten().min().copied()
    }

    /// Applies the result of a step over wait lists.
    pub fn moved(&self, lines: &[WaitList], admitted: &Admitted) {
        let mut known = self.lock();
        for line in lines {
            known.waited_in.remove(line);
        }
        known.waited_in.extend(admitted.waiting.iter().cloned());
        known.ready.extend(admitted.more.iter().cloned());
    }

    /// The step failed: the lists are tried again.
    pub fn failed(&self, lines: Vec<WaitList>) {
        self.lock().ready.extend(lines);
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, WaitListState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn line(queue: &str) -> WaitList {
        WaitList::of_queue(queue)
    }

    #[test]
    fn room_matters_only_where_somebody_waits() {
        let lines = WaitLists::default();
        lines.follow(&CommitEffects { freed: vec![line("a")], ..CommitEffects::default() });
        assert_eq!(lines.take(at(1)), []);
        lines.follow(&CommitEffects { joined: vec![line("a")], ..CommitEffects::default() });
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.moved(&[line("a")], &Admitted { waiting: vec![(line("a"), None)], ..Admitted::default() });
        assert_eq!(lines.take(at(1)), []);
        lines.follow(&CommitEffects { freed: vec![line("a"), line("b")], ..CommitEffects::default() });
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.moved(&[line("a")], &Admitted::default());
        lines.follow(&CommitEffects { freed: vec![line("a")], ..CommitEffects::default() });
        assert_eq!(lines.take(at(1)), [], "the wait list is empty");
    }

    #[test]
    fn a_line_that_waits_for_a_time_moves_when_it_has_come() {
        let lines = WaitLists::default();
        lines.found(None, Page { items: vec![line("a")], next: None });
        assert_eq!(lines.take(at(1)), [line("a")]);
        let waiting = vec![(line("a"), Some(at(5)))];
        lines.moved(&[line("a")], &Admitted { waiting, ..Admitted::default() });
        assert_eq!((lines.opens_at(), lines.take(at(4))), (Some(at(5)), vec![]));
        assert_eq!(lines.take(at(5)), [line("a")]);
    }

    #[test]
    fn a_page_tells_of_its_own_lines_only() {
        let mut all = ["a", "b", "c", "d"].map(line);
        all.sort_by_key(WaitList::id);
        let lines = WaitLists::default();
        let known = |lines: &WaitLists| lines.lock().waited_in.keys().cloned().collect::<BTreeSet<_>>();
        lines.follow(&CommitEffects { joined: all.to_vec(), ..CommitEffects::default() });
        lines.found(None, Page { items: vec![all[0].clone()], next: Some(all[1].id()) });
        assert_eq!(known(&lines), BTreeSet::from([0, 2, 3].map(|index| all[index].clone())));
        lines.found(Some(all[1].id()), Page { items: vec![all[3].clone()], next: None });
        assert_eq!(known(&lines), BTreeSet::from([0, 3].map(|index| all[index].clone())));
    }

    #[test]
    fn what_could_not_be_done_or_is_not_done_yet_is_done_next() {
        let lines = WaitLists::default();
        lines.failed(vec![line("a")]);
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.moved(&[line("a")], &Admitted { more: vec![line("a")], ..Admitted::default() });
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.look();
        assert_eq!((lines.take_look(), lines.take_look()), (true, false));
    }
}
