//! Everything that is written can be read back, table by table.

use super::database::TestDatabase;
use super::dialect::{STORED_NUL, query, tables};
use super::fixture::{at, fetch, finished, id, job, lane, queued, write};
use crate::counters::{CounterChanges, JobTally, LaneCounts};
use crate::rows::{AssignedJob, JobKey, JobTerms, KeyKind, LiveRow, ScheduleRow};
use crate::unit_of_work::{
    DependencyRow, EndedRow, Leased, NewDeadLetter, NewSession, NoteChange, Numbered, ReadSet,
    RequestedClaims, SessionChange, Tables, WriteSet,
};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, SessionId};
use punctual_core::job::{Expiry, Priority, StoredStatus};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, LastNote, Percent, Progress};
use punctual_core::occurrence::{Live, LiveState, OccurrenceFlags};
use punctual_core::ports::{
    LeaseRef, NewRequest, QueueRow, RequestKey, SessionOpening, StoredAnswer, WorkerAbout,
};
use punctual_core::queue::QueueSettings;
use punctual_core::readmission::{QueuePosition, Readmission};
use punctual_core::schedule::{
    Overlap, OverlapPolicy, Replay, Schedule, ScheduleState, SkipRange, SkipReason,
};
use punctual_core::session::SessionMode;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_opened_changed_and_deleted() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let names = ReadSet { workers: ["w".to_owned()].into(), new_sessions: 2, ..ReadSet::default() };
        let interned = tables.intern(&names).await.unwrap();
        let (worker, numbers) = (interned.workers[0].1, interned.new_sessions);
        assert_eq!(tables.intern(&names).await.unwrap().workers, [("w".to_owned(), worker)]);
        let new = |id, embedded| NewSession {
            id,
            worker,
            opening: SessionOpening {
                worker: "w".to_owned(),
                lease: Duration::from_secs(6),
                embedded,
                job_types: vec!["report".to_owned()],
                slots: 4,
                about: WorkerAbout { host: Some("h\0st".to_owned()), ..WorkerAbout::default() },
                token: Some("t1".to_owned()),
            },
            opened_at: at(1),
        };
        let sessions_inserted = vec![new(numbers[0], true), new(numbers[1], false)];
        write(&mut tables, &WriteSet { sessions_inserted, ..WriteSet::default() }).await;
        let change = SessionChange {
            id: numbers[1],
            turn: 7,
            beat: 9,
            beaten_at: at(3),
            mode: SessionMode::Draining,
            attention: false,
            lost: true,
        };
        let attention = vec![numbers[0], SessionId(99_999)];
        write(&mut tables, &WriteSet { sessions_updated: vec![change], attention, ..WriteSet::default() })
            .await;
        let all = ReadSet { lost_sessions: true, embedded_sessions: true, ..ReadSet::default() };
        let found = fetch(&mut tables, &all).await.sessions;
        let seen: Vec<_> =
            found.iter().map(|session| (session.id, session.lost, session.place.attention)).collect();
        assert_eq!(seen, [(numbers[0], false, true), (numbers[1], true, false)]);
        let place = found[1].place;
        assert_eq!((place.turn, place.beat, place.mode), (7, 9, SessionMode::Draining));
        let gone = WriteSet { sessions_deleted: vec![numbers[1]], ..WriteSet::default() };
        write(&mut tables, &gone).await;
        let named = ReadSet { sessions: numbers.iter().copied().collect(), ..ReadSet::default() };
        assert_eq!(fetch(&mut tables, &named).await.sessions.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_keep_every_column() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let lane = lane(&mut tables, "default").await;
        let plain = job(1, lane);
        let mut full = job(2, lane);
        full.job.spec.name = "monthly".to_owned();
        full.job.spec.owner = "ann".to_owned();
        full.job.spec.priority = Priority::MAX;
        full.job.spec.payload = "{\"n\":12345678901234567890}".to_owned();
        full.job.spec.settings.schedule = Schedule::OneTime { at: at(50) };
        full.job.spec.settings.tags = vec!["pay".to_owned()];
        full.job.updated_at = at(5);
        full.job.numbered = Some(u32::MAX);
        full.job.fired = 3;
        let jobs_inserted = vec![plain.clone(), full.clone()];
        let tags_put = vec![(full.job.id, "pay".to_owned())];
        write(&mut tables, &WriteSet { jobs_inserted, tags_put, ..WriteSet::default() }).await;
        let read_set = ReadSet {
            jobs: [id(2)].into(),
            terms: [id(1), id(3)].into(),
            facts: [id(2)].into(),
            ..ReadSet::default()
        };
        let found = fetch(&mut tables, &read_set).await;
        assert_eq!(found.jobs, [full.clone()]);
        let terms = JobTerms { settings: plain.job.spec.settings.clone(), mark: StoredStatus::Active };
        assert_eq!(found.terms, [(id(1), terms)], "a missing row is left out");
        assert_eq!(found.facts, [(id(2), AssignedJob::from(&full.job))]);

        full.job.version = 2;
        full.job.mark = StoredStatus::Paused;
        let numbered = vec![Numbered { job: id(1), numbered: 4, spent: None }];
        let write_set = WriteSet {
            jobs_updated: vec![full.clone()],
            marks: vec![(id(1), StoredStatus::Failed)],
            numbered,
            tags_forgotten: vec![id(2)],
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        let found =
            fetch(&mut tables, &ReadSet { jobs: [id(1), id(2)].into(), ..ReadSet::default() }).await.jobs;
        assert_eq!(
            (found[0].job.mark, found[0].job.numbered, found[0].job.fired),
            (StoredStatus::Failed, Some(4), 0)
        );
        assert_eq!(found[1], full);
        assert!(query(&options, "SELECT 1 FROM job_tags").await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_held_taken_over_and_freed() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let key = JobKey { owner: "ann".to_owned(), kind: KeyKind::Unique, key: "nightly".to_owned() };
        let other = JobKey { kind: KeyKind::Idempotency, ..key.clone() };
        let keys_held = vec![(other.clone(), id(1)), (key.clone(), id(1))];
        write(&mut tables, &WriteSet { keys_held, ..WriteSet::default() }).await;
        write(&mut tables, &WriteSet { keys_taken: vec![(key.clone(), id(2))], ..WriteSet::default() }).await;
        let read_set = ReadSet { keys: [key.clone(), other.clone()].into(), ..ReadSet::default() };
        let mut found = fetch(&mut tables, &read_set).await.keys;
        found.sort();
        assert_eq!(found, [(other, id(1)), (key.clone(), id(2))]);
        write(&mut tables, &WriteSet { keys_freed: vec![id(1)], ..WriteSet::default() }).await;
        assert_eq!(fetch(&mut tables, &read_set).await.keys, [(key, id(2))]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_keep_every_column() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let lane = lane(&mut tables, "default").await;
        let state = ScheduleState {
            job: id(1),
            version: 1,
            nominal: Some(at(60)),
            due_at: Some(at(60)),
            replay: None,
            fired: 0,
            numbered: 0,
            job_version: 1,
            queue: "default".to_owned(),
            job_type: "report".to_owned(),
            owner: "default".to_owned(),
            priority: Priority::DEFAULT,
            overlap: Overlap::default(),
            expiry: None,
            depends: false,
            awaited: false,
            schedule: Schedule::OneTime { at: at(60) },
        };
        let held = ScheduleState { job: id(2), due_at: None, ..state.clone() };
        let rows = [state, held].map(|state| ScheduleRow { state, lane });
        write(&mut tables, &WriteSet { schedules_inserted: rows.to_vec(), ..WriteSet::default() }).await;
        let read_set = ReadSet { schedules: [id(1), id(2), id(3)].into(), ..ReadSet::default() };
        assert_eq!(fetch(&mut tables, &read_set).await.schedules, rows);
        let mut full = rows[1].clone();
        full.state.replay = Some(Replay {
            next: at(1),
            until: at(9),
            due_at: at(11),
            later: vec![(at(2), at(3))],
            waits: true,
            backfill: None,
        });
        full.state.overlap = Overlap { policy: OverlapPolicy::Queue, limit: 3, max_open: 4 };
        full.state.expiry = Some(Expiry::AfterMs(5));
        (full.state.version, full.state.fired, full.state.numbered) = (9, 5, 8);
        (full.state.depends, full.state.awaited) = (true, true);
        let write_set = WriteSet {
            schedules_updated: vec![full.clone()],
            schedules_deleted: vec![id(1)],
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        assert_eq!(fetch(&mut tables, &read_set).await.schedules, [full]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_occurrences_are_found_by_key_job_session_and_rank() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let (first, second) = (lane(&mut tables, "a").await, lane(&mut tables, "b").await);
        let jobs_inserted = (1..=6).map(|number| job(number, first)).collect();
        let live_inserted: Vec<LiveRow> =
            (1..=6).map(|number| queued(number, if number % 2 == 0 { first } else { second })).collect();
        let row = |number: usize| live_inserted[number - 1].clone();
        write(
            &mut tables,
            &WriteSet { jobs_inserted, live_inserted: live_inserted.clone(), ..WriteSet::default() },
        )
        .await;

        let claims = vec![
            RequestedClaims { lanes: vec![first, second], count: 3 },
            RequestedClaims { lanes: vec![second], count: 9 },
        ];
        let found = fetch(&mut tables, &ReadSet { claims, ..ReadSet::default() }).await;
        let ids =
            |numbers: &[u32]| numbers.iter().map(|number| id(*number).occurrence(1)).collect::<Vec<_>>();
        assert_eq!(found.claims, [ids(&[1, 2, 3]), ids(&[1, 3, 5])]);
        assert_eq!(found.live, [row(1), row(2), row(3), row(5)], "each once");
        assert_eq!(found.facts.len(), 4, "the job's data comes with each claimable execution");

        let session = SessionId(7);
        let mut running = row(1);
        running.live = running.live.claimed(session, 3, at(4)).unwrap();
        if let LiveState::Running(lease) = &mut running.live.state {
            lease.cancel_requested = true;
        }
        running.is_sole = true;
        let mut waiting = row(2);
        waiting.live = Live {
            state: LiveState::Waiting(Gates::only(Gate::Time)),
            available_at: at(99),
            expires_at: Some(at(100)),
            flags: OccurrenceFlags { noted: true, ..OccurrenceFlags::default() },
            attempt: 2,
            charged: 1,
            input: finished(2, at(9)).input,
            ..waiting.live
        };
        let mut leased = row(4);
        leased.live = leased.live.claimed(SessionId(8), 5, at(6)).unwrap();
        let write_set = WriteSet {
            leased: vec![Leased::of(&row(4), &leased).unwrap()],
            live_updated: vec![running.clone(), waiting.clone()],
            live_deleted: ids(&[3]),
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        let read_set = ReadSet {
            live: ids(&[5, 3]).into_iter().collect(),
            open_of_jobs: [id(2)].into(),
            held_by: [(session, 10)].into(),
            cancels_of: [session].into(),
            ..ReadSet::default()
        };
        let found = fetch(&mut tables, &read_set).await;
        assert_eq!(found.live, [running.clone(), waiting, row(5)]);
        let lease = LeaseRef { execution: running.live.execution(), epoch: Epoch(1) };
        assert_eq!(found.cancels, [(session, lease)]);
        let named = ReadSet { live: ids(&[4]).into_iter().collect(), ..ReadSet::default() };
        assert_eq!(fetch(&mut tables, &named).await.live, [leased]);
        let claims = vec![RequestedClaims { lanes: vec![first, second], count: 9 }];
        let found = fetch(&mut tables, &ReadSet { claims, ..ReadSet::default() }).await;
        assert_eq!(found.claims, [ids(&[5, 6])], "a leased execution is not queued any more");
    })
    .await;
}

/// A few kinds of leases are written with one statement each, many with one list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_any_number_of_kinds_are_stored() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let lane = lane(&mut tables, "default").await;
        for sessions in [1, 2, 9] {
            let numbers = 100 * sessions + 1..=100 * sessions + 10;
            let jobs_inserted = numbers.clone().map(|number| job(number, lane)).collect();
            let live_inserted: Vec<LiveRow> = numbers.clone().map(|number| queued(number, lane)).collect();
            let leased: Vec<LiveRow> = (live_inserted.iter().zip(numbers))
                .map(|(row, number)| {
                    let session = SessionId(i64::from(number % sessions));
                    let live = row.live.claimed(session, 3, at(i64::from(number % 2))).unwrap();
                    LiveRow { live, ..row.clone() }
                })
                .collect();
            let leases =
                live_inserted.iter().zip(&leased).map(|(row, leased)| Leased::of(row, leased).unwrap());
            let leases: Vec<Leased> = leases.collect();
            write(&mut tables, &WriteSet { jobs_inserted, live_inserted, ..WriteSet::default() }).await;
            write(&mut tables, &WriteSet { leased: leases, ..WriteSet::default() }).await;
            let read_set =
                ReadSet { live: leased.iter().map(|row| row.live.id).collect(), ..ReadSet::default() };
            assert_eq!(fetch(&mut tables, &read_set).await.live, leased, "{sessions} sessions");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_executions_are_stored_in_the_order_of_commits() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let lane = lane(&mut tables, "default").await;
        write(&mut tables, &WriteSet { jobs_inserted: vec![job(1, lane)], ..WriteSet::default() }).await;
        let ended = |number, seconds| EndedRow { finished: finished(number, at(seconds)), worker: Some(3) };
        let range = SkipRange { first: at(1), last: at(2), count: 2, reason: SkipReason::Overlap };
        let first = WriteSet {
            history: vec![ended(1, 9), ended(2, 8)],
            skips_inserted: vec![(id(1), range)],
            new_dead_letters: vec![NewDeadLetter {
                finished: finished(1, at(9)),
                noted: true,
                died_at: at(9),
            }],
            ..WriteSet::default()
        };
        write(&mut tables, &first).await;
        write(&mut tables, &WriteSet { history: vec![ended(3, 7)], ..WriteSet::default() }).await;
        let rows = query(&options, "SELECT completed_at FROM history ORDER BY place").await;
        let order: Vec<i64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
        assert_eq!(order, [9, 8, 7].map(|seconds| at(seconds).as_micros()));

        let (one, dead) = (finished(1, at(9)).id, id(1).occurrence(1));
        let read_set = ReadSet {
            ended: [one, id(9).occurrence(1).attempt(1)].into(),
            skipped: [(id(1), at(2), SkipReason::Overlap), (id(1), at(2), SkipReason::Paused)].into(),
            dead_letters: [dead].into(),
            latest_dead_letters: [id(1)].into(),
            dead_of_jobs: [id(1)].into(),
            ..ReadSet::default()
        };
        let found = fetch(&mut tables, &read_set).await;
        assert_eq!((found.ended.len(), found.ended[0].0), (1, one));
        assert_eq!((found.skipped.len(), found.dead_of_jobs), (1, vec![dead]));
        assert_eq!(found.dead_letters, found.latest_dead_letters);
        let letter = &found.dead_letters[0];
        assert_eq!((letter.occurrence, letter.noted, letter.job_name.as_str()), (dead, true, "report"));
        assert_eq!(letter.error, Some(format!("it broke{STORED_NUL}here")));

        let lengthened = SkipRange { first: at(3), last: at(6), count: 3, reason: SkipReason::Overlap };
        let last = WriteSet {
            skips_lengthened: vec![(found.skipped[0].number, lengthened)],
            deleted_dead_letters: vec![dead],
            ..WriteSet::default()
        };
        write(&mut tables, &last).await;
        let ranges = query(&options, "SELECT first, last, count FROM skipped").await;
        assert_eq!(ranges, [[at(1).as_micros(), at(6).as_micros(), 5].map(|number| number.to_string())]);
        assert_eq!(fetch(&mut tables, &read_set).await.dead_letters, []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependencies_notes_and_requests_are_stored_and_deleted() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let noted = id(1).occurrence(1);
        let progress = Progress { percent: Percent::new(12.5), message: Some("half\0way".to_owned()) };
        let note = |number, progress| NoteChange {
            id: noted,
            attempt: 1,
            last: LastNote { epoch: Epoch(2), number },
            noted_at: at(3),
            progress,
        };
        let pair = |parent, child| DependencyRow { parent: id(parent), child: id(child) };
        let request = RequestKey { token: "t".to_owned(), key: "k".to_owned() };
        let new = NewRequest { request: request.clone(), fingerprint: [7; 32], seed: u64::MAX - 1 };
        let checkpoint = Checkpoint::new("{\"at\":1}").unwrap();
        let write_set = WriteSet {
            dependencies_inserted: vec![pair(1, 3), pair(1, 4), pair(2, 3)],
            resolutions_inserted: vec![(id(1), true)],
            notes: vec![note(1, Some(progress))],
            checkpoints_put: vec![(noted, checkpoint.clone())],
            requests_inserted: vec![(new, at(5))],
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        write(&mut tables, &WriteSet { notes: vec![note(2, None)], ..WriteSet::default() }).await;
        let read_set = ReadSet {
            parents_of: [id(3)].into(),
            children_of: [(id(1), 1)].into(),
            resolutions: true,
            last_notes: [noted].into(),
            checkpoints: [noted].into(),
            requests: [request.clone()].into(),
            ..ReadSet::default()
        };
        let found = fetch(&mut tables, &read_set).await;
        assert_eq!(found.parents.len(), 2);
        assert_eq!((found.children, found.resolutions), (vec![(id(1), id(3))], vec![(id(1), true)]));
        assert_eq!(found.last_notes, [(noted, LastNote { epoch: Epoch(2), number: 2 })]);
        assert_eq!(found.checkpoints, [(noted, checkpoint)]);
        let begun = &found.requests[0].1;
        assert_eq!((begun.fingerprint, begun.seed, begun.begun_at), ([7; 32], u64::MAX - 1, at(5)));
        let said = query(&options, "SELECT percent, message FROM notes").await;
        assert_eq!(said, [["1250".to_owned(), format!("half{STORED_NUL}way")]], "it stays");

        let answer = StoredAnswer { status: 201, location: None, body: "{}".to_owned() };
        let write_set = WriteSet {
            dependencies_deleted: vec![pair(1, 4)],
            parents_forgotten: vec![id(3)],
            resolutions_deleted: vec![id(1)],
            notes_of_jobs_forgotten: vec![id(1)],
            requests_answered: vec![(request, answer.clone())],
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        let found = fetch(&mut tables, &read_set).await;
        assert_eq!((found.parents.len(), found.children.len(), found.resolutions.len()), (0, 0, 0));
        assert_eq!((found.last_notes.len(), found.checkpoints.len()), (0, 0));
        assert_eq!(found.requests[0].1.answer, Some(answer));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_set_and_counts_add_up_over_connections() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let lane = lane(&mut one, "mail").await;
        let reached = Some(QueuePosition { rank: -5, ..QueuePosition::LAST });
        let readmission = Some(Readmission { keys: true, all: false, reached });
        let settings = QueueSettings::holding(Some(5));
        let queue = QueueRow {
            queue: "mail".to_owned(),
            paused_at: Some(at(1)),
            settings,
            readmission,
            unreadable: None,
        };
        write(&mut one, &WriteSet { queues_put: vec![queue.clone()], ..WriteSet::default() }).await;
        let jobs = JobTally { active: 1, cancelled: -1, dead_letters: 2, ..JobTally::default() };
        let mut counts = CounterChanges { jobs, ..CounterChanges::default() };
        counts.lanes.insert(lane, LaneCounts { waiting: 1, queued: 2, running: -1 });
        let counted = WriteSet { counts, ..WriteSet::default() };
        write(&mut one, &counted).await;
        write(&mut other, &counted).await;
        write(&mut one, &counted).await;
        let read_set = ReadSet { queues: true, unstarted: ["mail".to_owned()].into(), ..ReadSet::default() };
        let found = fetch(&mut one, &read_set).await;
        assert_eq!((found.queues, found.unstarted), (vec![queue], vec![("mail".to_owned(), 9)]));
        let sums = "SELECT SUM(active), SUM(cancelled), SUM(dead_letters) FROM job_tally";
        assert_eq!(query(&options, sums).await, [["3", "-3", "6"]]);
        write(&mut one, &WriteSet { queues_deleted: vec!["mail".to_owned()], ..WriteSet::default() }).await;
        assert_eq!(fetch(&mut one, &read_set).await.queues, []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_differ_by_every_byte_and_keep_them_all() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let names =
            ["a", "a ", "A", "ä", "a\u{308}", "\"q\" \\ \u{1}\u{b}\n\t/", "漢字 😀", "null", "1e3", "{}"];
        let lanes = names.map(|name| (name.to_owned(), name.to_owned()));
        let read_set = ReadSet {
            lanes: lanes.iter().cloned().collect(),
            workers: names.iter().map(|name| (*name).to_owned()).collect(),
            ..ReadSet::default()
        };
        let found = tables.intern(&read_set).await.unwrap();
        let interned: BTreeSet<(String, String)> = found
            .lanes
            .iter()
            .map(|(_, lane)| (lane.queue().to_owned(), lane.job_type().to_owned()))
            .collect();
        assert_eq!((interned, found.lanes.len()), (read_set.lanes.clone(), names.len()));
        assert_eq!(found.workers.len(), names.len());
        let mut again = super::dialect::tables(&options).await.intern(&read_set).await.unwrap();
        let mut found = found;
        for found in [&mut again, &mut found] {
            found.lanes.sort_by_key(|(number, _)| *number);
            found.workers.sort();
        }
        assert_eq!(again, found, "another process reads them");

        let key = |name: &str| JobKey { owner: name.to_owned(), kind: KeyKind::Unique, key: name.to_owned() };
        let request = |name: &str| RequestKey { token: name.to_owned(), key: name.to_owned() };
        let queue = |name: &str| QueueRow::unset(name);
        let number = |name: &str| names.iter().position(|other| *other == name).unwrap() as u32 + 1;
        let new = |name: &str| NewRequest {
            request: request(name),
            fingerprint: [0; 32],
            seed: number(name).into(),
        };
        let write_set = WriteSet {
            keys_held: names.iter().map(|name| (key(name), id(number(name)))).collect(),
            tags_put: names.iter().map(|name| (id(1), (*name).to_owned())).collect(),
            queues_put: names.iter().map(|name| queue(name)).collect(),
            requests_inserted: names.iter().map(|name| (new(name), at(1))).collect(),
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        for name in names {
            let read_set =
                ReadSet { keys: [key(name)].into(), requests: [request(name)].into(), ..ReadSet::default() };
            let found = fetch(&mut tables, &read_set).await;
            assert_eq!(found.keys, [(key(name), id(number(name)))], "{name:?}");
            assert_eq!(
                (found.requests.len(), found.requests[0].1.seed),
                (1, number(name).into()),
                "{name:?}"
            );
        }
        let found = fetch(&mut tables, &ReadSet { queues: true, ..ReadSet::default() }).await;
        let queues: BTreeSet<String> = found.queues.into_iter().map(|row| row.queue).collect();
        assert_eq!(queues, names.iter().map(|name| (*name).to_owned()).collect());
        let mut tags: Vec<String> = query(&options, "SELECT tag FROM job_tags").await.concat();
        tags.sort();
        let mut expected = names.to_vec();
        expected.sort_unstable();
        assert_eq!(tags, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_lists_and_payloads_are_split_and_stored_completely() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let lane = lane(&mut tables, "default").await;
        let count = limits::DATABASE_LIST_ROWS_MAX as u32 + 100;
        let large = |number: u32| {
            let mut row = job(number, lane);
            let bytes = if number.is_multiple_of(100) { limits::PAYLOAD_BYTES_MAX - 2 } else { 10 };
            row.job.spec.payload = format!("\"{}\"", "x".repeat(bytes));
            row
        };
        let write_set = WriteSet {
            jobs_inserted: (1..=count).map(large).collect(),
            live_inserted: (1..=count).map(|number| queued(number, lane)).collect(),
            history: (1..=count)
                .map(|number| EndedRow { finished: finished(number, at(1)), worker: None })
                .collect(),
            ..WriteSet::default()
        };
        write(&mut tables, &write_set).await;
        let ids = (1..=count).map(id).collect();
        let found = fetch(&mut tables, &ReadSet { jobs: ids, ..ReadSet::default() }).await;
        assert_eq!(found.jobs, write_set.jobs_inserted);
        let claims = vec![RequestedClaims { lanes: vec![lane], count: count as usize + 1 }];
        let found = fetch(&mut tables, &ReadSet { claims, ..ReadSet::default() }).await;
        assert_eq!((found.claims[0].len(), found.facts.len()), (count as usize, count as usize));
        let gaps = "SELECT MAX(place) - MIN(place) + 1 - COUNT(*) FROM history";
        assert_eq!(query(&options, gaps).await, [["0"]], "positions have no gaps");
    })
    .await;
}
