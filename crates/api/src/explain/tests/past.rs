//! Explanations of finished runs, and of workers and queues that accept no work.

use super::*;
use punctual_core::health::WorkerCondition;

#[test]
fn a_failure_for_good_is_told_with_its_dead_letter() {
    let start = facts(job(|spec| spec.settings.max_retries = 0));
    let (failed, _) = ended(&start, Ending::Failed, Some("out of paper"));
    let mut facts = finished(start, failed, StoredStatus::Failed);
    facts.dead = Some(letter(&facts, 1));
    let id = facts.view.job.id;
    let explained = explain(facts);
    assert_eq!(explained.summary, "The job has failed: attempt 1 failed and no retry is left.");
    assert_eq!(
        explained.sentences[1],
        format!(
            "The occurrence scheduled for 2026-11-15T08:00:00Z failed permanently at 2026-11-15T08:00:09Z \
             (9m51s ago) after 1 attempt (out of paper); its dead letter is {id}.1, and a redrive runs it \
             again."
        )
    );
    assert_eq!(explained.advice, [Advice::redrive(id.occurrence(1))]);
    let recent = &explained.recent[0];
    assert_eq!((recent.status, recent.attempts), (ExecutionStatus::Failed, 1));
    assert_eq!(recent.reason.as_deref(), Some("attempt 1 failed and no retry is left"));
    assert_eq!(recent.late_by, Some("5s".parse().unwrap()));
}

#[test]
fn a_recurring_job_that_fails_says_so_before_its_next_run() {
    let mut facts = facts(job(every_hour));
    let job = facts.view.job.clone();
    facts.view.open = vec![live(&job, 1, running(at("08:00:05")))];
    let (failed, _) = ended(&facts, Ending::Failed, Some("out of paper"));
    facts.view.open.clear();
    facts.history = vec![failed.clone()];
    facts.view.last_finished = Some(failed.clone());
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "Its last run failed at 2026-11-15T08:00:09Z (9m51s ago): attempt 1 failed and cannot be retried \
         (out of paper)."
    );
    assert!(explained.sentences[1].starts_with("It runs next at "), "{:?}", explained.sentences);
    let mut before = failed;
    before.id = job.id.occurrence(0).attempt(1);
    facts.history.push(before);
    assert!(explain(facts.clone()).summary.starts_with("Its last 2 runs failed, the latest at "));
    facts.queue_paused_at = Some(at("08:05:00"));
    let explained = explain(facts);
    assert!(explained.summary.starts_with("The queue default has been paused"), "it hinders the next run");
    assert!(explained.sentences[1].starts_with("Its last 2 runs failed"), "{:?}", explained.sentences);
}

#[test]
fn the_dead_letter_of_a_cancelled_job_is_not_to_be_redriven() {
    let mut facts = facts(job(every_hour));
    facts.dead = Some(letter(&facts, 1));
    facts.view.schedule = None;
    facts.view.job.mark = StoredStatus::Cancelled;
    let id = facts.view.job.id;
    let said = explain(facts).sentences.remove(1);
    let told = format!("; its dead letter is {id}.1, which cannot be redriven, as the job is cancelled.");
    assert!(said.ends_with(&told), "{said}");
}

#[test]
fn a_run_that_may_have_been_replaced_says_so() {
    let job = job(|spec| {
        every_hour(spec);
        spec.settings.overlap = OverlapPolicy::Replace;
    });
    let mut facts = facts(job.clone());
    facts.view.open = vec![live(&job, 1, running(at("08:00:05")))];
    let (cancelled, _) = ended(&facts, Ending::Cancelled, None);
    facts.history = vec![cancelled];
    facts.view.open = vec![live(&job, 2, running(at("08:00:09")))];
    let reason = |facts: &ExplainedFacts| explain(facts.clone()).recent.remove(0).reason.unwrap();
    let plain = "attempt 1 was cancelled while it ran";
    assert_eq!(
        reason(&facts),
        format!("{plain}, by the next occurrence (overlap_policy REPLACE) or by a request")
    );
    facts.view.open[0].scheduled_time = at("08:00:10");
    assert_eq!(reason(&facts), plain, "the next one came when it had ended");
    facts.view.open.clear();
    assert_eq!(reason(&facts), plain, "nothing came after it");
}

#[test]
fn failures_that_are_not_retried_say_why() {
    let reason = |change: fn(&mut JobSpec), ending, error| {
        let start = facts(job(change));
        let (failed, _) = ended(&start, ending, error);
        reasons::of_end(&failed, &start.view.job.spec, None)
    };
    assert_eq!(
        reason(|spec| spec.settings.fail_on = vec!["LOST".to_owned()], Ending::Lost, None),
        "attempt 1 was lost with its worker and is not retried, as retry.fail_on says"
    );
    assert_eq!(
        reason(
            |spec| spec.settings.expiry = Some(punctual_core::job::Expiry::AfterMs(20_000)),
            Ending::TimedOut,
            None
        ),
        "attempt 1 ran out of time and is not retried, as it expires at 2026-11-15T08:00:20Z, before the retry \
         would come"
    );
    assert_eq!(
        reason(
            |spec| spec.settings.expiry = Some(punctual_core::job::Expiry::AfterMs(3_600_000)),
            Ending::Failed,
            None
        ),
        "attempt 1 failed and cannot be retried"
    );
    assert_eq!(reason(|_| {}, Ending::Failed, None), "attempt 1 failed and cannot be retried");
}

#[test]
fn what_never_started_says_why() {
    let start = facts(job(|_| {}));
    let open = start.view.open[0].clone();
    let expired = open.expired(None, at("08:05:00")).unwrap().finished;
    let explained = explain(finished(start.clone(), expired, StoredStatus::Failed));
    assert_eq!(explained.summary, "The job has failed: it had not started when it expired.");
    assert_eq!((explained.recent[0].late_by, explained.recent[0].attempts), (None, 0));
    assert_eq!(
        explained.sentences[1..],
        [
            "The latest occurrence, scheduled for 2026-11-15T08:00:00Z, ended at 2026-11-15T08:05:00Z (5m ago)."
        ]
    );

    let why = "job 7 is CANCELLED".to_owned();
    let skipped = open.skipped(SkipReason::Dependency, why, None, at("08:05:00")).unwrap().finished;
    assert_eq!(
        explain(finished(start.clone(), skipped, StoredStatus::Failed)).summary,
        "The job has failed: it was skipped: job 7 is CANCELLED."
    );

    let parent = JobId::new(at("07:00:00"), 1);
    let mut dependent = start.clone();
    dependent.view.job.spec.settings.depends_on = vec![parent];
    let why = format!("job {parent}, on which it depended, did not succeed");
    let skipped = open.skipped(SkipReason::Dependency, why, None, at("08:05:00")).unwrap().finished;
    let mut dependent = finished(dependent, skipped, StoredStatus::Failed);
    let told = |name| {
        format!(
            "The job has failed: it was skipped because job {parent}{name}, on which it depended, did not succeed."
        )
    };
    assert_eq!(explain(dependent.clone()).summary, told(""));
    let by_hand = Advice::trigger_job(dependent.view.job.id);
    for (status, told_next, advice) in [
        (
            JobStatus::Failed,
            "It does not run again by itself: fix and retry that job, and trigger this one once that job \
             has succeeded.",
            vec![Advice::retry_job(parent), by_hand.clone()],
        ),
        (
            JobStatus::Completed,
            "That job has now succeeded: trigger this one to run it.",
            vec![by_hand.clone()],
        ),
        (
            JobStatus::Cancelled,
            "It does not run again by itself: trigger it to run it without that job.",
            vec![by_hand.clone()],
        ),
    ] {
        dependent.blamed = Some(("load".to_owned(), status));
        let explained = explain(dependent.clone());
        assert_eq!((explained.summary, explained.sentences[1].as_str()), (told(" (load)"), told_next));
        assert_eq!(explained.advice, advice);
    }

    let standing = LoadedJob { job: start.view.job.clone(), schedule: None, open: vec![open] };
    let mut change = standing.apply(&Verb::Cancel, None, at("08:05:00")).unwrap();
    let Some(punctual_core::control::LiveChange::Close(_, settled)) = change.live.pop() else {
        panic!("not closed");
    };
    assert_eq!(
        explain(finished(start, settled.finished, StoredStatus::Cancelled)).summary,
        "The job is cancelled: attempt 1 was cancelled before it started."
    );
}

#[test]
fn a_cancelled_job_says_what_still_runs() {
    let mut facts = facts(job(|_| {}));
    facts.view.job.mark = StoredStatus::Cancelled;
    facts.view.open[0].state = running(at("08:09:00"));
    let execution = facts.view.open[0].execution();
    assert_eq!(
        explain(facts.clone()).sentences[1],
        format!("The job is cancelled: {execution} still runs and has been asked to stop.")
    );
    facts.view.open.clear();
    assert_eq!(explain(facts).summary, "The job is cancelled: no further executions will run.");
}

#[test]
fn a_completed_job_tells_its_last_run_and_how_late_it_was() {
    let start = facts(job(|_| {}));
    let (done, _) = ended(&start, Ending::Succeeded, None);
    let explained = explain(finished(start, done, StoredStatus::Active));
    assert_eq!(
        explained.sentences,
        [
            "The job is completed: it has nothing left to run.",
            "The latest occurrence, scheduled for 2026-11-15T08:00:00Z, succeeded at 2026-11-15T08:00:09Z (9m51s ago).",
            "It started 5s late.",
        ]
    );
    assert_eq!(
        (explained.recent[0].status, &explained.recent[0].reason),
        (ExecutionStatus::Succeeded, &None)
    );
}

#[test]
fn a_success_after_failures_says_what_went_before() {
    let start = facts(job(|_| {}));
    let (failed, _) = ended(&start, Ending::Failed, Some("no route"));
    let (mut done, _) = ended(&start, Ending::Succeeded, None);
    done.id.attempt = 2;
    let told = |history: &[Finished]| {
        let mut facts = start.clone();
        facts.view.open.clear();
        facts.view.last_finished = history.first().cloned();
        facts.history = history.to_vec();
        explain(facts).sentences[1].clone()
    };
    let until = "The latest occurrence, scheduled for 2026-11-15T08:00:00Z, succeeded at 2026-11-15T08:00:09Z \
                 (9m51s ago)";
    let second = told(&[done.clone(), failed.clone()]);
    assert_eq!(second, format!("{until}, after an attempt that failed (no route)."));
    done.id.attempt = 3;
    let mut again = failed.clone();
    again.id.attempt = 2;
    let third = told(&[done.clone(), again.clone(), failed.clone()]);
    assert_eq!(third, format!("{until}, after 2 attempts that failed (no route)."));
    again.status = Status::TimedOut;
    let mixed = told(&[done.clone(), again.clone(), failed]);
    assert!(mixed.ends_with("after 2 attempts that did not succeed (no route)."), "{mixed}");
    again.id.attempt = 1;
    done.id.attempt = 2;
    assert_eq!(told(&[done, again]), format!("{until}, after an attempt that ran out of time."));
}

#[test]
fn a_start_after_other_jobs_is_not_called_late() {
    let mut start = facts(job(|spec| spec.settings.depends_on = vec![JobId::new(at("07:00:00"), 1)]));
    // Opened without checking its dependencies, as if they had just succeeded.
    let open = live(&start.view.job, 1, LiveState::Queued);
    start.view.open = vec![open];
    let (done, _) = ended(&start, Ending::Succeeded, None);
    let mut facts = finished(start, done, StoredStatus::Active);
    let told = |facts: &ExplainedFacts| explain(facts.clone()).sentences[2].clone();
    let waited = "It started 5s after its scheduled time, because it waited for the jobs that it depends on.";
    assert_eq!(told(&facts), waited, "nothing is kept of them");
    facts.parents_ended_at = Some(at("08:00:05"));
    assert_eq!(told(&facts), waited);
    facts.parents_ended_at = Some(at("08:00:02"));
    assert_eq!(told(&facts), "It started 3s after the last of the jobs that it depends on had ended.");
    facts.parents_ended_at = Some(at("07:30:00"));
    assert_eq!(told(&facts), "It started 5s late.", "they had ended before its time");
    facts.parents_ended_at = None;
    facts.history[0].origin = Origin::Trigger;
    assert_eq!(told(&facts), "It started 5s late.", "by hand it waits for nobody");
}

#[test]
fn workers_that_take_nothing_are_told_with_what_helps() {
    let mut facts = facts(job(|_| {}));
    facts.sessions = vec![
        SessionRow { mode: SessionMode::Paused, ..worker(HOLDER, "w1", &["report"]) },
        worker(SessionId(2), "w2", &["noop"]),
    ];
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "Worker w1, the only one with its handler, is paused: it takes no work until it is resumed."
    );
    assert_eq!(explained.advice, [Advice::resume_worker("w1")]);
    facts.sessions[1] = SessionRow { mode: SessionMode::Draining, ..worker(SessionId(2), "w1", &["report"]) };
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "All 2 workers that have its handler take no new work: w1 is paused and w1 is draining."
    );
    assert_eq!(explained.advice, [Advice::resume_worker("1")], "its name would not say which");
    facts.sessions.remove(0);
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "Worker w1, the only one with its handler, is draining: it takes no more work."
    );
    assert_eq!(explained.advice, []);
    let refuses = vec!["memory: 5 MiB of 1.0 GiB free, less than 3%".to_owned()];
    let condition = Some(WorkerCondition { slots: 2, refuses, ..WorkerCondition::default() });
    facts.sessions[0] = SessionRow { condition, ..worker(SessionId(2), "w1", &["report"]) };
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "Worker w1, the only one with its handler, refuses work until it has enough resources (memory: 5 \
         MiB of 1.0 GiB free, less than 3%)."
    );
    assert_eq!(explained.advice, []);
    facts.sessions.push(worker(SessionId(3), "w3", &["report"]));
    assert_eq!(explain(facts).summary, "Nothing blocks it: a worker will claim it shortly.");
}

#[test]
fn a_queue_that_nobody_serves_and_a_server_that_stops_are_told() {
    let mut facts = facts(job(|_| {}));
    let mut elsewhere = worker(HOLDER, "w1", &["report"]);
    elsewhere.about.queues = vec!["mail".to_owned(), "bulk".to_owned()];
    facts.sessions = vec![elsewhere];
    assert_eq!(
        explain(facts.clone()).summary,
        "No connected worker that has its handler serves the queue default: w1 serves mail and bulk."
    );
    facts.is_stopping = true;
    assert_eq!(
        explain(facts).summary,
        "The server is stopping: executions that have not started run after its next start."
    );
}

#[test]
fn lateness_is_only_told_of_a_first_attempt_that_is_kept() {
    let start = facts(job(|_| {}));
    let (mut second, _) = ended(&start, Ending::Succeeded, None);
    second.id.attempt = 2;
    second.status = Status::Succeeded;
    let explained = explain(finished(start, second, StoredStatus::Active));
    assert_eq!((explained.recent[0].late_by, explained.recent[0].attempts), (None, 2));
}

#[test]
fn lengths_are_as_precise_as_people_want_them() {
    for (length, told) in [
        (Duration::from_micros(1_500), "1ms"),
        (Duration::from_millis(1_999), "1s"),
        (Duration::from_secs(3_661), "1h1m"),
        (Duration::from_secs(90_061), "1d1h"),
    ] {
        assert_eq!(rough(length).to_string(), told);
    }
}

#[test]
fn errors_are_cut_to_a_line_of_readable_length() {
    for (error, told) in [
        ("out of paper", "out of paper".to_owned()),
        ("out of paper\n", "out of paper".to_owned()),
        ("\nTraceback:\n  print()\nout of paper", "Traceback:…".to_owned()),
        (&"ä".repeat(301), format!("{}…", "ä".repeat(300))),
        ("", String::new()),
    ] {
        assert_eq!(reasons::first_line(error), told);
    }
}

#[test]
fn a_paused_queue_is_told_once_for_several_runs() {
    let job = job(every_hour);
    let mut facts = facts(job.clone());
    facts.view.open = vec![live(&job, 2, LiveState::Queued), live(&job, 1, LiveState::Queued)];
    facts.queue_paused_at = Some(at("07:10:00"));
    let explained = explain(facts);
    assert!(explained.summary.starts_with("The queue default has been paused"), "{explained:?}");
    assert_eq!(explained.sentences.iter().filter(|said| said.contains("queue default")).count(), 1);
}

#[test]
fn what_was_skipped_because_nobody_fired_in_time_says_so() {
    let mut facts = facts(job(every_hour));
    let range = |first, last, count| SkipRange {
        first: at(first),
        last: at(last),
        count,
        reason: SkipReason::Overlap,
    };
    let late = Live { available_at: at("08:09:00"), ..live(&facts.view.job, 1, LiveState::Queued) };
    facts.view.open = vec![late];
    facts.skipped = vec![range("08:09:30", "08:09:30", 1), range("08:01:00", "08:08:00", 8)];
    let said = explain(facts).sentences;
    let skipped: Vec<&String> = said.iter().filter(|sentence| sentence.contains("skipped because")).collect();
    assert_eq!(
        skipped,
        [
            "The occurrence scheduled for 2026-11-15T08:09:30Z was skipped because an earlier occurrence was still \
             open, or was due at the same time and ran first (overlap_policy).",
            "8 occurrences scheduled from 2026-11-15T08:01:00Z to 2026-11-15T08:08:00Z were skipped \
             because no scheduler fired in time: at 2026-11-15T08:09:00Z, when one did, the occurrence \
             scheduled for 2026-11-15T08:00:00Z was also due and ran first (overlap_policy).",
        ]
    );
}
