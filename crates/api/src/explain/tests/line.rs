//! Explanations of executions on the wait list of a limit.

use super::*;
use punctual_core::limiter::LimiterUse;

/// A job whose execution is on the wait list of its queue, with `in_use` of `most` in use.
fn in_line(in_use: u64, most: u32) -> ExplainedFacts {
    let mut facts = facts(job(|_| {}));
    let line = LimiterId::of_queue("default");
    facts.view.open[0].state = behind(Gate::Concurrency);
    facts.view.open[0].line = Some(line);
    facts.limits.concurrency = Some(most);
    facts.lines.insert(line, LimiterUse { waiting: 1, in_use, last_at: None });
    facts
}

fn holder(number: u64, name: &str, runs: Option<(&str, Timestamp)>) -> LimitHolder {
    LimitHolder {
        execution: JobId::new(at("07:00:00"), number).occurrence(1).attempt(1),
        job_name: name.to_owned(),
        lane: Lane::new("default", name),
        runs: runs.map(|(worker, since)| (worker.to_owned(), since)),
    }
}

fn held_by(mut facts: ExplainedFacts, holders: Vec<LimitHolder>) -> Vec<String> {
    facts.holders.insert(LimiterId::of_queue("default"), holders);
    about_open(facts)
}

#[test]
fn a_full_limit_names_who_holds_it() {
    let nap = holder(1, "nap", Some(("embedded", at("08:09:00"))));
    let id = nap.execution;
    assert_eq!(
        held_by(in_line(1, 1), vec![nap.clone()]),
        [
            "It waits because one execution of queue default is queued or running, and the limit is 1."
                .to_owned(),
            format!(
                "The execution that counts against the limit is {id} (nap), running on worker embedded \
                 since 2026-11-15T08:09:00Z (1m ago)."
            ),
        ]
    );
    let mut facts = in_line(9, 9);
    facts.sessions = vec![worker(HOLDER, "embedded", &["mail"])];
    let mail = holder(2, "mail", None);
    let said = held_by(facts, vec![nap, mail.clone()]);
    assert_eq!(said[0], "It waits because 9 of 9 executions of queue default are queued or running.");
    let end = format!("{} (mail), which is queued and 7 more.", mail.execution);
    assert!(
        said[1].starts_with("The executions that count against the limit are ") && said[1].ends_with(&end),
        "{said:?}"
    );
    assert_eq!(said.len(), 2, "what is queued for a worker that takes it is not stuck");
}

#[test]
fn a_limit_that_was_lowered_says_how_many_have_to_end() {
    assert_eq!(
        about_open(in_line(3, 1)),
        ["It waits because 3 executions of queue default are queued or running, and the limit is now 1: \
             3 of them must end first."]
    );
}

#[test]
fn a_holder_that_nobody_can_run_is_told_to_block_the_rest() {
    let stuck = holder(3, "greet", None);
    let id = stuck.execution;
    let why = |facts: ExplainedFacts| held_by(facts, vec![stuck.clone()]).remove(2);
    assert_eq!(
        why(in_line(1, 1)),
        format!(
            "{id} (greet) counts against the limit and cannot run, as it waits for a worker that has a \
             handler for greet; none is connected."
        )
    );
    let mut held = in_line(1, 1);
    held.sessions = vec![worker(HOLDER, "remote", &["greet"])];
    held.sessions[0].mode = SessionMode::Paused;
    assert_eq!(
        why(held.clone()),
        format!(
            "{id} (greet) counts against the limit and cannot run, as it waits for a worker that takes \
             work: remote is paused."
        )
    );
    held.holders.insert(LimiterId::of_queue("default"), vec![stuck.clone()]);
    assert_eq!(explain(held).advice, [Advice::resume_worker("remote".to_owned())]);
}
