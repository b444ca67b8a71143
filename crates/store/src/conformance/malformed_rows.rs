//! Damages one row of a store, column by column: only what the row describes is affected (decision 0027).
//! The columns come from the layout of the tables, so that a new column is tested automatically.

use super::audit::entry;
use super::directory::{changed, document, full_token, secret, user};
use super::fixture::{Harness, at, died, every, failed, job_with, lane, once, succeeded};
use crate::cells::{Cell, Cells, ColumnKind};
use crate::layout::{Column, Layout, TABLES, hex};
use crate::malformed::rows_passed_over;
use punctual_core::control::Verb;
use punctual_core::ids::{JobId, SegmentSet, SessionId};
use punctual_core::job::{Job, JobSpec};
use punctual_core::lifecycle::Status;
use punctual_core::limiter::{QueueLimits, Rate, WaitList};
use punctual_core::notes::{Checkpoint, Note, Percent, Progress};
use punctual_core::ports::{
    Assignment, AuditQuery, Beat, BeatOutcome, Claim, ClaimOutcome, ControlOutcome, DeadLetterQuery,
    DirectoryChange, DocumentChange, DocumentKind, DueKind, ExecutionQuery, ExecutionWalk, FireOutcome,
    FireRequest, Horizon, JobQuery, LookRequest, NewJob, NewRequest, Pausing, Report, ReportAnswer,
    RequestKey, Retirement, SessionOpening, Store, StoreError, StoredAnswer, SubmitOutcome,
};
use punctual_core::queue::QueueSettings;
use punctual_core::time::Timestamp;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The queue of everything that is damaged.
const DAMAGED: &str = "a damaged queue";
/// The queue and type of everything that must continue to work.
const SOUND: &str = "sound";
/// The number of the entry of the audit log that is not damaged.
const SOUND_ENTRY: u32 = 4;

/// How often each column is damaged, with different values in different rows: no kind of column has more
/// values.
pub(crate) const ROUNDS: usize = 5;

/// How a database writes values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

impl Dialect {
    fn quote(self, name: &str) -> String {
        match self {
            Dialect::MySql => format!("`{name}`"),
            _ => format!("\"{name}\""),
        }
    }

    /// The name of a column in this database.
    fn column(self, table: &Layout, name: &'static str) -> String {
        self.quote(match (self, table.name, name) {
            (Dialect::Sqlite, "history", "place") | (Dialect::Sqlite, "skipped", "number") => "seq",
            (Dialect::MySql, "live", "rank") => "claim_rank",
            _ => name,
        })
    }

    fn literal(self, kind: ColumnKind, cell: &Cell<'_>) -> String {
        match cell {
            Cell::Null => "NULL".to_owned(),
            Cell::Number(number) if self == Dialect::Postgres && kind == ColumnKind::Flag => {
                (*number != 0).to_string()
            }
            Cell::Number(number) => number.to_string(),
            Cell::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Cell::Bytes(bytes) if self == Dialect::Postgres && kind == ColumnKind::Id => {
                format!("'{}'::uuid", hex(bytes))
            }
            Cell::Bytes(bytes) if self == Dialect::Postgres => format!("'\\x{}'::bytea", hex(bytes)),
            Cell::Bytes(bytes) => format!("x'{}'", hex(bytes)),
            Cell::Id(_) => unreachable!("rows are read as bytes"),
        }
    }

    /// Invalid values for most columns of this kind, in SQL. Values that a database does not accept are
    /// left out.
    fn malformed(self, kind: ColumnKind) -> Vec<String> {
        let numbers =
            |largest: i64| vec![Cell::Number(-1), Cell::Number(99), Cell::Number(largest), Cell::Null];
        let big = || [numbers(i64::MAX), vec![Cell::Number(i64::MIN)]].concat();
        let text = |text: &str| Cell::Text(text.to_owned().into());
        let cells = match kind {
            ColumnKind::Big => big(),
            ColumnKind::Int => numbers(i64::from(i32::MAX)),
            ColumnKind::Small => numbers(i64::from(i16::MAX)),
            ColumnKind::Flag => vec![Cell::Number(7), Cell::Null],
            ColumnKind::Text | ColumnKind::Document => {
                vec![text("{garbage"), text(""), text("[7]"), Cell::Null]
            }
            ColumnKind::Id => {
                vec![Cell::Bytes(vec![0; 16].into()), Cell::Bytes(vec![0, 255].into()), Cell::Null]
            }
            ColumnKind::Bytes => vec![Cell::Bytes(vec![0, 255].into()), Cell::Null],
        };
        let mut values: Vec<String> = cells.iter().map(|cell| self.literal(kind, cell)).collect();
        if self == Dialect::Sqlite && matches!(kind, ColumnKind::Text | ColumnKind::Document) {
            values.push("CAST(x'ff00fe' AS TEXT)".to_owned());
        }
        values
    }
}

/// A damaged value in a row, and how to restore the original.
pub(crate) struct Damage {
    pub about: String,
    /// Whether a time has a value that cannot be printed.
    pub is_beyond_calendar: bool,
    pub spoil: String,
    pub repair: String,
}

/// The damage of one round: each column of each table once, with a different value and row in each round.
pub(crate) async fn damages(
    dialect: Dialect,
    round: usize,
    rows_of: impl AsyncFn(&'static Layout) -> Vec<Cells>,
) -> Vec<Damage> {
    let mut damages = Vec::new();
    // Lanes last: a submit while a lane is damaged creates another one, which stays.
    for table in TABLES.iter().rev().filter(|table| is_stored(dialect, table) && table.name != "lines") {
        let rows = rows_of(table).await;
        assert!(!rows.is_empty() || table.name == "resolutions", "nothing in {}", table.name);
        for (place, column) in table.columns.iter().enumerate() {
            if dialect != Dialect::Sqlite && (table.name, column.name) == ("lanes", "id") {
                // Server stores look for new lanes by number: work for a lane whose number was changed is
                // rejected.
                continue;
            }
            let values = dialect.malformed(column.kind);
            let value = &values[(round + place) % values.len()];
            let Some(row) = rows.get((round * 7 + place) % rows.len().clamp(1, damaged_rows_max(table)))
            else {
                continue;
            };
            let name = dialect.column(table, column.name);
            let keyed = |at: usize| -> String {
                let pairs = table.key_columns().iter().zip(row).enumerate().map(|(key, (column, cell))| {
                    let value = if key == at { value.clone() } else { dialect.literal(column.kind, cell) };
                    format!("{} = {value}", dialect.column(table, column.name))
                });
                pairs.collect::<Vec<_>>().join(" AND ")
            };
            let was = dialect.literal(column.kind, &row[place]);
            let is_end = [i64::MIN, i64::MAX].iter().any(|end| *value == end.to_string());
            damages.push(Damage {
                is_beyond_calendar: is_end && is_time(column),
                about: format!("{}.{} = {value} where {}", table.name, column.name, keyed(usize::MAX)),
                spoil: format!("UPDATE {} SET {name} = {value} WHERE {}", table.name, keyed(usize::MAX)),
                repair: format!("UPDATE {} SET {name} = {was} WHERE {}", table.name, keyed(place)),
            });
        }
    }
    damages
}

fn is_time(column: &Column) -> bool {
    let last = Timestamp::MAX.as_micros();
    let is_valid = |number| (column.check)(&[Cell::Number(number)], 0).is_ok();
    is_valid(last) && !is_valid(last + 1)
}

/// The first rows of a table are those that were created to be damaged.
fn damaged_rows_max(table: &Layout) -> usize {
    match table.name {
        "lanes" | "workers" | "sessions" | "tokens" | "users" | "secrets" | "documents" | "lane_tallies" => 1,
        "live" | "jobs" => 14,
        _ => 3,
    }
}

fn is_stored(dialect: Dialect, table: &Layout) -> bool {
    // Sums of counters, and numbers that the database assigns itself.
    table.name != "numbers"
        && (dialect == Dialect::Sqlite || !matches!(table.name, "lane_tallies" | "job_tally"))
}

/// The n-th job to be damaged.
fn damaged(number: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
    job_with(number, |spec| {
        spec.queue = DAMAGED.to_owned();
        change(spec);
    })
}

fn sound(number: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
    job_with(number, |spec| {
        (spec.queue, spec.job_type, spec.name) = (SOUND.to_owned(), SOUND.to_owned(), SOUND.to_owned());
        change(spec);
    })
}

/// Rows in every table, which stay untouched until they are damaged.
pub(crate) async fn populate(store: Arc<dyn Store>) {
    let harness = Harness::new(store.clone());
    let limits = QueueLimits {
        concurrency: Some(4),
        rate: Some(Rate { count: 1_000, per_ms: 1 }),
        key_concurrency: Some(1),
        ..QueueLimits::default()
    };
    let settings = QueueSettings { max_depth: Some(100_000), limits };
    store.set_queue(DAMAGED.to_owned(), settings).await.unwrap();
    for id in ["a damaged row", SOUND] {
        store.put_token(full_token(id, 7)).await.unwrap();
        changed(&*store, DirectoryChange::AddUser(user(id, id))).await;
        changed(&*store, DirectoryChange::AddSecret(secret(id, 1))).await;
        let add = DocumentChange::Add(document(id, 1));
        changed(&*store, DirectoryChange::Documents(vec![add])).await;
    }
    store.record_audit([1, 2, 3, SOUND_ENTRY].map(entry).to_vec()).await.unwrap();
    store.seal_audit(2).await.unwrap();
    let mut worker = harness.worker().await;
    // A dead letter with notes, then executions that have succeeded, are retried, run, are queued, on a
    // wait list, and wait for others.
    for number in 1..=5 {
        // Not at the same time: there is a rate limit.
        let now = at(i64::from(number));
        harness.submit(now, damaged(number, |spec| spec.settings.max_retries = 3)).await;
        let mut claimed = worker.claim(now, 1).await;
        let assignment = claimed.pop().expect("it is queued");
        let progress = Progress { percent: Percent::new(5.0), message: Some("on its way".to_owned()) };
        let note = Note {
            session: worker.session,
            lease: assignment.lease(),
            number: Some(1),
            progress: Some(progress),
            checkpoint: Some(Checkpoint::new("{}").unwrap()),
        };
        store.note(now, vec![note]).await.unwrap();
        match number {
            1 => drop(worker.end(now, &assignment, died(3)).await),
            2 => drop(worker.end(now, &assignment, succeeded(3)).await),
            3 => drop(worker.end(now, &assignment, failed(3)).await),
            _ => {}
        }
    }
    for number in 6..=9 {
        let keyed = damaged(number, |spec| spec.settings.concurrency_key = Some("k".to_owned()));
        harness.submit(at(20 + i64::from(number)), keyed).await;
    }
    harness.submit(at(40), damaged(10, |spec| spec.settings.depends_on = vec![damaged(6, |_| {}).id])).await;
    harness.submit(at(40), damaged(11, |spec| spec.settings.schedule = once(5_000))).await;
    let recurring = damaged(12, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.tags = vec!["a damaged tag".to_owned()];
        spec.settings.idempotency_key = Some("a damaged key".to_owned());
        spec.settings.unique_key = Some("a damaged key".to_owned());
    });
    harness.submit(at(41), recurring.clone()).await;
    // The second one is skipped: the first is still open.
    harness.fired(at(50), recurring.id, 1).await;
    harness.fired(at(60), recurring.id, 2).await;
    // First in rank of a lane that others use.
    harness.submit(at(61), sound(13, |_| {})).await;
    let request = RequestKey { token: "a damaged token".to_owned(), key: "k".to_owned() };
    let new = NewRequest { request: request.clone(), fingerprint: [3; 32], seed: 5 };
    store.begin_request(at(6), new).await.unwrap();
    let answer = StoredAnswer { status: 201, location: None, body: "{}".to_owned() };
    store.answer_request(request, answer).await.unwrap();
}

/// Everything unrelated to the damaged row works, and every list can be read. `number` distinguishes the
/// calls.
pub(crate) async fn everything_else_works(store: &dyn Store, number: u32) {
    let now = at(10_000 + i64::from(number) * 100);
    let first = 1_000 + number * 10;
    let job = |place: u32, change: &dyn Fn(&mut JobSpec)| sound(first + place, |spec| change(spec));
    let (plain, later) = (job(1, &|_| {}), job(2, &|spec| spec.settings.schedule = soon(now)));
    let beside = damaged(first + 3, |_| {});
    let new = [beside, plain.clone(), later.clone()].map(|job| NewJob { job, reservation: None });
    let outcomes = store.submit(now, new.to_vec()).await.unwrap();
    assert!(matches!(outcomes[1..], [SubmitOutcome::Created(_), SubmitOutcome::Created(_)]), "{outcomes:?}");

    let now = now.shifted(5_000_000);
    fire_all(store, now, later.id).await;
    let opening = SessionOpening {
        worker: SOUND.to_owned(),
        lease: Duration::from_secs(6),
        embedded: false,
        job_types: vec![SOUND.to_owned()],
        slots: 4,
        about: Default::default(),
        token: None,
    };
    let session = store.open_session(now, opening.clone()).await.unwrap();
    let claimed = claim_all(store, now, session, &[plain.id, later.id]).await;
    report_all(store, now, session, &claimed).await;
    beat_all(store, now, session).await;
    read_all(store, &plain, session).await;
    control(store, now, job(4, &|_| {})).await;
    recover(store, now, opening, job(5, &|_| {})).await;
    assert_eq!(store.token(SOUND).await.unwrap(), Some(full_token(SOUND, 7)));
    assert!(printable(store.tokens(None, 9).await).items.contains(&full_token(SOUND, 7)));
    assert_eq!(store.user_by_email(SOUND).await.unwrap(), Some(user(SOUND, SOUND)));
    assert!(printable(store.users(None, 9).await).items.contains(&user(SOUND, SOUND)));
    assert_eq!(store.secret(SOUND).await.unwrap(), Some(secret(SOUND, 1)));
    assert!(printable(store.secrets(None, 9).await).items.contains(&secret(SOUND, 1)));
    assert_eq!(store.document(DocumentKind::View, SOUND).await.unwrap(), Some(document(SOUND, 1)));
    let documents = printable(store.documents(DocumentKind::View, None, 9).await);
    assert!(documents.items.contains(&document(SOUND, 1)));
    store.record_audit(vec![entry(SOUND_ENTRY)]).await.unwrap();
    let sound_entry =
        AuditQuery { limit: 9, object: Some(entry(SOUND_ENTRY).object), ..AuditQuery::default() };
    assert!(
        printable(store.audit(sound_entry).await).items.iter().any(|row| row.entry == entry(SOUND_ENTRY))
    );
    let lines = vec![WaitList::of_queue(DAMAGED), WaitList::of_queue(SOUND)];
    store.admit(now, lines, 10).await.unwrap();
    store.resolve(now, 10).await.unwrap();
    let horizon = Horizon { history: at(-1_000), requests: at(-1_000) };
    store.retain(horizon, 100).await.unwrap();
    let retirement = Retirement { after: None, finished_before: at(-1_000), limit: 1_000 };
    store.retire(now, retirement).await.unwrap();
    store.purge(at(-1_000), 100).await.unwrap();
    store.close_session(now, session).await.unwrap();
}

fn soon(now: Timestamp) -> punctual_core::schedule::Schedule {
    punctual_core::schedule::Schedule::OneTime { at: now.shifted(1_000_000) }
}

/// Everything that is due, in one call of each kind.
async fn fire_all(store: &dyn Store, now: Timestamp, sound: JobId) {
    let due = store.due(SegmentSet::ALL, now, 1_000).await.unwrap();
    let (mut fires, mut looks) = (Vec::new(), Vec::new());
    for one in &due {
        match one.what {
            DueKind::Schedule { job, version } => fires.push(FireRequest { job, version, reservation: None }),
            DueKind::Live { occurrence, attempt } => {
                looks.push(LookRequest { occurrence, attempt, reservation: None })
            }
        }
    }
    let place = fires.iter().position(|fire| fire.job == sound).expect("it is due");
    let fired = store.fire(now, fires).await.unwrap();
    assert!(matches!(fired[place], FireOutcome::Fired { .. }), "{:?}", fired[place]);
    store.look(now, looks).await.unwrap();
}

/// Claims one by one from all queues until these jobs were claimed; returns everything else.
async fn claim_all(store: &dyn Store, now: Timestamp, session: SessionId, jobs: &[JobId]) -> Vec<Assignment> {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for turn in 1..50 {
        let job_types = vec![SOUND.to_owned(), lane().job_type().to_owned()];
        let claim = Claim { session, turn, limit: 1, queues: vec![], job_types };
        let outcome = store.claim(now, vec![claim]).await.unwrap().remove(0);
        let ClaimOutcome::Claimed { assignments, .. } = outcome else { panic!("{outcome:?}") };
        let Some(assignment) = assignments.into_iter().next() else { break };
        let is_meant = jobs.contains(&assignment.execution.occurrence.job);
        if is_meant {
            found.push(assignment)
        } else {
            others.push(assignment.lease())
        }
        if found.len() == jobs.len() {
            break;
        }
    }
    assert_eq!(found.len(), jobs.len(), "a malformed row blocks other rows");
    store.give_back(now, session, others).await.unwrap();
    found
}

async fn report_all(store: &dyn Store, now: Timestamp, session: SessionId, claimed: &[Assignment]) {
    let reports = claimed.iter().map(|one| Report { session, lease: one.lease(), end: succeeded(10_000) });
    for outcome in store.report(now, reports.collect()).await.unwrap() {
        assert_eq!(outcome.answer, ReportAnswer::Accepted);
    }
}

async fn beat_all(store: &dyn Store, now: Timestamp, sound: SessionId) {
    let mut beats: Vec<Beat> = (1..=3).map(|id| beat_of(SessionId(id))).collect();
    beats.push(beat_of(sound));
    let outcomes = store.beat(now, beats).await.unwrap();
    assert!(matches!(outcomes[3], BeatOutcome::Counted { .. }), "{outcomes:?}");
}

fn beat_of(session: SessionId) -> Beat {
    Beat { session, beat: 1, draining: false }
}

async fn control(store: &dyn Store, now: Timestamp, job: Job) {
    store.submit(now, vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
    for verb in [Verb::Pause, Verb::Resume, Verb::Cancel, Verb::Delete] {
        let control = punctual_core::ports::Control { job: job.id, verb: verb.clone() };
        let outcome = store.control(now, vec![control]).await.unwrap().remove(0);
        assert!(matches!(outcome, ControlOutcome::Done(_)), "{verb:?}: {outcome:?}");
    }
}

/// A worker dies, and its executions are retried.
async fn recover(store: &dyn Store, now: Timestamp, opening: SessionOpening, job: Job) {
    store.submit(now, vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
    let session = store.open_session(now, opening).await.unwrap();
    let claimed = claim_all(store, now, session, &[job.id]).await;
    let pulse = punctual_core::session::Pulse { session, beat: 0, lease: Duration::from_secs(6) };
    assert_eq!(store.lose_sessions(now, vec![pulse]).await.unwrap(), [true]);
    let recovered = store.recover(now, 1_000).await.unwrap();
    assert!(recovered.ended.contains(&(claimed[0].execution, Status::Lost)), "{recovered:?}");
    let cancel = punctual_core::ports::Control { job: job.id, verb: Verb::Cancel };
    store.control(now, vec![cancel]).await.unwrap();
}

/// The result contains no time that cannot be printed.
fn printable<T: Debug>(read: Result<T, StoreError>) -> T {
    let read = read.unwrap();
    let text = format!("{read:?}");
    for time in [i64::MIN, i64::MAX].map(Timestamp::from_micros) {
        assert!(!text.contains(&format!("{time:?}")), "{text}");
    }
    read
}

/// Every list, in small pages, contains the undamaged items.
async fn read_all(store: &dyn Store, sound: &Job, session: SessionId) {
    for status in [None, Some(punctual_core::job::JobStatus::Completed)] {
        let mut query = JobQuery { limit: 3, status, ..JobQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = printable(store.jobs(query.clone()).await);
            found.extend(page.items.iter().map(|view| view.job.id));
            query.before = page.next;
            if query.before.is_none() {
                break;
            }
        }
        assert!(found.contains(&sound.id), "{status:?}");
    }
    assert_eq!(printable(store.job(sound.id).await).map(|view| view.job.id), Some(sound.id));
    let finished = ExecutionWalk::Finished { status: Status::Succeeded, before: None };
    let (running, queued) = (ExecutionWalk::Running { after: None }, ExecutionWalk::Queued { before: None });
    for walk in [running, queued, ExecutionWalk::Waiting { before: None }, finished] {
        let mut query = ExecutionQuery {
            walk,
            limit: 2,
            queue: None,
            job_type: None,
            owner: None,
            worker: None,
            ended_from: None,
            ended_until: None,
        };
        let mut found = Vec::new();
        loop {
            let page = printable(store.executions(query.clone()).await);
            found.extend(page.items.iter().map(|item| item.view.id().occurrence.job));
            let Some(next) = page.next else { break };
            query.walk = next;
        }
        assert!(walk != finished || found.contains(&sound.id), "the list of succeeded executions");
    }
    assert_eq!(printable(store.executions_of_job(sound.id, None, 1).await).items.len(), 1);
    assert_eq!(printable(store.history(sound.id, None, 1).await).items.len(), 1);
    for number in 1..=13 {
        let id = damaged(number, |_| {}).id;
        printable(store.executions_of_job(id, None, 10).await);
        printable(store.notes(id, u32::MAX, 10).await);
        printable(store.skipped(id, 10).await);
    }
    printable(store.dead_letters(DeadLetterQuery { limit: 2, ..DeadLetterQuery::default() }).await);
    printable(store.running(None, 2).await);
    printable(store.finished_after(0, 3).await);
    store.history_span().await.unwrap();
    let sessions = printable(store.sessions().await);
    assert!(sessions.iter().any(|row| row.pulse.session == session));
    printable(store.queues().await);
    printable(store.paused_queues().await);
    printable(store.depths().await);
    store.job_counts().await.unwrap();
    store.holdings().await.unwrap();
    store.waiting_lines(None, 10).await.unwrap();
    store.limiters(vec![WaitList::of_queue(DAMAGED)]).await.unwrap();
}

/// The check finds every row that readers skipped while this ran, and all times beyond the calendar.
pub(crate) async fn is_found_by_check(
    damage: &Damage,
    probe: impl Future<Output = ()>,
    check: impl AsyncFn() -> Vec<String>,
) {
    // Before the row is used: a use may replace it.
    let problems = check().await;
    let before = rows_passed_over();
    probe.await;
    if rows_passed_over() > before || damage.is_beyond_calendar {
        assert!(
            problems.iter().any(|line| line.starts_with("malformed row in ")),
            "{}: {problems:#?}",
            damage.about
        );
    }
}

/// Statements that make the settings of a queue unreadable, and the column of each.
pub(crate) const SPOILED_QUEUES: [(&str, &str); 4] = [
    ("limits", "UPDATE queues SET limits = '{garbage' WHERE queue = 'bulk'"),
    ("unplaced", "UPDATE queues SET unplaced = '7' WHERE queue = 'bulk'"),
    ("max_depth", "UPDATE queues SET max_depth = -5 WHERE queue = 'bulk'"),
    ("paused_at", "UPDATE queues SET paused_at = 9223372036854775807 WHERE queue = 'bulk'"),
];

/// A queue with unreadable settings hands out no work, reports the reason, and is repaired by setting it again.
/// Returns what a check reports about it.
pub(crate) async fn set_again<S: Store + 'static>(
    number: u32,
    open: impl AsyncFn() -> Arc<S>,
    spoil: impl AsyncFn(),
    check: impl AsyncFn() -> Vec<String>,
) -> String {
    let limits = QueueLimits { concurrency: Some(1), ..QueueLimits::default() };
    let settings = QueueSettings { limits, ..QueueSettings::default() };
    let in_queue =
        |place: u32, queue: &str| job_with(number * 10 + place, |spec| spec.queue = queue.to_owned());
    let harness = Harness::new(open().await);
    harness.store.set_queue("bulk".to_owned(), settings.clone()).await.unwrap();
    harness.submit(at(1), in_queue(1, "bulk")).await;
    drop(harness);
    spoil().await;
    let problems = check().await;
    assert_eq!(problems.len(), 1, "{problems:#?}");

    let harness = Harness::new(open().await);
    let row = harness.store.queues().await.unwrap().remove(0);
    assert!(row.is_held() && row.unreadable.is_some(), "{row:?}");
    assert_eq!(harness.store.paused_queues().await.unwrap().len(), 1);
    harness.submit(at(2), in_queue(2, "bulk")).await;
    harness.submit(at(2), in_queue(3, "other")).await;
    let mut worker = harness.worker().await;
    let claimed = worker.claim(at(3), 10).await;
    let claimed: Vec<JobId> = claimed.iter().map(|one| one.execution.occurrence.job).collect();
    assert_eq!(claimed, [in_queue(3, "other").id], "other queues are not affected");
    let resumed = harness.store.pause_queue(at(3), "bulk".to_owned(), Pausing::Resume).await;
    assert!(resumed.is_err(), "resuming it would drop its limits");

    harness.store.set_queue("bulk".to_owned(), settings).await.unwrap();
    // A queue that was paused at an unreadable time stays paused.
    harness.store.pause_queue(at(3), "bulk".to_owned(), Pausing::Resume).await.unwrap();
    assert_eq!(harness.store.queues().await.unwrap().remove(0).unreadable, None);
    assert_eq!(check().await, Vec::<String>::new());
    let mut ended = 0;
    while ended < 2 {
        while !harness.store.admit(at(4), vec![WaitList::of_queue("bulk")], 10).await.unwrap().more.is_empty()
        {
        }
        let assignment = worker.claim_one(at(4)).await;
        assert!(worker.is_idle(at(4)).await, "the limit is in force again");
        worker.end(at(5), &assignment, succeeded(5)).await;
        ended += 1;
    }
    problems.into_iter().next().unwrap_or_default()
}
