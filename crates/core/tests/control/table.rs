//! Every verb from every state of a job in one table: the resulting status, or why the verb does not apply.
//! The columns are pause, resume, trigger, retry, cancel, delete and an update of the priority.

use crate::harness::{Harness, TRIGGER, at, every, once, spec, with};
use punctual_core::control::{Change, Update, Verb};
use punctual_core::job::{JobSpec, Priority};
use punctual_core::lifecycle::Ending;
use punctual_core::schedule::{OverlapPolicy, Recurring, Schedule};

const NOW: i64 = 90;

fn standings() -> Vec<(&'static str, Harness)> {
    let mut one_shot_running = Harness::submitted(spec(Schedule::Immediate));
    one_shot_running.claim(1, at(1));
    let mut retrying = one_shot_running.clone();
    retrying.end(1, Ending::Failed, at(2));
    let mut paused = Harness::recurring(OverlapPolicy::Skip);
    paused.does(Verb::Pause, at(11));
    let mut paused_one_shot = Harness::submitted(spec(once(10)));
    paused_one_shot.does(Verb::Pause, at(1));
    let last_run = Recurring { max_runs: Some(1), ..every(10) };
    let mut exhausted = Harness::submitted(with(spec(last_run), |settings| settings.max_retries = 0));
    exhausted.fire(at(10));
    exhausted.claim(1, at(11));
    exhausted.end(1, Ending::Failed, at(12));
    let mut deleted = Harness::failed();
    deleted.does(Verb::Delete, at(30));
    vec![
        ("recurring, to come", Harness::submitted(spec(every(10)))),
        ("recurring, queued", Harness::recurring(OverlapPolicy::Skip)),
        ("recurring, running", Harness::running(OverlapPolicy::Skip)),
        ("recurring, paused", paused),
        ("recurring, all runs had", exhausted),
        ("recurring, cancelled", Harness::cancelled()),
        ("one-shot, to come", Harness::submitted(spec(once(100)))),
        ("one-shot, queued", Harness::submitted(spec(Schedule::Immediate))),
        ("one-shot, running", one_shot_running),
        ("one-shot, to be retried", retrying),
        ("one-shot, paused", paused_one_shot),
        ("one-shot, completed", Harness::completed()),
        ("one-shot, failed", Harness::failed()),
        ("one-shot, deleted", deleted),
    ]
}

fn answer(harness: &Harness, verb: Verb) -> String {
    let mut harness = harness.clone();
    match harness.asked(verb.clone(), at(NOW)) {
        Ok(change) if change == Change::default() => "same".to_owned(),
        Ok(_) => {
            harness.does(verb, at(NOW));
            format!("{:?}", harness.status()).to_uppercase()
        }
        Err(refusal) => format!("{refusal:?}"),
    }
}

#[test]
fn every_verb_has_an_answer_from_every_standing() {
    let mut table = String::new();
    for (standing, harness) in standings() {
        let spec = JobSpec { priority: Priority::MAX, ..harness.standing.job.spec.clone() };
        let update = Verb::Update(Box::new(Update { spec, expected_version: None }));
        let verbs = [Verb::Pause, Verb::Resume, TRIGGER, Verb::Retry, Verb::Cancel, Verb::Delete, update];
        let answers = verbs.map(|verb| answer(&harness, verb)).join(" | ");
        table += &format!("{standing}: {answers}\n");
    }
    insta::assert_snapshot!(table, @r"
    recurring, to come: PAUSED | same | ACTIVE | NothingDead | CANCELLED | CANCELLED | ACTIVE
    recurring, queued: PAUSED | same | Overlap | NothingDead | CANCELLED | CANCELLED | ACTIVE
    recurring, running: PAUSED | same | Overlap | NothingDead | CANCELLED | CANCELLED | ACTIVE
    recurring, paused: same | ACTIVE | Overlap | NothingDead | CANCELLED | CANCELLED | PAUSED
    recurring, all runs had: Finished(Completed) | Finished(Completed) | ACTIVE | ACTIVE | Finished(Completed) | CANCELLED | COMPLETED
    recurring, cancelled: Finished(Cancelled) | Finished(Cancelled) | Cancelled | Cancelled | same | CANCELLED | Cancelled
    one-shot, to come: PAUSED | same | ACTIVE | NothingDead | CANCELLED | CANCELLED | ACTIVE
    one-shot, queued: PAUSED | same | Overlap | NothingDead | CANCELLED | CANCELLED | ACTIVE
    one-shot, running: PAUSED | same | Overlap | NothingDead | CANCELLED | CANCELLED | ACTIVE
    one-shot, to be retried: PAUSED | same | Overlap | NothingDead | CANCELLED | CANCELLED | ACTIVE
    one-shot, paused: same | ACTIVE | PAUSED | NothingDead | CANCELLED | CANCELLED | PAUSED
    one-shot, completed: Finished(Completed) | Finished(Completed) | ACTIVE | NothingDead | Finished(Completed) | CANCELLED | COMPLETED
    one-shot, failed: Finished(Failed) | Finished(Failed) | ACTIVE | ACTIVE | Finished(Failed) | CANCELLED | FAILED
    one-shot, deleted: Finished(Cancelled) | Finished(Cancelled) | Cancelled | Cancelled | same | same | Cancelled
    ");
}
