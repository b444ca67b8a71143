//! The state of the live view. Knows no terminal and no server: it gets snapshots and keys.

use punctual_client::{CountersBody, ExecutionStatus, ProgressBody, QueueBody, WorkerBody};
use punctual_core::time::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// How many values the small graphs contain.
pub const HISTORY_MAX: usize = 120;

/// Everything that was read from the server at one time.
#[derive(Debug, Clone)]
pub struct TopSnapshot {
    pub version: String,
    /// When the server started, if it reports that.
    pub started_at: Option<Timestamp>,
    pub now: Timestamp,
    pub counters: CountersBody,
    pub queues: Vec<QueueBody>,
    pub workers: Vec<WorkerBody>,
    pub running: Vec<RunningExecution>,
    /// How many are running: may be more than are listed.
    pub running_count: u64,
    pub failures: Vec<FailedAttempt>,
}

/// A running execution.
#[derive(Debug, Clone)]
pub struct RunningExecution {
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
pub struct FailedAttempt {
    pub at: Timestamp,
    pub name: String,
    pub outcome: FailureOutcome,
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureOutcome {
    /// No retry is left.
    Dead,
    Retried(ExecutionStatus),
}

/// What is counted per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedRate {
    Submitted,
    Started,
    Succeeded,
    Failed,
    Retried,
}

impl CountedRate {
    pub const ALL: [CountedRate; 5] = [
        CountedRate::Submitted,
        CountedRate::Started,
        CountedRate::Succeeded,
        CountedRate::Failed,
        CountedRate::Retried,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            CountedRate::Submitted => "submitted",
            CountedRate::Started => "started",
            CountedRate::Succeeded => "succeeded",
            CountedRate::Failed => "failed",
            CountedRate::Retried => "retried",
        }
    }

    const fn count(self, counters: &CountersBody) -> u64 {
        match self {
            CountedRate::Submitted => counters.submitted,
            CountedRate::Started => counters.claimed,
            CountedRate::Succeeded => counters.succeeded,
            CountedRate::Failed => counters.failed + counters.timed_out + counters.lost,
            CountedRate::Retried => counters.retried,
        }
    }
}

/// Whether the view is current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionStatus {
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
pub enum ViewKey {
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
pub enum AfterKey {
    Stay,
    Leave,
}

pub struct Model {
    pub server: String,
    pub snapshot: TopSnapshot,
    pub connection: ConnectionStatus,
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
    pub fn new(server: impl Into<String>, snapshot: TopSnapshot) -> Model {
        Model {
            server: server.into(),
            snapshot,
            connection: ConnectionStatus::Connected,
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
    pub fn take(&mut self, snapshot: TopSnapshot, elapsed: Duration) {
        for (rate, history) in CountedRate::ALL.iter().zip(&mut self.rates) {
            let (before, after) = (rate.count(&self.snapshot.counters), rate.count(&snapshot.counters));
            // A restarted server counts from zero.
            let count = if after < before { after } else { after - before };
            history.push_back(count as f64 / elapsed.as_secs_f64().max(1e-3));
            if history.len() > HISTORY_MAX {
                history.pop_front();
            }
        }
        self.connection = ConnectionStatus::Connected;
        self.snapshot = snapshot;
    }

    pub fn lose(&mut self, reason: String) {
        self.connection = ConnectionStatus::Reconnecting { reason };
    }

    pub fn rate(&self, rate: CountedRate) -> &VecDeque<f64> {
        &self.rates[rate as usize]
    }

    pub fn sort(&self, pane: Pane) -> usize {
        self.sorts[pane as usize]
    }

    pub fn scroll(&self, pane: Pane) -> usize {
        self.scrolls[pane as usize]
    }

    /// `columns` is the number of sort columns of the current pane, and `rows` its number of rows.
    pub fn press(&mut self, key: ViewKey, columns: usize, rows: usize) -> AfterKey {
        if key == ViewKey::Interrupt {
            return AfterKey::Leave;
        }
        if self.is_filtering {
            self.edit_filter(key);
            return AfterKey::Stay;
        }
        if self.shows_help {
            self.shows_help = false;
            return AfterKey::Stay;
        }
        let place = self.pane as usize;
        match key {
            ViewKey::Letter('q') => return AfterKey::Leave,
            ViewKey::Letter('p' | ' ') => self.is_paused = !self.is_paused,
            ViewKey::Letter('s') => self.sorts[place] = (self.sorts[place] + 1) % columns.max(1),
            ViewKey::Letter('/') => self.is_filtering = true,
            ViewKey::Letter('?' | 'h') => self.shows_help = true,
            ViewKey::Escape => self.filter.clear(),
            ViewKey::Tab => self.pane = Pane::ALL[(place + 1) % Pane::ALL.len()],
            ViewKey::BackTab => self.pane = Pane::ALL[(place + Pane::ALL.len() - 1) % Pane::ALL.len()],
            ViewKey::Down | ViewKey::Letter('j') => {
                self.scrolls[place] = (self.scrolls[place] + 1).min(rows.saturating_sub(1));
            }
            ViewKey::Up | ViewKey::Letter('k') => self.scrolls[place] = self.scrolls[place].saturating_sub(1),
            ViewKey::Letter(_) | ViewKey::Enter | ViewKey::Backspace | ViewKey::Interrupt => {}
        }
        AfterKey::Stay
    }

    fn edit_filter(&mut self, key: ViewKey) {
        match key {
            ViewKey::Letter(letter) => self.filter.push(letter),
            ViewKey::Backspace => {
                self.filter.pop();
            }
            ViewKey::Enter => self.is_filtering = false,
            ViewKey::Escape => {
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
    fn rates_are_per_second_and_survive_a_server_that_restarts() {
        let mut model = Model::new("http://127.0.0.1:7070", samples::snapshot());
        let counted = |submitted| {
            let counters = CountersBody { submitted, ..CountersBody::default() };
            TopSnapshot { counters, ..samples::snapshot() }
        };
        model.take(counted(1_000), Duration::from_secs(1));
        model.take(counted(1_010), Duration::from_secs(2));
        model.take(counted(4), Duration::from_secs(1));
        let rates: Vec<f64> = model.rate(CountedRate::Submitted).iter().copied().collect();
        assert_eq!(rates[1..], [5.0, 4.0]);
        for _ in 0..2 * HISTORY_MAX {
            model.take(counted(4), Duration::from_secs(1));
        }
        assert_eq!(model.rate(CountedRate::Submitted).len(), HISTORY_MAX);
    }

    #[test]
    fn keys_move_between_panes_and_letters_go_into_an_open_filter() {
        let mut model = Model::new("server", samples::snapshot());
        let mut press = |key| model.press(key, 2, 3);
        assert_eq!(press(ViewKey::BackTab), AfterKey::Stay);
        for key in [
            ViewKey::Letter('s'),
            ViewKey::Letter('/'),
            ViewKey::Letter('q'),
            ViewKey::Letter('p'),
            ViewKey::Backspace,
        ] {
            assert_eq!(press(key), AfterKey::Stay);
        }
        assert_eq!(press(ViewKey::Enter), AfterKey::Stay);
        assert_eq!(press(ViewKey::Letter('q')), AfterKey::Leave);
        assert_eq!(press(ViewKey::Interrupt), AfterKey::Leave);
        assert_eq!((model.pane, model.filter.as_str(), model.sort(Pane::Failures)), (Pane::Failures, "q", 1));
        assert!(!model.is_paused && !model.is_filtering);
        for _ in 0..9 {
            model.press(ViewKey::Down, 2, 3);
        }
        assert_eq!(model.scroll(Pane::Failures), 2);
        model.press(ViewKey::Letter('?'), 2, 3);
        assert_eq!(model.press(ViewKey::Letter('q'), 2, 3), AfterKey::Stay, "any key leaves the help");
    }

    #[test]
    fn a_lost_server_is_found_again() {
        let mut model = Model::new("server", samples::snapshot());
        model.lose("refused".to_owned());
        assert_ne!(model.connection, ConnectionStatus::Connected);
        model.take(samples::snapshot(), Duration::from_secs(1));
        assert_eq!(model.connection, ConnectionStatus::Connected);
    }
}
