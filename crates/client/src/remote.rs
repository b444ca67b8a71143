//! The worker port over HTTP, for workers that run in another process than the engine.
//!
//! It makes each call once: the worker's session state machine decides when to retry and when to resync.

use crate::client::{Client, ClientError};
use crate::duration::Span;
use crate::protocol::{
    DemandAnswer, DemandRequest, GiveBackRequest, HeartbeatAnswer, HeartbeatRequest, LogsRequest, NewLogLine,
    NoteBody, NotesAnswer, NotesRequest, OpenSession, OutcomeWord, PollAnswer, PollRequest, ProgressNote,
    ReportBody, ReportRequest, ReportsAnswer, ResyncRequest, SessionBody,
};
use crate::tls::Distrust;
use async_trait::async_trait;
use futures_util::stream::{self, Stream};
use punctual_core::blobs::BlobReference;
use punctual_core::causes::in_full;
use punctual_core::ids::SessionId;
use punctual_core::lifecycle::Ending;
use punctual_core::limits;
use punctual_core::notes::{Note, NoteAnswer, Progress};
use punctual_core::ports::{
    Assignment, BeatAnswer, BlobError, BlobParts, Heartbeat, LeaseRef, LogLine, Poll, Report, ReportAnswer,
    Served, SessionGrant, SessionOpening, WorkerPort, WorkerPortError,
};
use punctual_core::retry::ChosenTime;
use punctual_core::slots::Demand;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, RequestBuilder};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the server may take to answer, beyond the requested wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a large result may take.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Bytes of results and errors in one report; the rest goes into the next one. Well below the server's limit.
const REPORT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Notes in one request; the rest go into the next one. Well below the server's limit even with the largest
/// checkpoints.
const NOTES_PER_REQUEST: usize = 16;

/// Responses to opening a session that a retry will not change: the token, the address or the worker is
/// wrong.
const FINAL_STATUSES: [u16; 5] = [401, 403, 404, 421, 422];

type OnOpened = Box<dyn Fn() + Send + Sync>;
type OnRefused = Box<dyn Fn(ClientError) + Send + Sync>;
type OnDistrusted = Box<dyn Fn(Distrust) + Send + Sync>;

/// A worker's connection to a remote server.
pub struct RemotePort {
    client: Client,
    /// Schemas of job types that this worker registers.
    schemas: BTreeMap<String, Value>,
    opened: OnOpened,
    refused: OnRefused,
    distrusted: OnDistrusted,
    /// Whether the server accepts worker conditions; older ones do not.
    hears_conditions: AtomicBool,
    /// Whether the server accepts the draining flag; older ones do not.
    hears_drains: AtomicBool,
}

impl RemotePort {
    pub fn new(client: Client) -> Self {
        RemotePort {
            client: client.without_retries(),
            schemas: BTreeMap::new(),
            opened: Box::new(|| {}),
            refused: Box::new(|_| {}),
            distrusted: Box::new(|_| {}),
            hears_conditions: AtomicBool::new(true),
            hears_drains: AtomicBool::new(true),
        }
    }

    /// Registers these schemas of job types with every session.
    pub fn with_schemas(self, schemas: BTreeMap<String, Value>) -> Self {
        RemotePort { schemas, ..self }
    }

    /// Calls `opened` whenever the server has opened a session: at the start, and after each lost one.
    pub fn when_opened(self, opened: impl Fn() + Send + Sync + 'static) -> Self {
        RemotePort { opened: Box::new(opened), ..self }
    }

    /// Calls `refused` when the server will not open a session, however often the worker retries: the token
    /// lacks permission, or the worker's description is invalid.
    pub fn when_refused(self, refused: impl Fn(ClientError) + Send + Sync + 'static) -> Self {
        RemotePort { refused: Box::new(refused), ..self }
    }

    /// Calls `distrusted` when no session was opened because server and worker do not trust each other.
    pub fn when_distrusted(self, distrusted: impl Fn(Distrust) + Send + Sync + 'static) -> Self {
        RemotePort { distrusted: Box::new(distrusted), ..self }
    }

    fn post(&self, verb: &str, body: &impl Serialize) -> RequestBuilder {
        self.client.request(Method::POST, &format!("/worker/{verb}")).timeout(ANSWER_TIMEOUT).json(body)
    }

    async fn tell(&self, request: RequestBuilder) -> Result<(), WorkerPortError> {
        self.client.exchange(request).await.map(|_| ()).map_err(port_error)
    }

    async fn report_some(&self, reports: Vec<ReportBody>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        let count = reports.len();
        let request = self.post("report", &ReportRequest { reports });
        let ReportsAnswer { answers } = self.client.send(request).await.map_err(port_error)?;
        if answers.len() != count {
            return Err(WorkerPortError::Unavailable(format!(
                "{} answers to {count} reports",
                answers.len()
            )));
        }
        Ok(answers.into_iter().map(ReportAnswer::from).collect())
    }

    /// Sends notes of one session.
    async fn note_some(&self, notes: &[Note]) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        let Some(first) = notes.first() else { return Ok(Vec::new()) };
        let bodies = notes.iter().map(note_body).collect::<Result<_, _>>()?;
        let request = self.post("notes", &NotesRequest { session: first.session, notes: bodies });
        let NotesAnswer { answers } = self.client.send(request).await.map_err(port_error)?;
        if answers.len() != notes.len() {
            return Err(WorkerPortError::Unavailable(format!(
                "{} answers to {} notes",
                answers.len(),
                notes.len()
            )));
        }
        Ok(answers.into_iter().map(NoteAnswer::from).collect())
    }
}

fn note_body(note: &Note) -> Result<NoteBody, WorkerPortError> {
    let checkpoint =
        note.checkpoint.as_ref().map(|document| RawValue::from_string(document.as_json().to_owned()));
    let execution = note.lease.execution;
    Ok(NoteBody {
        execution_id: execution,
        epoch: note.lease.epoch,
        number: note.number,
        progress: note
            .progress
            .clone()
            .map(|Progress { percent, message }| ProgressNote { percent, message }),
        checkpoint: checkpoint.transpose().map_err(|error| {
            WorkerPortError::Unavailable(format!("the checkpoint of {execution} is not JSON: {error}"))
        })?,
    })
}

#[async_trait]
impl WorkerPort for RemotePort {
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError> {
        let opening = OpenSession {
            worker: opening.worker,
            job_types: opening.job_types,
            slots: opening.slots,
            lease_secs: Some(opening.lease.into()),
            queues: opening.about.queues,
            version: opening.about.version,
            host: opening.about.host,
            schemas: self.schemas.clone(),
        };
        match self.client.send(self.post("sessions", &opening)).await {
            Ok(SessionBody { session, now, .. }) => {
                (self.opened)();
                Ok(SessionGrant { session, now })
            }
            Err(error) => {
                let unavailable = WorkerPortError::Unavailable(in_full(&error));
                if let Some(distrust) = error.distrust() {
                    (self.distrusted)(distrust);
                }
                if error.problem().is_some_and(|problem| FINAL_STATUSES.contains(&problem.status)) {
                    (self.refused)(error);
                }
                Err(unavailable)
            }
        }
    }

    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError> {
        let wait = poll.wait.min(limits::REMOTE_POLL_WAIT_MAX);
        let body = PollRequest {
            session: poll.session,
            turn: poll.turn,
            capacity: poll.capacity.min(limits::REMOTE_POLL_CAPACITY_MAX),
            queues: poll.queues,
            job_types: poll.job_types,
            wait_secs: Some(wait.into()),
            held: None,
        };
        let request = self.post("poll", &body).timeout(wait + ANSWER_TIMEOUT);
        let PollAnswer { assignments } = self.client.send(request).await.map_err(port_error)?;
        Ok(assignments.into_iter().map(Assignment::from).collect())
    }

    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError> {
        let Heartbeat { session, beat, condition, draining } = heartbeat;
        let condition = condition.map(Into::into).filter(|_| self.hears_conditions.load(Ordering::Relaxed));
        let draining = draining && self.hears_drains.load(Ordering::Relaxed);
        let mut body = HeartbeatRequest { session, beat, condition, draining };
        let answer = loop {
            let answer = self.client.send(self.post("heartbeat", &body)).await;
            match answer {
                // Fields that an older server rejects must not cost the lease: the newest field is left out
                // first.
                Err(error) if is_not_understood(&error) && body.draining => {
                    body.draining = false;
                    self.hears_drains.store(false, Ordering::Relaxed);
                }
                Err(error) if is_not_understood(&error) && body.condition.is_some() => {
                    body.condition = None;
                    self.hears_conditions.store(false, Ordering::Relaxed);
                }
                answer => break answer,
            }
        };
        let HeartbeatAnswer { now, turn, cancel, drain } = answer.map_err(port_error)?;
        Ok(BeatAnswer { now, turn, drain, cancel: cancel.into_iter().map(LeaseRef::from).collect() })
    }

    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError> {
        let Served { queues, job_types } = served;
        let request = self.post("demand", &DemandRequest { job_types, queues });
        let DemandAnswer { queued, oldest_wait_secs } =
            self.client.send(request).await.map_err(port_error)?;
        Ok(Demand { queued, oldest_wait: Duration::from_millis(oldest_wait_secs.as_millis()) })
    }

    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        let mut answers = Vec::with_capacity(reports.len());
        for reports in portions(reports)? {
            answers.extend(self.report_some(reports).await?);
        }
        Ok(answers)
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        let mut answers = Vec::with_capacity(notes.len());
        // The request names one session, so notes of the same session go together.
        for notes in notes.chunk_by(|note, next| note.session == next.session) {
            for notes in notes.chunks(NOTES_PER_REQUEST) {
                answers.extend(self.note_some(notes).await?);
            }
        }
        Ok(answers)
    }

    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        let leases = leases.into_iter().map(Into::into).collect();
        self.tell(self.post("give-back", &GiveBackRequest { session, leases })).await
    }

    async fn resync(
        &self,
        session: SessionId,
        turn: u64,
        held: Vec<LeaseRef>,
    ) -> Result<(), WorkerPortError> {
        let held = held.into_iter().map(Into::into).collect();
        self.tell(self.post("resync", &ResyncRequest { session, turn, held })).await
    }

    async fn append_logs(&self, session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError> {
        for lines in lines.chunk_by(|line, next| line.execution == next.execution) {
            let new_line = |line: &LogLine| NewLogLine {
                message: line.message.clone(),
                stream: line.stream.into(),
                // The message has it.
                level: None,
                timestamp: Some(line.timestamp),
            };
            let request = LogsRequest {
                session,
                execution_id: lines[0].execution,
                lines: lines.iter().map(new_line).collect(),
            };
            self.tell(self.post("logs", &request)).await?;
        }
        Ok(())
    }

    async fn store_result(
        &self,
        session: SessionId,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        let request = self
            .client
            .request(Method::POST, "/worker/results")
            .query(&[("session", session.to_string()), ("execution_id", lease.execution.to_string())])
            .header(CONTENT_TYPE, "application/json")
            .timeout(UPLOAD_TIMEOUT)
            .body(Body::wrap_stream(body_of_parts(parts)));
        self.client.send(request).await.map_err(blob_error)
    }

    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError> {
        let request = self.client.request(Method::DELETE, &format!("/worker/sessions/{session}"));
        self.tell(request.timeout(ANSWER_TIMEOUT)).await
    }
}

/// The parts as they are read; one that cannot be read breaks the request off.
fn body_of_parts(
    parts: Box<dyn BlobParts>,
) -> impl Stream<Item = Result<Vec<u8>, BlobError>> + Send + 'static {
    stream::unfold(Some(parts), |parts| async {
        let mut parts = parts?;
        match parts.next().await {
            Ok(Some(part)) => Some((Ok(part), Some(parts))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

fn blob_error(error: ClientError) -> BlobError {
    let status = error.problem().map(|problem| problem.status);
    let detail = error.problem().and_then(|problem| problem.detail.clone());
    match (status, detail) {
        (Some(413), Some(detail)) => {
            BlobError::Refused(format!("it is too large (blobs.size_max): {detail}"))
        }
        // Requests that a repetition does not change.
        (Some(status @ 400..=499), detail) if !matches!(status, 408 | 425 | 429) => {
            BlobError::Refused(detail.unwrap_or_else(|| in_full(&error)))
        }
        _ => BlobError::Unavailable(in_full(&error)),
    }
}

fn is_not_understood(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.status == 422)
}

fn port_error(error: ClientError) -> WorkerPortError {
    match error.problem().map(|problem| problem.status) {
        Some(409) => WorkerPortError::StaleTurn,
        Some(410) => WorkerPortError::SessionLost,
        _ => WorkerPortError::Unavailable(in_full(&error)),
    }
}

/// Splits the reports into as many requests as necessary.
fn portions(reports: Vec<Report>) -> Result<Vec<Vec<ReportBody>>, WorkerPortError> {
    let mut portions: Vec<Vec<ReportBody>> = Vec::new();
    let mut bytes = 0;
    for report in reports {
        let size =
            [&report.end.result, &report.end.error].into_iter().flatten().map(String::len).sum::<usize>();
        let body = body_of(report)?;
        match portions.last_mut() {
            Some(last) if last.len() < limits::REMOTE_REPORTS_MAX && bytes + size <= REPORT_BYTES_MAX => {
                bytes += size;
                last.push(body);
            }
            _ => {
                bytes = size;
                portions.push(vec![body]);
            }
        }
    }
    Ok(portions)
}

fn body_of(report: Report) -> Result<ReportBody, WorkerPortError> {
    let Report { session, lease, end } = report;
    let outcome = match end.ending {
        Ending::Succeeded => OutcomeWord::Succeeded,
        Ending::Failed => OutcomeWord::Failed,
        Ending::TimedOut => OutcomeWord::TimedOut,
        Ending::Cancelled => OutcomeWord::Cancelled,
        Ending::Lost => OutcomeWord::Interrupted,
        Ending::Snoozed => OutcomeWord::Snoozed,
    };
    let delay = match end.next_at {
        Some(ChosenTime::After(delay)) => Some(Span::from(delay.min(limits::CHOSEN_DELAY_MAX))),
        _ => None,
    };
    let result = end.result.map(RawValue::from_string).transpose();
    Ok(ReportBody {
        session,
        execution_id: lease.execution,
        epoch: lease.epoch,
        outcome,
        result: result.map_err(|error| {
            WorkerPortError::Unavailable(format!("the result of {} is not JSON: {error}", lease.execution))
        })?,
        error: end.error.filter(|_| matches!(outcome, OutcomeWord::Failed | OutcomeWord::Interrupted)),
        retryable: (outcome == OutcomeWord::Failed).then_some(end.retryable),
        retry_at: match end.next_at {
            Some(ChosenTime::At(at)) => Some(at),
            _ => None,
        },
        retry_after: delay.filter(|_| outcome != OutcomeWord::Snoozed),
        snooze: delay.filter(|_| outcome == OutcomeWord::Snoozed),
        started_at: end.started_at,
        completed_at: Some(end.completed_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::health::WorkerCondition;
    use punctual_core::ids::{Epoch, JobId};
    use punctual_core::ports::Outcome;
    use punctual_core::time::Timestamp;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    fn report(outcome: Outcome) -> Report {
        let execution = JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1);
        Report {
            session: SessionId(1),
            lease: LeaseRef { execution, epoch: Epoch(1) },
            end: outcome.into_end(Timestamp::from_micros(1), Timestamp::from_micros(2)),
        }
    }

    #[test]
    fn many_or_large_reports_are_told_in_portions() {
        let large = || report(Outcome::Succeeded { result: Some("1".repeat(REPORT_BYTES_MAX / 2)) });
        let sizes = |reports| portions(reports).unwrap().iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![]), [0; 0]);
        assert_eq!(sizes(vec![large(), large(), large()]), [2, 1]);
        let small = (0..limits::REMOTE_REPORTS_MAX + 1).map(|_| report(Outcome::TimedOut)).collect();
        assert_eq!(sizes(small), [limits::REMOTE_REPORTS_MAX, 1]);
    }

    #[test]
    fn a_report_says_what_its_outcome_allows_and_no_more() {
        let text = |outcome| serde_json::to_value(body_of(report(outcome)).unwrap()).unwrap();
        let failed = text(Outcome::failed_for_good("no".to_owned()));
        assert_eq!((&failed["error"], &failed["retryable"]), (&"no".into(), &false.into()));
        let until = ChosenTime::After(std::time::Duration::from_secs(600));
        let snoozed = text(Outcome::Snoozed { until });
        assert_eq!((&snoozed["outcome"], &snoozed["snooze"]), (&"snoozed".into(), &"10m".into()));
        let later = text(Outcome::Failed { error: "no".to_owned(), retryable: true, retry_at: Some(until) });
        assert_eq!((&later["retry_after"], later.get("snooze")), (&"10m".into(), None));
        let timed_out = text(Outcome::TimedOut);
        assert_eq!(timed_out["outcome"], "timed_out");
        assert_eq!((timed_out.get("error"), timed_out.get("retryable")), (None, None));
        assert_eq!(text(Outcome::Interrupted { error: "stop".to_owned() })["outcome"], "interrupted");
    }

    /// A server that knows only some fields of a heartbeat; it records what it received.
    fn older_server(unknown: &'static [&'static str], heard: Arc<Mutex<Vec<String>>>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = BufReader::new(connection.unwrap());
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    connection.read_line(&mut line).unwrap();
                    if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = said.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                connection.read_exact(&mut body).unwrap();
                let body = String::from_utf8(body).unwrap();
                let (status, kind, answer) = if unknown.iter().any(|field| body.contains(field)) {
                    let problem = r#"{"type":"about:blank","title":"Unprocessable","status":422,"detail":"unknown field"}"#;
                    ("422 Unprocessable Content", "application/problem+json", problem)
                } else {
                    let answer = r#"{"now":"2026-01-01T00:00:00Z","turn":0,"cancel":[],"drain":false}"#;
                    ("200 OK", "application/json", answer)
                };
                heard.lock().unwrap().push(body);
                let length = answer.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                connection.get_mut().write_all((head + answer).as_bytes()).unwrap();
            }
        });
        Client::new(&address.to_string(), "pt_worker_x").unwrap()
    }

    #[tokio::test]
    async fn an_older_server_is_not_told_twice_what_it_does_not_understand() {
        let says = |heard: &Mutex<Vec<String>>| {
            let heard = std::mem::take(&mut *heard.lock().unwrap());
            let says = |body: String| (body.contains("condition"), body.contains("draining"));
            heard.into_iter().map(says).collect::<Vec<_>>()
        };
        let beat = |beat| Heartbeat {
            session: SessionId(1),
            beat,
            condition: Some(WorkerCondition::default()),
            draining: true,
        };
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let port = RemotePort::new(older_server(&["draining"], heard.clone()));
        port.beat(beat(1)).await.unwrap();
        assert_eq!(says(&heard), [(true, true), (true, false)]);
        port.beat(beat(2)).await.unwrap();
        assert_eq!(says(&heard), [(true, false)]);
        let port = RemotePort::new(older_server(&["draining", "condition"], heard.clone()));
        port.beat(beat(1)).await.unwrap();
        assert_eq!(says(&heard), [(true, true), (true, false), (false, false)]);
    }
}
