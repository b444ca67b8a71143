//! The same random writes on SQLite and on a unit of work: every reply and all rows at the end are equal,
//! no matter which writes share a transaction.

use super::Store;
use crate::codes::Code;
use crate::counters::StoredCounts;
use crate::rows::KeyKind;
use crate::sqlite::SqliteCore;
use crate::sqlite::tests::walk::{Company, Walk};
use crate::unit_of_work::simulated_server::MemoryDatabase;
use punctual_core::ids::JobId;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    ClaimOutcome, CommitEffects, DeadLetter, DeadLetterQuery, JobView, Lane, Write, WriteReply,
};
use rusqlite::Row;
use rusqlite::types::Value;
use std::collections::{BTreeMap, BTreeSet};

#[tokio::test]
async fn units_of_work_answer_like_the_embedded_store() {
    for seed in 200..206 {
        walk_alike(seed, Company::PeopleOnly, |_| 1).await;
    }
    for seed in 206..208 {
        walk_alike(seed, Company::WorkersOnly, |_| 1).await;
    }
}

#[tokio::test]
async fn units_of_work_answer_alike_however_many_writes_share_a_transaction() {
    for seed in 208..214 {
        walk_alike(seed, Company::PeopleOnly, |at| 1 + at % 7).await;
    }
    walk_alike(214, Company::PeopleOnly, |_| 40).await;
}

#[tokio::test]
async fn units_of_work_answer_alike_although_transactions_conflict() {
    let (walk, mut store) = (walked(215, Company::PeopleOnly), Store::default());
    for (at, (write, expected)) in walk.journal.iter().enumerate() {
        store.tables.database().conflicts = at % 3;
        assert_eq!(store.apply(write.clone()).await, *expected, "{write:?}");
    }
}

fn walked(seed: u64, company: Company) -> Walk {
    let mut walk = Walk::new(seed, company);
    walk.go();
    walk
}

/// The rows are compared after this many writes.
const COMPARED_EVERY: usize = 25;

async fn walk_alike(seed: u64, company: Company, together: impl Fn(usize) -> usize) {
    let (walk, mut store) = (walked(seed, company), Store::default());
    let mut core = SqliteCore::open_in_memory().unwrap();
    let (mut at, mut compared) = (0, 0);
    while at < walk.journal.len() {
        let batch = &walk.journal[at..(at + together(at)).min(walk.journal.len())];
        let writes: Vec<Write> = batch.iter().map(|(write, _)| write.clone()).collect();
        let replies = store.run(&writes).await;
        for ((write, expected), reply) in batch.iter().zip(replies) {
            core.apply(&[write.clone().into()]).pop().unwrap().unwrap();
            let reply = reply.map(|reply| among_lanes(reply, &lanes_of(&core)));
            assert_eq!(reply.as_ref(), Ok(expected), "seed {seed}, from {at}: {write:?}");
        }
        at += batch.len();
        if at >= compared + COMPARED_EVERY || at == walk.journal.len() {
            compared = at;
            compare(&format!("seed {seed}, after {at}"), &mut core, &store.tables.database());
        }
    }
}

/// The reply without lanes that the embedded store does not have yet. A unit of work creates the lanes of a
/// whole batch before it begins, including those of rejected jobs. Naming an empty lane only wakes a worker
/// needlessly.
fn among_lanes(mut reply: WriteReply, lanes: &BTreeSet<Lane>) -> WriteReply {
    let forget = |effects: &mut CommitEffects| effects.queued.retain(|lane| lanes.contains(lane));
    match &mut reply {
        WriteReply::QueuePaused(effects) => forget(effects),
        WriteReply::Claimed(outcomes) => {
            for outcome in outcomes {
                if let ClaimOutcome::Claimed { effects, .. } = outcome {
                    forget(effects);
                }
            }
        }
        _ => {}
    }
    reply
}

fn lanes_of(core: &SqliteCore) -> BTreeSet<Lane> {
    let mut select = core.connection().prepare_cached("SELECT queue, job_type FROM lanes").unwrap();
    let lane = |row: &Row<'_>| Ok(Lane::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    select.query_map([], lane).unwrap().collect::<Result<_, _>>().unwrap()
}

fn compare(when: &str, core: &mut SqliteCore, database: &MemoryDatabase) {
    for job in database.jobs.keys() {
        compare_job(when, core, database, *job);
    }
    let query = DeadLetterQuery { limit: 1_000, ..DeadLetterQuery::default() };
    let letters = core.reads().dead_letters(&query).unwrap().items.into_iter();
    let letters = letters.map(|letter| (letter.occurrence, DeadLetter { number: 0, ..letter }));
    let mine = database.dead.iter().map(|(id, letter)| (*id, named_now(letter, database)));
    assert_eq!(letters.collect::<BTreeMap<_, _>>(), mine.collect(), "{when}");
    let (one, other) = (rows_of_sqlite(core), rows_of_maps(database));
    for (table, rows) in one {
        assert_eq!(rows, other[table], "{when}, {table}");
    }
}

/// A dead letter shows the current names of its job.
fn named_now(letter: &DeadLetter, database: &MemoryDatabase) -> DeadLetter {
    let spec = &database.jobs[&letter.occurrence.job].job.spec;
    let (job_name, job_type, queue) = (spec.name.clone(), spec.job_type.clone(), spec.queue.clone());
    DeadLetter { number: 0, job_name, job_type, queue, ..letter.clone() }
}

fn compare_job(when: &str, core: &mut SqliteCore, database: &MemoryDatabase, id: JobId) {
    let MemoryDatabase { jobs, live, schedules, history, .. } = database;
    let ends = core.reads().history(id, None, 1_000).unwrap().items;
    let ends: Vec<Finished> = ends.into_iter().rev().map(|end| Finished { worker: None, ..end }).collect();
    let mut expected: Vec<Finished> = history
        .values()
        .map(|row| row.finished.clone())
        .filter(|finished| finished.id.occurrence.job == id)
        .collect();
    expected.sort_by_key(|finished| finished.id);
    assert_eq!(ends, expected, "{when}, history of {id}");
    let Some(JobView { job, schedule, open, .. }) = core.reads().job(id).unwrap() else { return };
    assert_eq!(job, jobs[&id].job, "{when}");
    assert_eq!(schedule.as_ref(), schedules.get(&id).map(|row| &row.state), "{when}");
    let mine: Vec<_> =
        live.range(id.occurrence(0)..=id.occurrence(u32::MAX)).map(|(_, row)| &row.live).collect();
    assert_eq!(open.iter().rev().collect::<Vec<_>>(), mine, "{when}");
}

type Contents = BTreeMap<&'static str, Vec<Vec<Value>>>;

fn rows_of_sqlite(core: &SqliteCore) -> Contents {
    let queries = [
        ("marks", "SELECT id, mark, numbered, fired FROM jobs ORDER BY id"),
        ("dependencies", "SELECT parent, child FROM dependencies ORDER BY parent, child"),
        ("resolutions", "SELECT parent, succeeded FROM resolutions ORDER BY parent"),
        ("job_keys", "SELECT owner, kind, key, job FROM job_keys ORDER BY owner, kind, key"),
        (
            "notes",
            "SELECT job, occurrence, attempt, epoch, number, noted_at FROM notes ORDER BY job, occurrence",
        ),
        ("checkpoints", "SELECT job, occurrence, document FROM checkpoints ORDER BY job, occurrence"),
        ("sessions", "SELECT id, turn, beat, attention, lost, beaten_at FROM sessions ORDER BY id"),
        ("skipped", "SELECT job, first, last, count, reason FROM skipped ORDER BY job, first, last"),
        ("queues", "SELECT queue, paused_at FROM queues ORDER BY queue"),
        ("sole", "SELECT job, occurrence, ties > 127 FROM live ORDER BY job, occurrence"),
        (
            "tallies",
            "SELECT queue, job_type, waiting, queued, running FROM lane_tallies JOIN lanes ON id = lane ORDER BY queue, job_type",
        ),
        ("job_tally", "SELECT active, paused, completed, failed, cancelled, dead_letters FROM job_tally"),
    ];
    let read = |sql: &str| {
        let mut select = core.connection().prepare(sql).unwrap();
        let columns = select.column_count();
        let rows =
            select.query_map([], |row| (0..columns).map(|at| row.get::<_, Value>(at)).collect()).unwrap();
        rows.collect::<Result<Vec<Vec<Value>>, _>>().unwrap()
    };
    queries.into_iter().map(|(table, sql)| (table, read(sql))).collect()
}

fn rows_of_maps(database: &MemoryDatabase) -> Contents {
    let bytes = |job: &JobId| Value::Blob(job.as_bytes().to_vec());
    let text = |text: &str| Value::Text(text.to_owned());
    let number = |number: i64| Value::Integer(number);
    let kind = |kind: KeyKind| number(kind.code());
    let optional = |value: Option<i64>| value.map_or(Value::Null, Value::Integer);
    let mut skipped: Vec<_> = database.skipped.values().copied().collect();
    skipped.sort_by_key(|(job, range)| (*job, range.first, range.last));
    let mut counters: Vec<_> = database
        .counts
        .lanes
        .iter()
        .map(|(lane, counts)| {
            let lane = &database.lanes[*lane as usize - 1];
            (lane.queue(), lane.job_type(), counts)
        })
        .collect();
    counters.sort_by_key(|(queue, job_type, _)| (*queue, *job_type));
    Contents::from([
        (
            "marks",
            database
                .jobs
                .values()
                .map(|row| {
                    let fired = Some(i64::from(row.job.fired)).filter(|fired| *fired > 0);
                    vec![
                        bytes(&row.job.id),
                        number(row.job.mark.code()),
                        optional(row.job.numbered.map(i64::from)),
                        optional(fired),
                    ]
                })
                .collect(),
        ),
        (
            "dependencies",
            database.dependencies.iter().map(|tie| vec![bytes(&tie.parent), bytes(&tie.child)]).collect(),
        ),
        (
            "resolutions",
            database
                .resolutions
                .iter()
                .map(|(job, succeeded)| vec![bytes(job), number((*succeeded).into())])
                .collect(),
        ),
        (
            "job_keys",
            database
                .keys
                .iter()
                .map(|(key, job)| vec![text(&key.owner), kind(key.kind), text(&key.key), bytes(job)])
                .collect(),
        ),
        (
            "notes",
            database
                .notes
                .iter()
                .map(|(id, note)| {
                    vec![
                        bytes(&id.job),
                        number(id.number.into()),
                        number(note.attempt.into()),
                        number(note.last.epoch.0.into()),
                        number(note.last.number as i64),
                        number(note.noted_at.as_micros()),
                    ]
                })
                .collect(),
        ),
        (
            "checkpoints",
            database
                .checkpoints
                .iter()
                .map(|(id, checkpoint)| {
                    vec![bytes(&id.job), number(id.number.into()), text(checkpoint.as_json())]
                })
                .collect(),
        ),
        (
            "sessions",
            database
                .sessions
                .iter()
                .map(|(id, session)| {
                    vec![
                        number(id.0),
                        number(session.place.turn as i64),
                        number(session.place.beat as i64),
                        number(session.place.attention.into()),
                        number(session.lost.into()),
                        number(session.beaten_at.as_micros()),
                    ]
                })
                .collect(),
        ),
        (
            "skipped",
            skipped
                .iter()
                .map(|(job, range)| {
                    vec![
                        bytes(job),
                        number(range.first.as_micros()),
                        number(range.last.as_micros()),
                        number(range.count as i64),
                        number(range.reason.code()),
                    ]
                })
                .collect(),
        ),
        (
            "queues",
            database
                .queues
                .values()
                .map(|row| vec![text(&row.queue), optional(row.paused_at.map(|at| at.as_micros()))])
                .collect(),
        ),
        (
            "sole",
            database
                .live
                .iter()
                .map(|(id, row)| vec![bytes(&id.job), number(id.number.into()), number(row.is_sole.into())])
                .collect(),
        ),
        (
            "tallies",
            counters
                .into_iter()
                .map(|(queue, job_type, counts)| {
                    [text(queue), text(job_type)].into_iter().chain(counts.each().map(number)).collect()
                })
                .collect(),
        ),
        ("job_tally", vec![database.counts.jobs.each().map(number).collect()]),
    ])
}
