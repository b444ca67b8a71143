//! The log of one execution on its way to the server: buffered, bounded, sent in order.
//!
//! A handler that writes faster than the server accepts waits for room, so a flood costs no memory and slows
//! down only itself. The total size of an execution's log is limited as well.

use async_trait::async_trait;
use futures_util::future::select;
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::limits;
use punctual_core::ports::{Clock, LogLine, LogSink, LogStream, Task, WorkerPort, WorkerPortError};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// The approximate memory of a waiting line besides its text.
const LINE_OVERHEAD_BYTES: usize = 100;
/// Waiting bytes at which lines are sent without buffering more.
const PLENTY_BYTES: usize = limits::LOG_BYTES_WAITING_MAX / 2;

/// The execution that the log belongs to, and its time.
pub(crate) struct LogOrigin {
    pub(crate) execution: ExecutionId,
    pub(crate) calendar: Arc<dyn Clock>,
    /// The start of the run, in server time and by the worker's calendar.
    pub(crate) started: (Timestamp, Monotonic),
}

/// Where the lines go.
pub(crate) struct LogOutlet {
    pub(crate) port: Arc<dyn WorkerPort>,
    pub(crate) session: SessionId,
    pub(crate) clock: Arc<dyn Clock>,
    /// Pause after a failed call.
    pub(crate) error_pause: Duration,
}

pub(crate) struct ExecutionLog {
    origin: LogOrigin,
    waiting: Mutex<WaitingLines>,
    /// Permits for the bytes that still fit.
    room: Semaphore,
    first: Notify,
    plenty: Notify,
}

#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Totals of accepted lines.
    taken_lines: usize,
    taken_bytes: usize,
    /// No further line is accepted.
    is_full: bool,
    is_closed: bool,
}

impl ExecutionLog {
    pub(crate) fn new(origin: LogOrigin) -> Self {
        ExecutionLog {
            origin,
            waiting: Mutex::default(),
            room: Semaphore::new(limits::LOG_BYTES_WAITING_MAX),
            first: Notify::new(),
            plenty: Notify::new(),
        }
    }

    /// No more lines will come: waiting lines are sent at once.
    pub(crate) fn close(&self) {
        self.waiting().is_closed = true;
        self.first.notify_one();
        self.plenty.notify_one();
    }

    /// Sends lines until the log is closed and none are waiting.
    pub(crate) fn keep(self: Arc<Self>, outlet: LogOutlet) -> Task {
        Box::pin(async move {
            loop {
                self.first.notified().await;
                if !self.waiting().is_plenty() {
                    select(pin!(self.plenty.notified()), outlet.clock.sleep(limits::LOG_FLUSH_INTERVAL))
                        .await;
                }
                while let Some(lines) = self.take_batch() {
                    self.send(&outlet, lines).await;
                }
                if self.waiting().is_closed {
                    return;
                }
            }
        })
    }

    async fn send(&self, outlet: &LogOutlet, lines: Vec<LogLine>) {
        let bytes = lines.iter().map(size).sum();
        loop {
            match outlet.port.append_logs(outlet.session, lines.clone()).await {
                Ok(()) => return self.room.add_permits(bytes),
                Err(WorkerPortError::Unavailable(reason)) => {
                    tracing::debug!(reason, "log lines were not stored; retrying");
                    outlet.clock.sleep(outlet.error_pause).await;
                }
                // The server no longer accepts them.
                Err(WorkerPortError::SessionLost | WorkerPortError::StaleTurn) => {
                    self.waiting().is_full = true;
                    return self.room.close();
                }
            }
        }
    }

    fn take_batch(&self) -> Option<Vec<LogLine>> {
        let mut waiting = self.waiting();
        let count = waiting.lines.len().min(limits::LOG_BATCH_LINES_MAX);
        let lines: Vec<LogLine> = waiting.lines.drain(..count).collect();
        waiting.bytes -= lines.iter().map(size).sum::<usize>();
        (!lines.is_empty()).then_some(lines)
    }

    fn line(&self, stream: LogStream, message: String) -> LogLine {
        let (started, started_at) = self.origin.started;
        let timestamp = started.plus(self.origin.calendar.monotonic().since(started_at));
        LogLine { number: 0, execution: self.origin.execution, timestamp, stream, message }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingLines> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl LogSink for ExecutionLog {
    async fn append(&self, stream: LogStream, message: String) {
        let line = match self.waiting().admit(cut(message)) {
            AdmittedLine::Line(message) => self.line(stream, message),
            AdmittedLine::LastLine(message) => self.line(LogStream::Log, message),
            AdmittedLine::Nothing => return,
        };
        let bytes = u32::try_from(size(&line)).unwrap_or(u32::MAX);
        // A closed log drops the line.
        let Ok(room) = self.room.acquire_many(bytes).await else { return };
        room.forget();
        let mut waiting = self.waiting();
        waiting.bytes += size(&line);
        waiting.lines.push_back(line);
        if waiting.is_plenty() {
            self.plenty.notify_one();
        }
        self.first.notify_one();
    }
}

enum AdmittedLine {
    Line(String),
    /// The line that says that no more will follow.
    LastLine(String),
    Nothing,
}

impl WaitingLines {
    /// Counts a line against the limits of its execution.
    fn admit(&mut self, message: String) -> AdmittedLine {
        if self.is_full {
            return AdmittedLine::Nothing;
        }
        self.taken_lines += 1;
        self.taken_bytes += message.len();
        if self.taken_lines < limits::LOG_LINES_PER_EXECUTION_MAX
            && self.taken_bytes <= limits::LOG_BYTES_PER_EXECUTION_MAX
        {
            return AdmittedLine::Line(message);
        }
        self.is_full = true;
        AdmittedLine::LastLine(format!(
            "the log of this execution is full ({} lines, {} bytes): the rest is dropped",
            limits::LOG_LINES_PER_EXECUTION_MAX,
            limits::LOG_BYTES_PER_EXECUTION_MAX
        ))
    }

    fn is_plenty(&self) -> bool {
        self.is_closed || self.bytes >= PLENTY_BYTES || self.lines.len() >= limits::LOG_BATCH_LINES_MAX
    }
}

fn size(line: &LogLine) -> usize {
    line.message.len() + LINE_OVERHEAD_BYTES
}

/// Cuts a line to its limit.
fn cut(mut message: String) -> String {
    if message.len() > limits::LOG_LINE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(limits::LOG_LINE_BYTES_MAX));
        message.push_str(" […]");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{House, TokioClock};
    use punctual_core::ids::JobId;

    /// A log that sends to a server with this many permits, and the task that sends.
    fn log(
        permits: usize,
        failures: Vec<WorkerPortError>,
    ) -> (Arc<ExecutionLog>, Arc<House>, tokio::task::JoinHandle<()>) {
        let house = House::for_logs(permits, failures);
        let log = Arc::new(ExecutionLog::new(LogOrigin {
            execution: JobId::from_bytes([1; 16]).occurrence(1).attempt(1),
            calendar: Arc::new(TokioClock),
            started: (Timestamp::EPOCH, Monotonic::from_micros(0)),
        }));
        let outlet = LogOutlet {
            port: house.clone(),
            session: SessionId(1),
            clock: Arc::new(TokioClock),
            error_pause: Duration::from_millis(200),
        };
        let keeping = tokio::spawn(log.clone().keep(outlet));
        (log, house, keeping)
    }

    fn batches(house: &House) -> Vec<Vec<String>> {
        house.batches()
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_gathered_and_sent_in_order() {
        let (log, house, keeping) = log(100, vec![]);
        for number in 0..3 {
            log.append(LogStream::Stdout, number.to_string()).await;
        }
        tokio::time::sleep(2 * limits::LOG_FLUSH_INTERVAL).await;
        assert_eq!(batches(&house), [["0", "1", "2"]]);
        log.append(LogStream::Stdout, "last".to_owned()).await;
        log.close();
        keeping.await.unwrap();
        assert_eq!(batches(&house).concat(), ["0", "1", "2", "last"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_without_lines_asks_nothing_of_the_house() {
        let (log, house, keeping) = log(0, vec![]);
        log.close();
        keeping.await.unwrap();
        assert_eq!(batches(&house), [[""; 0]; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_survive_an_outage_of_the_house() {
        let outage = WorkerPortError::Unavailable("away".to_owned());
        let (log, house, keeping) = log(100, vec![outage; 5]);
        log.append(LogStream::Stdout, "a".to_owned()).await;
        log.close();
        keeping.await.unwrap();
        assert_eq!(batches(&house), [["a"]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_is_faster_than_the_server_waits() {
        let (log, house, keeping) = log(0, vec![]);
        let line = "x".repeat(1_000);
        let writer = log.clone();
        let writing = tokio::spawn(async move {
            for _ in 0..1_000 {
                writer.append(LogStream::Stdout, line.clone()).await;
            }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!writing.is_finished());
        assert!(log.waiting().bytes <= limits::LOG_BYTES_WAITING_MAX);
        house.allow(1_000);
        writing.await.unwrap();
        log.close();
        keeping.await.unwrap();
        assert_eq!(batches(&house).concat().len(), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_session_lets_the_writer_go_on() {
        let (log, house, keeping) = log(100, vec![WorkerPortError::SessionLost]);
        for _ in 0..10_000 {
            log.append(LogStream::Stdout, "x".repeat(100)).await;
        }
        log.close();
        keeping.await.unwrap();
        assert_eq!(batches(&house), [[""; 0]; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_dropped_and_the_last_line_says_so() {
        let (log, house, keeping) = log(usize::MAX >> 4, vec![]);
        let line = "x".repeat(limits::LOG_LINE_BYTES_MAX + 1);
        for _ in 0..2 * limits::LOG_BYTES_PER_EXECUTION_MAX / limits::LOG_LINE_BYTES_MAX {
            log.append(LogStream::Stdout, line.clone()).await;
        }
        log.close();
        keeping.await.unwrap();
        let kept = batches(&house).concat();
        let (last, lines) = kept.split_last().unwrap();
        assert!(last.contains("the rest is dropped"), "{last}");
        assert!(lines.iter().all(|line| line.ends_with("x […]")));
        assert!(lines.iter().map(String::len).sum::<usize>() <= limits::LOG_BYTES_PER_EXECUTION_MAX);
    }
}
