//! A database of the first version, filled the way its binary did, and opened by this one.

use super::{apply, at, claim, job, keep, open_session, report};
use crate::directory::DirectoryRow;
use crate::reads::ReadKind;
use crate::sqlite::reads::statements::statement;
use crate::sqlite::rows::one;
use crate::sqlite::{SqliteCore, Upkeep, migrate};
use punctual_core::access::Role;
use punctual_core::control::Verb;
use punctual_core::ids::{Epoch, JobId, SegmentSet, SessionId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Origin;
use punctual_core::ports::{
    Assignment, Control, ControlOutcome, DeadLetterQuery, DueKind, FireOutcome, FireRequest, JobQuery,
    LeaseRef, LookOutcome, LookRequest, Outcome, Report, ReportAnswer, Token, TokenAbout, Write, WriteReply,
};
use punctual_core::schedule::{Schedule, SkipReason};
use punctual_core::session::SessionMode;
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::Arc;

/// The jobs, named for their state.
const ONE_TIME: u64 = 1;
const RECURRING: u64 = 2;
const RETRYING: u64 = 3;
const RUNNING: u64 = 4;
const DEAD: u64 = 5;
const DEAD_WITHOUT_HISTORY: u64 = 6;
const QUEUED: u64 = 7;

const EVERY_10S: &str =
    r#"{"recurring":{"recurrence":{"rule":{"interval":{"every":"10s","anchor":"2025-11-15T08:30:00Z"}}}}}"#;

#[test]
fn scheduled_jobs_fire() {
    let (_dir, mut core) = upgraded();
    let due = core.reads().due(SegmentSet::ALL, at(500), 10).unwrap();
    let found: Vec<_> = due.iter().map(|due| (due.at, due.what)).collect();
    let retry = DueKind::Live { occurrence: id(RETRYING).occurrence(1), attempt: 2 };
    let schedule = |n, version| DueKind::Schedule { job: id(n), version };
    assert_eq!(found, [(at(60), retry), (at(100), schedule(ONE_TIME, 1)), (at(110), schedule(RECURRING, 3))]);

    let fires = [(ONE_TIME, 1), (RECURRING, 3)].map(|(n, version)| FireRequest {
        job: id(n),
        version,
        reservation: None,
    });
    let reply =
        apply(&mut core, Write::Fire { now: at(112), fires: fires.to_vec(), calendars: Arc::default() });
    let WriteReply::Fired(outcomes) = reply else { panic!("{reply:?}") };
    let fired: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            FireOutcome::Fired { occurrences, skipped: 0, .. } => occurrences,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(fired[0], [(id(ONE_TIME).occurrence(1), at(100))]);
    assert_eq!(fired[1], [(id(RECURRING).occurrence(3), at(110))], "numbering continues");
    let next = core.reads().job(id(RECURRING)).unwrap().unwrap().schedule.unwrap();
    assert_eq!((next.due_at, next.fired, next.numbered), (Some(at(120)), 3, 3));
    check(&core);
}

#[test]
fn waiting_retries_run() {
    let (_dir, mut core) = upgraded();
    let look = LookRequest { occurrence: id(RETRYING).occurrence(1), attempt: 2, reservation: None };
    let reply = apply(&mut core, Write::Look { now: at(59), looks: vec![look.clone()] });
    assert_eq!(reply, WriteReply::Looked(vec![LookOutcome::NotDue]));
    let reply = apply(&mut core, Write::Look { now: at(60), looks: vec![look] });
    assert!(matches!(reply, WriteReply::Looked(outcomes) if matches!(outcomes[0], LookOutcome::Opened(_))));
    let session = open_session(&mut core);
    let claimed = claim(&mut core, session, 1, 10);
    let retried: Vec<&Assignment> =
        claimed.iter().filter(|next| next.execution.occurrence.job == id(RETRYING)).collect();
    assert_eq!((retried[0].execution.attempt, retried[0].epoch), (2, Epoch(2)));
    assert_eq!(claimed.len(), 2, "and the queued executions");
    report(&mut core, session, &claimed, Outcome::Succeeded { result: None });
    for n in [RETRYING, QUEUED] {
        assert_eq!(status(&mut core, n), JobStatus::Completed);
    }
    check(&core);
}

#[test]
fn running_executions_report_to_their_old_session() {
    let (_dir, mut core) = upgraded();
    let lease = LeaseRef { execution: id(RUNNING).occurrence(1).attempt(1), epoch: Epoch(1) };
    let end = Outcome::Succeeded { result: None }.into_end(at(2), at(3));
    let reports = vec![Report { session: SessionId(7), lease, end }];
    let reply = apply(&mut core, Write::Report { now: at(3), reports });
    assert!(matches!(reply, WriteReply::Reported(outcomes) if outcomes[0].answer == ReportAnswer::Accepted));
    let last = core.reads().job(id(RUNNING)).unwrap().unwrap().last_finished.unwrap();
    assert_eq!((last.status, last.worker.as_deref(), last.reason), (Status::Succeeded, Some("old"), None));
    check(&core);
}

#[test]
fn dead_letters_can_be_redriven() {
    let (_dir, mut core) = upgraded();
    let query = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    let letters = core.reads().dead_letters(&query).unwrap().items;
    let facts: Vec<_> = letters.iter().map(|letter| (letter.occurrence.job, letter.scheduled_time)).collect();
    assert_eq!(facts, [(id(DEAD_WITHOUT_HISTORY), at(9)), (id(DEAD), at(1))]);
    assert!(letters.iter().all(|letter| letter.origin == Origin::Schedule));

    let dead = letters.iter().map(|letter| letter.occurrence).collect();
    let reply = apply(&mut core, Write::Redrive { now: at(20), dead });
    let WriteReply::Redriven(outcomes) = reply else { panic!("{reply:?}") };
    assert!(outcomes.iter().all(|outcome| matches!(outcome, ControlOutcome::Done(_))), "{outcomes:?}");
    let session = open_session(&mut core);
    for assignment in claim(&mut core, session, 1, 10) {
        let job = assignment.execution.occurrence.job;
        let expected = match letters.iter().find(|letter| letter.occurrence.job == job) {
            Some(letter) => (letter.attempts + 1, letter.epoch.next()),
            None => (1, Epoch(1)),
        };
        assert_eq!((assignment.execution.attempt, assignment.epoch), expected, "job {job}");
        report(&mut core, session, &[assignment], Outcome::Succeeded { result: None });
    }
    let ends = core.reads().history(id(DEAD), None, 10).unwrap().items;
    let ends: Vec<_> = ends.iter().map(|end| (end.id.attempt, end.epoch.0, end.status)).collect();
    assert_eq!(ends, [(3, 4, Status::Succeeded), (2, 3, Status::Failed), (1, 1, Status::Failed)]);
    assert_eq!(
        (status(&mut core, DEAD), status(&mut core, DEAD_WITHOUT_HISTORY)),
        (JobStatus::Completed, JobStatus::Completed)
    );
    check(&core);
}

#[test]
fn control_verbs_work_on_existing_jobs() {
    let (_dir, mut core) = upgraded();
    for (now, verb) in [(105, Verb::Pause), (135, Verb::Resume), (136, Verb::trigger(false))] {
        let controls = vec![Control { job: id(RECURRING), verb }];
        let reply = apply(&mut core, Write::Control { now: at(now), controls });
        let WriteReply::Controlled(outcomes) = reply else { panic!("{reply:?}") };
        let ControlOutcome::Done(done) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(done.added, (now == 136).then(|| id(RECURRING).occurrence(3).attempt(1)));
        check(&core);
    }
    let skipped = core.reads().skipped(id(RECURRING), 10).unwrap();
    let facts: Vec<_> = skipped.iter().map(|range| (range.first, range.last, range.reason)).collect();
    assert_eq!(facts, [(at(110), at(130), SkipReason::Paused), (at(30), at(40), SkipReason::Overlap)]);
    let all = [ONE_TIME, RECURRING, RETRYING, RUNNING, DEAD, DEAD_WITHOUT_HISTORY, QUEUED];
    let controls = all.map(|n| Control { job: id(n), verb: Verb::Delete }).to_vec();
    apply(&mut core, Write::Control { now: at(137), controls });
    check(&core);
    keep(&mut core, Upkeep::Purge { before: at(1_000_000), limit: 100 });
    let left: i64 = core.connection().query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "one of them runs");
    check(&core);
}

#[test]
fn tokens_and_sessions_stay_valid() {
    let (_dir, mut core) = upgraded();
    let mut select = core.connection().prepare(statement(ReadKind::Token)).unwrap();
    let token = one(&mut select, ["t"], |row| Token::read(row)).unwrap().unwrap();
    drop(select);
    assert_eq!((token.role, token.about, token.expires_at), (Role::Admin, TokenAbout::default(), None));
    assert_eq!(core.reads().token_of_session(SessionId(7)).unwrap(), None);
}

#[test]
fn an_upgraded_database_has_the_tables_of_a_new_one() {
    let (_dir, core) = upgraded();
    let new = SqliteCore::open_in_memory().unwrap();
    let tables = |core: &SqliteCore| {
        let sql = "SELECT group_concat(line, char(10)) FROM (SELECT m.name || ' ' || c.name || ' ' || c.type AS line \
             FROM sqlite_schema AS m JOIN pragma_table_xinfo(m.name) AS c WHERE m.type = 'table' \
             UNION ALL SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema WHERE type = 'index' ORDER BY 1)";
        let mut select = core.connection().prepare(sql).unwrap();
        one(&mut select, [], |row| Ok(row.get::<_, String>(0)?)).unwrap()
    };
    assert_eq!(tables(&core), tables(&new));
}

fn check(core: &SqliteCore) {
    assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
}

fn status(core: &mut SqliteCore, number: u64) -> JobStatus {
    core.reads().job(id(number)).unwrap().unwrap().status()
}

fn id(number: u64) -> JobId {
    job(number).id
}

#[test]
fn queues_tags_and_history_of_the_second_version_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("punctual.db");
    fill_first_version(&path);
    let mut conn = Connection::open(&path).unwrap();
    migrate::migrate(&mut conn, &migrate::MAIN[..2]).unwrap();
    conn.execute("INSERT INTO paused_queues VALUES ('mail', ?1)", [at(5).as_micros()]).unwrap();
    let tagged = r#"UPDATE jobs SET settings = '{"tags":["eu","mail","eu"]}' WHERE id = ?1"#;
    conn.execute(tagged, [id(QUEUED).as_bytes()]).unwrap();
    let last: i64 = conn.query_row("SELECT max(seq) FROM history", [], |row| row.get(0)).unwrap();
    drop(conn);

    let mut core = SqliteCore::open(&path).unwrap();
    check(&core);
    let queues = core.reads().queues().unwrap();
    assert_eq!((queues.len(), queues[0].queue.as_str(), queues[0].paused_at), (1, "mail", Some(at(5))));
    for (tag, expected) in [("eu", vec![id(QUEUED)]), ("mail", vec![id(QUEUED)]), ("us", vec![])] {
        let query = JobQuery { limit: 10, tags: vec![tag.to_owned()], ..JobQuery::default() };
        let found = core.reads().jobs(&query).unwrap().items;
        assert_eq!(found.iter().map(|view| view.job.id).collect::<Vec<_>>(), expected, "{tag}");
    }
    let span = core.reads().history_span().unwrap();
    assert_eq!((span.begins_after, span.ends_at), (0, last as u64));
    assert_eq!(core.reads().finished_after(0, 10).unwrap().looked_to, last as u64);
    assert_eq!(core.reads().sessions().unwrap()[0].mode, SessionMode::Open);
}

/// A database of the first version, opened twice by this binary.
fn upgraded() -> (tempfile::TempDir, SqliteCore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("punctual.db");
    fill_first_version(&path);
    drop(SqliteCore::open(&path).unwrap());
    let mut core = SqliteCore::open(&path).unwrap();
    check(&core);
    for n in [ONE_TIME, RECURRING, RETRYING, RUNNING, QUEUED] {
        assert_eq!(status(&mut core, n), JobStatus::Active, "job {n}");
    }
    for n in [DEAD, DEAD_WITHOUT_HISTORY] {
        assert_eq!(status(&mut core, n), JobStatus::Failed, "job {n}");
    }
    let one_time = core.reads().job(id(ONE_TIME)).unwrap().unwrap().schedule.unwrap();
    assert_eq!((one_time.nominal, one_time.schedule), (Some(at(100)), Schedule::OneTime { at: at(100) }));
    (dir, core)
}

fn fill_first_version(path: &Path) {
    let mut conn = Connection::open(path).unwrap();
    migrate::migrate(&mut conn, &migrate::MAIN[..1]).unwrap();
    conn.execute_batch(
        "INSERT INTO lanes VALUES (1, 'default', 'noop');
         INSERT INTO workers VALUES (1, 'old');
         INSERT INTO tokens VALUES ('t', zeroblob(32), 3, 0);",
    )
    .unwrap();
    let micros = |seconds| at(seconds).as_micros();
    conn.execute(
        "INSERT INTO sessions VALUES (7, 1, 6000000, 0, '[\"noop\"]', 4, 5, 2, 0, 0, ?1, ?1)",
        [micros(0)],
    )
    .unwrap();

    let recurring = format!(r#"{{"schedule":{EVERY_10S}}}"#);
    // Stored status, kind of schedule, time, settings.
    let jobs = [
        (ONE_TIME, 0, 1, Some(micros(100)), None),
        (RECURRING, 0, 2, None, Some(recurring.as_str())),
        (RETRYING, 0, 0, None, None),
        (RUNNING, 0, 0, None, None),
        (DEAD, 2, 0, None, Some(r#"{"max_retries":1}"#)),
        (DEAD_WITHOUT_HISTORY, 2, 0, None, None),
        (QUEUED, 0, 0, None, None),
    ];
    for (n, mark, schedule_type, execute_at, settings) in jobs {
        conn.execute(
            "INSERT INTO jobs VALUES (?1, 1, ?2, 1, 5, ?3, ?4, ?5, NULL, NULL, NULL, ?6, 'null')",
            params![id(n).as_bytes(), mark, schedule_type, execute_at, micros(0), settings],
        )
        .unwrap();
    }
    for (n, version, due_at, fired, schedule) in
        [(ONE_TIME, 1, 100, 0, None), (RECURRING, 3, 110, 2, Some(EVERY_10S))]
    {
        conn.execute(
            "INSERT INTO schedules VALUES (?1, ?2, ?3, ?4, NULL, ?5, 1, 1, 5, 0, NULL, ?6, NULL)",
            params![id(n).as_bytes(), id(n).segment().index(), version, micros(due_at), fired, schedule],
        )
        .unwrap();
    }
    // State, gates, when available, attempt, charged, epoch, session, when claimed.
    let live = [
        (RETRYING, 0, 1, 60, 2, 1, 1, None, None),
        (RUNNING, 2, 0, 1, 1, 0, 1, Some(7), Some(micros(2))),
        (QUEUED, 1, 0, 1, 1, 0, 0, None, None),
    ];
    for (n, state, gates, available, attempt, charged, epoch, session, claimed_at) in live {
        conn.execute(
            "INSERT INTO live VALUES (?1, 1, ?2, 1, ?3, ?4, 0, 5, ?5, ?6, 0, 1, ?7, ?8, ?9, ?10, ?11, 0)",
            params![
                id(n).as_bytes(),
                id(n).segment().index(),
                state,
                gates,
                micros(available),
                micros(1),
                attempt,
                charged,
                epoch,
                session,
                claimed_at
            ],
        )
        .unwrap();
    }
    // Attempt, epoch, status; the lease with epoch 2 of the dead one was returned.
    for (n, attempt, epoch, status) in [(RETRYING, 1, 1, 1), (DEAD, 1, 1, 1), (DEAD, 2, 3, 1)] {
        conn.execute(
            "INSERT INTO history (job, occurrence, attempt, epoch, status, origin, job_version, scheduled_time, \
             available_at, started_at, completed_at, session, worker, error) \
             VALUES (?1, 1, ?2, ?3, ?4, 0, 1, ?5, ?5, ?6, ?6, 7, 1, 'it broke')",
            params![id(n).as_bytes(), attempt, epoch, status, micros(1), micros(2)],
        )
        .unwrap();
    }
    for (n, attempts) in [(DEAD, 2), (DEAD_WITHOUT_HISTORY, 4)] {
        conn.execute(
            "INSERT INTO dead_letters (job, occurrence, attempts, died_at, error) VALUES (?1, 1, ?2, ?3, 'it broke')",
            params![id(n).as_bytes(), attempts, micros(9)],
        )
        .unwrap();
    }
    conn.execute(
        "INSERT INTO skipped (job, first, last, count, reason) VALUES (?1, ?2, ?3, 2, 0)",
        params![id(RECURRING).as_bytes(), micros(30), micros(40)],
    )
    .unwrap();
}
