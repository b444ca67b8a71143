//! The lines of limits, as far as this node knows of them: in which somebody waits, and which may move now. Losing it costs
//! a second: whoever looks after all lines finds them again.

use punctual_core::defects::{Defect, planted};
use punctual_core::limiter::{LimiterId, Line};
use punctual_core::limits;
use punctual_core::ports::{Admitted, Begun, Page};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Where somebody waits, and when time alone makes room there; `None` if it does not.
    waited_in: BTreeMap<Line, Option<Timestamp>>,
    /// Where there may be room.
    ready: BTreeSet<Line>,
    /// Whether all lines are to be looked for at once.
    is_look_due: bool,
}

impl Lines {
    /// Takes note of what a commit means to lines. One that makes room where nobody is known to wait is nothing to hurry
    /// for; one that adds to a line is, because room may have been made while it did.
    pub fn follow(&self, begun: &Begun) {
        if begun.joined.is_empty() && begun.freed.is_empty() {
            return;
        }
        let mut known = self.lock();
        for line in &begun.joined {
            known.waited_in.entry(line.clone()).or_default();
        }
        let is_waited_in = |line: &&Line| known.waited_in.contains_key(line) && !planted(Defect::ForgetLine);
        let freed = begun.freed.iter().filter(is_waited_in);
        let ready: Vec<Line> = begun.joined.iter().chain(freed).cloned().collect();
        known.ready.extend(ready);
        let is_any_ready = !known.ready.is_empty();
        drop(known);
        if is_any_ready {
            self.changed.notify_one();
        }
    }

    /// These are all lines in which anybody waits, of those that a page has which follows this limiter.
    pub fn found(&self, after: Option<LimiterId>, page: Page<Line, LimiterId>) {
        let is_on_page = |line: &Line| {
            let id = line.id();
            after.is_none_or(|after| id > after) && page.next.is_none_or(|last| id <= last)
        };
        let found: BTreeSet<&Line> = page.items.iter().collect();
        let mut known = self.lock();
        known.waited_in.retain(|line, _| !is_on_page(line) || found.contains(line));
        for line in page.items {
            known.waited_in.entry(line.clone()).or_default();
            if !planted(Defect::ForgetLine) {
                known.ready.insert(line);
            }
        }
    }

    /// What limits say has changed: whoever waits may go on.
    pub fn look(&self) {
        self.lock().is_look_due = true;
        self.changed.notify_one();
    }

    /// Whether all lines are to be looked for at once; it is asked once.
    pub fn take_look(&self) -> bool {
        std::mem::take(&mut self.lock().is_look_due)
    }

    /// The lines that may move now, as many as one step takes.
    pub fn take(&self, now: Timestamp) -> Vec<Line> {
        let mut known = self.lock();
        let opened = known.waited_in.iter().filter(|(_, at)| at.is_some_and(|at| at <= now));
        let opened: Vec<Line> = opened.map(|(line, _)| line.clone()).collect();
        known.ready.extend(opened);
        let lines: Vec<Line> = known.ready.iter().take(limits::LINES_PER_STEP_MAX).cloned().collect();
        for line in &lines {
            known.ready.remove(line);
        }
        lines
    }

    /// When time alone makes room somewhere.
    pub fn opens_at(&self) -> Option<Timestamp> {
        self.lock().waited_in.values().flatten().min().copied()
    }

    /// Takes note of what became of lines that were to move.
    pub fn moved(&self, lines: &[Line], admitted: &Admitted) {
        let mut known = self.lock();
        for line in lines {
            known.waited_in.remove(line);
        }
        known.waited_in.extend(admitted.waiting.iter().cloned());
        known.ready.extend(admitted.more.iter().cloned());
    }

    /// They could not be moved.
    pub fn failed(&self, lines: Vec<Line>) {
        self.lock().ready.extend(lines);
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn line(queue: &str) -> Line {
        Line::of_queue(queue)
    }

    #[test]
    fn room_matters_only_where_somebody_waits() {
        let lines = Lines::default();
        lines.follow(&Begun { freed: vec![line("a")], ..Begun::default() });
        assert_eq!(lines.take(at(1)), []);
        lines.follow(&Begun { joined: vec![line("a")], ..Begun::default() });
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.moved(&[line("a")], &Admitted { waiting: vec![(line("a"), None)], ..Admitted::default() });
        assert_eq!(lines.take(at(1)), []);
        lines.follow(&Begun { freed: vec![line("a"), line("b")], ..Begun::default() });
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.moved(&[line("a")], &Admitted::default());
        lines.follow(&Begun { freed: vec![line("a")], ..Begun::default() });
        assert_eq!(lines.take(at(1)), [], "nobody waits any more");
    }

    #[test]
    fn a_line_that_waits_for_a_time_moves_when_it_has_come() {
        let lines = Lines::default();
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
        all.sort_by_key(Line::id);
        let lines = Lines::default();
        let known = |lines: &Lines| lines.lock().waited_in.keys().cloned().collect::<BTreeSet<_>>();
        lines.follow(&Begun { joined: all.to_vec(), ..Begun::default() });
        lines.found(None, Page { items: vec![all[0].clone()], next: Some(all[1].id()) });
        assert_eq!(known(&lines), BTreeSet::from([0, 2, 3].map(|index| all[index].clone())));
        lines.found(Some(all[1].id()), Page { items: vec![all[3].clone()], next: None });
        assert_eq!(known(&lines), BTreeSet::from([0, 3].map(|index| all[index].clone())));
    }

    #[test]
    fn what_could_not_be_done_or_is_not_done_yet_is_done_next() {
        let lines = Lines::default();
        lines.failed(vec![line("a")]);
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.moved(&[line("a")], &Admitted { more: vec![line("a")], ..Admitted::default() });
        assert_eq!(lines.take(at(1)), [line("a")]);
        lines.look();
        assert_eq!((lines.take_look(), lines.take_look()), (true, false));
    }
}
