//! The state of the live view. Knows no terminal and no server: it gets snapshots and keys.

use punctual_client::{CountersBody, ExecutionStatus, ProgressBody, QueueBody, WorkerBody};
use punctual_core::time::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// How many values the small graphs contain.
pub const HISTORY_MAX: usize = 120;

/// Everything that was read from the server at one time.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub version: String,
    /// When the server started, if it reports that.
    pub started_at: Option<Timestamp>,
    pub now: Timestamp,
    pub counters: CountersBody,
    pub queues: Vec<QueueBody>,
    pub workers: Vec<WorkerBody>,
    pub running: Vec<Running>,
    /// How many are running: may be more than are listed.
    pub running_count: u64,
    pub failures: Vec<Failure>,
}

/// A running execution.
#[derive(Debug, Clone)]
pub struct Running {
    pub name: String,
    pub job_type: String,
    pub worker: Option<String>,
    pub attempt: u32,
    pub attempts_max: u32,
    pub started_at: Option<Timestamp>,
    pub is_asked_to_stop: bool,
    pub progress: Option<ProgressBody>,
}

/// A failed attempt, which a retry may follow.
#[derive(Debug, Clone)]
pub struct Failure {
    pub at: Timestamp,
    pub name: String,
    pub outcome: Outcome,
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No retry is left.
    Dead,
    Retried(ExecutionStatus),
}

/// What is counted per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    Submitted,
    Started,
    Succeeded,
    Failed,
    Retried,
}

impl Rate {
    pub const ALL: [Rate; 5] = [Rate::Submitted, Rate::Started, Rate::Succeeded, Rate::Failed, Rate::Retried];

    pub const fn name(self) -> &'static str {
        match self {
            Rate::Submitted => "submitted",
            Rate::Started => "started",
            Rate::Succeeded => "succeeded",
            Rate::Failed => "failed",
            Rate::Retried => "retried",
        }
    }

    const fn count(self, counters: &CountersBody) -> u64 {
        match self {
            Rate::Submitted => counters.submitted,
            Rate::Started => counters.claimed,
            Rate::Succeeded => counters.succeeded,
            Rate::Failed => counters.failed + counters.timed_out + counters.lost,
            Rate::Retried => counters.retried,
        }
    }
}

/// Whether the view is current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    Connected,
    /// The server does not answer; the view is outdated.
    Reconnecting {
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Queues,
    Workers,
    Running,
    Failures,
}

impl Pane {
    pub const ALL: [Pane; 4] = [Pane::Queues, Pane::Workers, Pane::Running, Pane::Failures];
}

/// A key that the view uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Interrupt,
}

/// What to do after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Stay,
    Leave,
}

pub struct Model {
    pub server: String,
    pub snapshot: Snapshot,
    pub connection: Connection,
    pub pane: Pane,
    pub filter: String,
    /// Whether letters go into the filter.
    pub is_filtering: bool,
    pub is_paused: bool,
    pub shows_help: bool,
    /// For each pane, the sort column and the number of scrolled rows.
    sorts: [usize; 4],
    scrolls: [usize; 4],
    /// For each rate, the values per second, the latest last.
    rates: [VecDeque<f64>; 5],
}

impl Model {
    pub fn new(server: impl Into<String>, snapshot: Snapshot) -> Model {
        Model {
            server: server.into(),
            snapshot,
            connection: Connection::Connected,
            pane: Pane::Queues,
            filter: String::new(),
            is_filtering: false,
            is_paused: false,
            shows_help: false,
            sorts: [0; 4],
            scrolls: [0; 4],
            rates: std::array::from_fn(|_| VecDeque::new()),
        }
    }

    /// Adds a snapshot that was read this long after the previous one.
    pub fn take(&mut self, snapshot: Snapshot, elapsed: Duration) {
        for (rate, history) in Rate::ALL.iter().zip(&mut self.rates) {
            let (before, after) = (rate.count(&self.snapshot.counters), rate.count(&snapshot.counters));
            // A restarted server counts from zero.
            let count = if after < before { after } else { after - before };
            history.push_back(count as f64 / elapsed.as_secs_f64().max(1e-3));
            if history.len() > HISTORY_MAX {
                history.pop_front();
            }
        }
        self.connection = Connection::Connected;
        self.snapshot = snapshot;
    }

    pub fn lose(&mut self, reason: String) {
        self.connection = Connection::Reconnecting { reason };
    }

    pub fn rate(&self, rate: Rate) -> &VecDeque<f64> {
        &self.rates[rate as usize]
    }

    pub fn sort(&self, pane: Pane) -> usize {
        self.sorts[pane as usize]
    }

    pub fn scroll(&self, pane: Pane) -> usize {
        self.scrolls[pane as usize]
    }

    /// `columns` is the number of sort columns of the current pane, and `rows` its number of rows.
    pub fn press(&mut self, key: Key, columns: usize, rows: usize) -> Next {
        if key == Key::Interrupt {
            return Next::Leave;
        }
        if self.is_filtering {
            self.edit_filter(key);
            return Next::Stay;
        }
        if self.shows_help {
            self.shows_help = false;
            return Next::Stay;
        }
        let place = self.pane as usize;
        match key {
            Key::Letter('q') => return Next::Leave,
            Key::Letter('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Letter('s') => self.sorts[place] = (self.sorts[place] + 1) % columns.max(1),
            Key::Letter('/') => self.is_filtering = true,
            Key::Letter('?' | 'h') => self.shows_help = true,
            Key::Escape => self.filter.clear(),
            Key::Tab => self.pane = Pane::ALL[(place + 1) % Pane::ALL.len()],
            Key::BackTab => self.pane = Pane::ALL[(place + Pane::ALL.len() - 1) % Pane::ALL.len()],
            Key::Down | Key::Letter('j') => {
                self.scrolls[place] = (self.scrolls[place] + 1).min(rows.saturating_sub(1));
            }
            Key::Up | Key::Letter('k') => self.scrolls[place] = self.scrolls[place].saturating_sub(1),
            Key::Letter(_) | Key::Enter | Key::Backspace | Key::Interrupt => {}
        }
        Next::Stay
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Letter(letter) => self.filter.push(letter),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.is_filtering = false,
            Key::Escape => {
                self.filter.clear();
                self.is_filtering = false;
            }
            _ => {}
        }
        self.scrolls = [0; 4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::samples;

    #[test]
    fn rates_are_per_second_and_survive_a_server_that_counts_anew() {
        let mut model = Model::new("http://127.0.0.1:7070", samples::snapshot());
        let counted = |submitted| {
            let counters = CountersBody { submitted, ..CountersBody::default() };
            Snapshot { counters, ..samples::snapshot() }
        };
        model.take(counted(1_000), Duration::from_secs(1));
        model.take(counted(1_010), Duration::from_secs(2));
        model.take(counted(4), Duration::from_secs(1));
        let rates: Vec<f64> = model.rate(Rate::Submitted).iter().copied().collect();
        assert_eq!(rates[1..], [5.0, 4.0]);
        for _ in 0..2 * HISTORY_MAX {
            model.take(counted(4), Duration::from_secs(1));
        }
        assert_eq!(model.rate(Rate::Submitted).len(), HISTORY_MAX);
    }

    #[test]
    fn keys_move_between_panes_and_letters_go_into_an_open_filter() {
        let mut model = Model::new("server", samples::snapshot());
        let mut press = |key| model.press(key, 2, 3);
        assert_eq!(press(Key::BackTab), Next::Stay);
        for key in [Key::Letter('s'), Key::Letter('/'), Key::Letter('q'), Key::Letter('p'), Key::Backspace] {
            assert_eq!(press(key), Next::Stay);
        }
        assert_eq!(press(Key::Enter), Next::Stay);
        assert_eq!(press(Key::Letter('q')), Next::Leave);
        assert_eq!(press(Key::Interrupt), Next::Leave);
        assert_eq!((model.pane, model.filter.as_str(), model.sort(Pane::Failures)), (Pane::Failures, "q", 1));
        assert!(!model.is_paused && !model.is_filtering);
        for _ in 0..9 {
            model.press(Key::Down, 2, 3);
        }
        assert_eq!(model.scroll(Pane::Failures), 2);
        model.press(Key::Letter('?'), 2, 3);
        assert_eq!(model.press(Key::Letter('q'), 2, 3), Next::Stay, "any key leaves the help");
    }

    #[test]
    fn a_lost_server_is_found_again() {
        let mut model = Model::new("server", samples::snapshot());
        model.lose("refused".to_owned());
        assert_ne!(model.connection, Connection::Connected);
        model.take(samples::snapshot(), Duration::from_secs(1));
        assert_eq!(model.connection, Connection::Connected);
    }
}
