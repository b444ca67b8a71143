//! The worker protocol: the engine's worker port, for workers in other processes and languages.
//!
//! One poll sequence number on the wire corresponds to two in the store. A poll claims under the second one;
//! a poll that lists what its worker `held` first resyncs under the first one. So a worker that numbers its
//! polls and lists what it holds needs no separate resync. A late or duplicated copy of one of its polls
//! neither leases nor returns anything, because both numbers are used. All numbers of a session are mapped
//! this way, so the two styles can be mixed.

mod check;
mod results;

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, DocumentsBody, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::routes::listed::Listed;
use axum::Json;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{delete, post};
use punctual_client::protocol::{
    AssignmentBody, DemandAnswer, GiveBackRequest, HeartbeatAnswer, LeaseBody, LogsRequest, NotesAnswer,
    NotesRequest, OpenSession, PollAnswer, PollRequest, ReportRequest, ReportsAnswer, ResyncRequest,
    SessionBody, Verdict,
};
use punctual_core::ids::SessionId;
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{Assignment, LeaseRef, Poll, Report, WorkerPort, WorkerPortError};
use punctual_core::session::LeaseKeeper;
use punctual_core::slots::Demand;
use punctual_core::time::{Monotonic, Timestamp};

/// Outcomes, notes and log lines arrive in batches.
type LargeBody = JsonBody<BATCH_BODY_BYTES_MAX>;
/// Results and checkpoints: one that is too deep must not lose the outcomes next to it.
type ReportDocuments = DocumentsBody<BATCH_BODY_BYTES_MAX>;
type Body = JsonBody<BODY_BYTES_MAX>;

pub fn router() -> Listed {
    let large = || DefaultBodyLimit::max(BATCH_BODY_BYTES_MAX);
    Listed::new()
        .route("/sessions", post(open))
        .route("/sessions/{id}", delete(close))
        .route("/poll", post(poll))
        .route("/heartbeat", post(heartbeat))
        .route("/demand", post(demand))
        .route("/report", post(report).layer(large()))
        .route("/notes", post(notes).layer(large()))
        .route("/give-back", post(give_back))
        .route("/resync", post(resync))
        .route("/logs", post(logs).layer(large()))
        .route("/results", post(results::store))
}

async fn open(call: Call, body: Body) -> Result<(StatusCode, Json<SessionBody>), ApiError> {
    call.cases.worker_port()?;
    let (opening, schemas) = check::opening(json::parse::<OpenSession>(&body.bytes, DocumentShape::Worker)?)?;
    call.cases.register_job_types(&schemas).await?;
    let lease = opening.lease;
    let grant = call.cases.open_session(opening).await?;
    let start = Monotonic::from_micros(0);
    let keeper = LeaseKeeper::new(lease, start);
    let body = SessionBody {
        session: grant.session,
        now: grant.now,
        lease_secs: lease.into(),
        beat_secs: keeper.beat_interval().into(),
        stop_after_secs: keeper.stop_at().since(start).into(),
    };
    Ok((StatusCode::CREATED, Json(body)))
}

async fn close(call: Call, IdInPath(id): IdInPath<String>, _: NoBody) -> Result<StatusCode, ApiError> {
    let port = call.cases.worker_port()?;
    let session = id.parse().map(SessionId).map_err(|_| ApiError::SessionLost)?;
    port.close_session(session).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn poll(call: Call, body: Body) -> Result<Json<PollAnswer>, ApiError> {
    let port = call.cases.worker_port()?;
    let (mut poll, held) = check::poll(json::parse::<PollRequest>(&body.bytes, DocumentShape::Worker)?)?;
    if poll.queues.is_empty() {
        poll.queues = call.cases.queues_of_session(poll.session).await?;
    }
    call.cases.check_served(&poll.queues, &poll.job_types)?;
    // A waiting poll must not keep its share of the memory for bodies.
    drop(body);
    let session = poll.session;
    let taken = tokio::select! {
        biased;
        () = call.api.stopping() => return Err(ApiError::Stopping),
        taken = take(&port, poll, held) => taken,
    };
    let assignments = match taken {
        Ok(none) if none.is_empty() => none,
        // A poll waits for a while. Meanwhile the token may have stopped working, or may do something else.
        taken => match call.credential.caller(&call.api).await {
            Ok(caller) if caller.grant == call.cases.caller().grant => taken?,
            changed => {
                let leases = taken.iter().flatten().map(Assignment::lease).collect();
                // What cannot be given back ends with the session.
                let _ = port.give_back(session, leases).await;
                changed?;
                taken.map(|_| vec![])?
            }
        },
    };
    let now = call.cases.now();
    let (mut readable, mut unreadable) = (Vec::with_capacity(assignments.len()), Vec::new());
    for assignment in assignments {
        let lease = assignment.lease();
        match AssignmentBody::new(assignment, now) {
            Ok(body) => readable.push(body),
            Err(error) => unreadable.push(Report { session, lease, end: unreadable_payload(&error, now) }),
        }
    }
    if !unreadable.is_empty() {
        port.report(unreadable).await?;
    }
    Ok(Json(PollAnswer { assignments: readable }))
}

/// The end of an execution that cannot be sent to a worker. It must not keep others from their workers.
fn unreadable_payload(error: &serde_json::Error, now: Timestamp) -> ReportedEnd {
    ReportedEnd {
        ending: Ending::Failed,
        retryable: false,
        next_at: None,
        started_at: None,
        completed_at: now,
        error: Some(format!(
            "the stored payload is damaged: it is not JSON ({error}); update the job's payload"
        )),
        result: None,
    }
}

/// If the client disconnects, this future is dropped and the engine takes back what it has leased.
async fn take(
    port: &dyn WorkerPort,
    poll: Poll,
    held: Option<Vec<LeaseRef>>,
) -> Result<Vec<Assignment>, WorkerPortError> {
    if let Some(held) = held {
        port.resync(poll.session, check::turn_before(poll.turn), held).await?;
    }
    port.poll(poll).await
}

async fn heartbeat(call: Call, body: Body) -> Result<Json<HeartbeatAnswer>, ApiError> {
    let port = call.cases.worker_port()?;
    let heartbeat = check::heartbeat(json::parse(&body.bytes, DocumentShape::Worker)?)?;
    let answer = port.beat(heartbeat).await?;
    Ok(Json(HeartbeatAnswer {
        now: answer.now,
        turn: check::wire_turn(answer.turn),
        cancel: answer.cancel.into_iter().map(LeaseBody::from).collect(),
        drain: answer.drain,
    }))
}

async fn demand(call: Call, body: Body) -> Result<Json<DemandAnswer>, ApiError> {
    let port = call.cases.worker_port()?;
    let served = check::served(json::parse(&body.bytes, DocumentShape::Worker)?)?;
    call.cases.check_served(&served.queues, &served.job_types)?;
    let Demand { queued, oldest_wait } = port.demand(served).await?;
    Ok(Json(DemandAnswer { queued, oldest_wait_secs: oldest_wait.into() }))
}

async fn report(call: Call, DocumentsBody(body): ReportDocuments) -> Result<Json<ReportsAnswer>, ApiError> {
    let port = call.cases.worker_port()?;
    let ReportRequest { reports } = json::parse(&body.bytes, DocumentShape::Worker)?;
    let reports = check::reports(reports, call.cases.now())?;
    let answers = port.report(reports).await?;
    Ok(Json(ReportsAnswer { answers: answers.into_iter().map(Verdict::from).collect() }))
}

async fn notes(call: Call, DocumentsBody(body): ReportDocuments) -> Result<Json<NotesAnswer>, ApiError> {
    let port = call.cases.worker_port()?;
    let notes = check::notes(json::parse::<NotesRequest>(&body.bytes, DocumentShape::Worker)?)?;
    drop(body);
    let answers = port.note(notes).await?;
    Ok(Json(NotesAnswer { answers: answers.into_iter().map(Verdict::from).collect() }))
}

async fn give_back(call: Call, body: Body) -> Result<StatusCode, ApiError> {
    let port = call.cases.worker_port()?;
    let GiveBackRequest { session, leases } = json::parse(&body.bytes, DocumentShape::Worker)?;
    port.give_back(session, check::leases("leases", leases)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resync(call: Call, body: Body) -> Result<StatusCode, ApiError> {
    let port = call.cases.worker_port()?;
    let ResyncRequest { session, turn, held } = json::parse(&body.bytes, DocumentShape::Worker)?;
    let turn = check::turn(turn)?;
    port.resync(session, turn, check::leases("held", held)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn logs(call: Call, body: LargeBody) -> Result<StatusCode, ApiError> {
    call.cases.worker_port()?;
    let request: LogsRequest = json::parse(&body.bytes, DocumentShape::Worker)?;
    let (session, execution) = (request.session, request.execution_id);
    let lines = check::log_lines(request, call.cases.now())?;
    call.cases.append_logs(session, execution, lines).await?;
    Ok(StatusCode::NO_CONTENT)
}
