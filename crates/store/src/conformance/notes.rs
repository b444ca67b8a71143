//! Notes of handlers: progress for users, and a checkpoint for the next attempt.

use super::fixture::{Harness, Worker, at, died, failed, job, job_with, succeeded, time_gate};
use punctual_core::control::Verb;
use punctual_core::ids::{Epoch, OccurrenceId};
use punctual_core::notes::{Checkpoint, Note, NoteAnswer, Noted, Percent, Progress};
use punctual_core::ports::{Assignment, LeaseRef, LookOutcome, Store};
use punctual_core::time::Timestamp;
use std::sync::Arc;

fn document(json: &str) -> Checkpoint {
    Checkpoint::new(json).expect("it is small")
}

fn progress(percent: f64, message: &str) -> Progress {
    Progress { percent: Percent::new(percent), message: Some(message.to_owned()) }
}

/// An empty note with this number.
fn note(worker: &Worker, of: &Assignment, number: u64) -> Note {
    let (session, lease) = (worker.session, of.lease());
    Note { session, lease, number: Some(number), progress: None, checkpoint: None }
}

async fn say(harness: &Harness, now: Timestamp, note: Note) -> NoteAnswer {
    harness.store.note(now, vec![note]).await.unwrap().remove(0)
}

/// Saves a checkpoint that must be accepted.
async fn save(harness: &Harness, worker: &Worker, of: &Assignment, number: u64, json: &str) {
    let note = Note { checkpoint: Some(document(json)), ..note(worker, of, number) };
    assert_eq!(say(harness, at(3), note).await, NoteAnswer::Accepted);
}

async fn noted(harness: &Harness, id: OccurrenceId) -> Option<Noted> {
    let notes = harness.store.notes(id.job, id.number, 1).await.unwrap();
    notes.into_iter().find(|noted| noted.occurrence == id)
}

async fn checkpoint(harness: &Harness, id: OccurrenceId) -> Option<Checkpoint> {
    harness.store.checkpoint(id).await.unwrap()
}

/// A worker that runs a single job, which has retries left.
async fn running(harness: &Harness) -> (Worker, Assignment) {
    harness.submit(at(1), job(1)).await;
    let mut worker = harness.worker().await;
    let assignment = worker.claim_one(at(2)).await;
    assert_eq!(assignment.checkpoint, None);
    (worker, assignment)
}

pub async fn what_is_noted_is_shown_until_the_occurrence_succeeds(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    assert_eq!(noted(&harness, id).await, None);
    let said = Note { progress: Some(progress(12.5, "copying")), ..note(&worker, &first, 1) };
    assert_eq!(say(&harness, at(3), said).await, NoteAnswer::Accepted);
    let expected = Noted {
        occurrence: id,
        attempt: 1,
        progress: progress(12.5, "copying"),
        noted_at: at(3),
        checkpoint_bytes: None,
    };
    assert_eq!(noted(&harness, id).await, Some(expected));
    save(&harness, &worker, &first, 2, r#"{"ü":1}"#).await;
    let now = noted(&harness, id).await.unwrap();
    assert_eq!((now.progress, now.checkpoint_bytes), (progress(12.5, "copying"), Some(8)), "progress and checkpoint are stored separately");
    worker.end(at(4), &first, succeeded(4)).await;
    assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None));
}

pub async fn the_next_attempt_begins_with_the_last_checkpoint(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (mut worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "1").await;
    let both = Note {
        progress: Some(progress(50.0, "half")),
        checkpoint: Some(document("{\"offset\": 7.50}")),
        ..note(&worker, &first, 2)
    };
    assert_eq!(say(&harness, at(3), both).await, NoteAnswer::Accepted);
    let (retry_at, next) = time_gate(&worker.end(at(4), &first, failed(4)).await);
    assert_eq!(noted(&harness, id).await.unwrap().attempt, 1, "of the first attempt, not of the next");
    assert!(matches!(harness.look(retry_at, next, None).await, LookOutcome::Opened(_)));
    let second = worker.claim_one(retry_at).await;
    assert_eq!((second.execution.attempt, &second.checkpoint), (2, &Some(document("{\"offset\": 7.50}"))));
    let said = Note { progress: Some(progress(1.0, "again")), ..note(&worker, &second, 1) };
    assert_eq!(
        say(&harness, retry_at, said).await,
        NoteAnswer::Accepted,
        "each lease starts its own count of notes"
    );
    let now = noted(&harness, id).await.unwrap();
    assert_eq!((now.attempt, now.progress), (2, progress(1.0, "again")));
    assert_eq!(now.checkpoint_bytes, Some(16), "progress does not change the checkpoint");
}

pub async fn a_checkpoint_comes_along_with_an_offer(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    save(&harness, &worker, &first, 1, "[1]").await;
    let (retry_at, next) = time_gate(&worker.end(at(4), &first, failed(4)).await);
    match harness.look(retry_at, next, Some(worker.reservation())).await {
        LookOutcome::Opened(effects) => assert_eq!(effects.assigned[0].1.checkpoint, Some(document("[1]"))),
        other => panic!("{other:?}"),
    }
}

pub async fn a_checkpoint_survives_a_lost_worker_and_a_give_back(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    save(&harness, &worker, &first, 1, "1").await;
    worker.lose(at(20)).await;
    let mut other = harness.worker().await;
    let second = other.claim_one(at(21)).await;
    assert_eq!((second.execution.attempt, &second.checkpoint), (2, &Some(document("1"))));
    other.give_back(at(22), &second).await;
    let again = other.claim_one(at(23)).await;
    assert_eq!((again.execution.attempt, again.checkpoint), (2, Some(document("1"))));
}

pub async fn a_note_counts_only_under_its_live_lease(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "1").await;
    worker.lose(at(20)).await;
    let mut other = harness.worker().await;
    let second = other.claim_one(at(21)).await;
    let bad = |note: Note| Note { checkpoint: Some(document("\"bad\"")), ..note };
    let unknown = LeaseRef { execution: job(99).id.occurrence(1).attempt(1), epoch: Epoch(1) };
    let stale = vec![
        bad(note(&worker, &first, 9)),
        bad(note(&worker, &second, 9)),
        bad(Note { session: worker.session, ..note(&other, &second, 9) }),
        bad(Note { lease: LeaseRef { epoch: first.epoch, ..second.lease() }, ..note(&other, &second, 9) }),
        bad(Note { lease: unknown, ..note(&other, &second, 9) }),
        bad(note(&other, &second, 1)),
    ];
    let answers = harness.store.note(at(22), stale).await.unwrap();
    let (last, refused) = answers.split_last().unwrap();
    assert_eq!((refused, *last), (&[NoteAnswer::Stale; 5][..], NoteAnswer::Accepted));
    save(&harness, &other, &second, 2, "2").await;
    assert_eq!(checkpoint(&harness, id).await, Some(document("2")));
    other.end(at(23), &second, succeeded(23)).await;
    assert_eq!(say(&harness, at(24), bad(note(&other, &second, 3))).await, NoteAnswer::Stale);
    assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None));
}

pub async fn a_late_copy_of_a_note_does_not_undo_a_newer_one(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "1").await;
    save(&harness, &worker, &first, 3, "3").await;
    for late in [1, 2, 3] {
        let copy = Note { checkpoint: Some(document("\"late\"")), ..note(&worker, &first, late) };
        assert_eq!(say(&harness, at(5), copy).await, NoteAnswer::AlreadyAccepted);
    }
    assert_eq!(checkpoint(&harness, id).await, Some(document("3")));
    let uncounted = Note { number: None, checkpoint: Some(document("4")), ..note(&worker, &first, 0) };
    assert_eq!(say(&harness, at(6), uncounted).await, NoteAnswer::Accepted, "the newest of all");
    assert_eq!(checkpoint(&harness, id).await, Some(document("4")));
}

pub async fn a_null_checkpoint_forgets_the_one_before(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    save(&harness, &worker, &first, 1, "1").await;
    save(&harness, &worker, &first, 2, "null").await;
    assert_eq!(checkpoint(&harness, first.execution.occurrence).await, None);
    worker.lose(at(20)).await;
    assert_eq!(harness.worker().await.claim_one(at(21)).await.checkpoint, None);
}

pub async fn a_dead_letter_keeps_its_notes_for_a_redrive(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (mut worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "{}").await;
    worker.end(at(4), &first, died(4)).await;
    assert_eq!(noted(&harness, id).await.unwrap().checkpoint_bytes, Some(2));
    assert!(harness.dead_letters().await[0].noted);
    harness.redriven(at(5), id).await;
    let second = worker.claim_one(at(6)).await;
    assert_eq!((second.execution.attempt, &second.checkpoint), (2, &Some(document("{}"))));
    worker.end(at(7), &second, died(7)).await;
    harness.done(at(8), id.job, Verb::Retry).await;
    let third = worker.claim_one(at(9)).await;
    assert_eq!(third.checkpoint, Some(document("{}")));
    worker.end(at(10), &third, succeeded(10)).await;
    assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None));
}

pub async fn a_discarded_dead_letter_takes_its_notes_along(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "1").await;
    worker.end(at(4), &first, died(4)).await;
    assert_eq!(harness.store.discard(vec![id]).await.unwrap(), [true]);
    assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None));
}

pub async fn every_other_end_takes_the_notes_along(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for (number, verb) in (1..).zip([Some(Verb::Cancel), Some(Verb::Delete), None]) {
        harness.submit(at(1), job(number)).await;
        let first = worker.claim_one(at(2)).await;
        let id = first.execution.occurrence;
        save(&harness, &worker, &first, 1, "1").await;
        time_gate(&worker.end(at(4), &first, failed(4)).await);
        match verb {
            Some(verb) => {
                harness.done(at(5), id.job, verb).await;
            }
            None => {
                harness.cancel(at(5), id.attempt(2)).await;
            }
        }
        assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None), "job {number}");
    }
}

pub async fn what_runs_of_a_deleted_job_may_still_note_and_leaves_nothing(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "1").await;
    harness.done(at(4), id.job, Verb::Delete).await;
    save(&harness, &worker, &first, 2, "2").await;
    worker.end(at(5), &first, failed(5)).await;
    assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None));
}

pub async fn a_deleted_job_takes_the_notes_of_its_dead_letters_along(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    let id = first.execution.occurrence;
    save(&harness, &worker, &first, 1, "1").await;
    worker.end(at(4), &first, died(4)).await;
    harness.done(at(5), id.job, Verb::Delete).await;
    assert_eq!((noted(&harness, id).await, checkpoint(&harness, id).await), (None, None));
}

pub async fn an_update_leaves_what_is_noted(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (worker, first) = running(&harness).await;
    save(&harness, &worker, &first, 1, "1").await;
    let spec = job_with(1, |spec| spec.priority = punctual_core::job::Priority::new(9).unwrap()).spec;
    let update = punctual_core::control::Update { spec, expected_version: None };
    harness.done(at(4), first.execution.occurrence.job, Verb::Update(Box::new(update))).await;
    worker.lose(at(20)).await;
    assert_eq!(harness.worker().await.claim_one(at(21)).await.checkpoint, Some(document("1")));
}
