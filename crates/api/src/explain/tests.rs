//! Every case that an explanation knows, as the sentences that people read.

use super::*;
use punctual_client::ExecutionStatus;
use punctual_core::control::{Standing, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, SessionId};
use punctual_core::job::{Job, JobMark, JobSpec, Priority};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{End, Lease, LiveState, Next, Origin, Terms};
use punctual_core::ports::Lane;
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Beginning, OverlapPolicy, Recurring, SkipReason, begin};
use punctual_core::session::Pulse;

fn at(text: &str) -> Timestamp {
    format!("2026-11-15T{text}Z").parse().unwrap()
}

const HOLDER: SessionId = SessionId(1);

fn job(change: impl FnOnce(&mut JobSpec)) -> Job {
    let mut spec = JobSpec::named("report");
    change(&mut spec);
    let created_at = at("08:00:00");
    Job {
        id: JobId::new(created_at, 7),
        version: 1,
        mark: JobMark::Active,
        numbered: None,
        fired: 0,
        created_at,
        updated_at: created_at,
        spec,
    }
}

fn every_hour(spec: &mut JobSpec) {
    let hourly = RecurrenceSpec::cron("0 * * * *", 0).in_zone("Asia/Kolkata");
    spec.settings.schedule = Recurring::new(hourly).unwrap().into();
}

/// A job as it begins, looked at ten minutes later.
fn facts(job: Job) -> Facts {
    let (schedule, open) = match begin(&job, job.created_at, false, &mut Default::default()) {
        Beginning::Due(live) => (None, vec![live]),
        Beginning::Later(state) => (Some(state), vec![]),
        Beginning::Over => (None, vec![]),
    };
    Facts {
        now: at("08:10:00"),
        view: JobView { job, schedule, open, last_finished: None },
        parents: vec![],
        sessions: vec![],
        depths: vec![],
        queue_paused_at: None,
        ahead: BTreeMap::new(),
        skipped: vec![],
        history: vec![],
        dead: None,
        blamed: None,
        parents_ended_at: None,
        is_stopping: false,
        notes: vec![],
    }
}

fn live(job: &Job, number: u32, state: LiveState) -> Live {
    let time = at("08:00:00");
    let id = job.id.occurrence(number);
    let live = Live::fired(id, time, Origin::Schedule, 1, Priority::DEFAULT, time, Duration::ZERO);
    Live { state, ..live }
}

fn running(claimed_at: Timestamp) -> LiveState {
    LiveState::Running(Lease { session: HOLDER, claimed_at, cancel_requested: false })
}

fn behind(gate: Gate) -> LiveState {
    LiveState::Waiting(Gates::only(gate))
}

fn worker(session: SessionId, name: &str, job_types: &[&str]) -> SessionRow {
    SessionRow {
        pulse: Pulse { session, beat: 1, lease: Duration::from_secs(6) },
        about: Default::default(),
        mode: Default::default(),
        worker: name.to_owned(),
        embedded: false,
        job_types: job_types.iter().map(|job_type| (*job_type).to_owned()).collect(),
        slots: 2,
        opened_at: at("07:00:00"),
        beaten_at: at("08:09:59"),
    }
}

/// The sentences about the only open execution.
fn about_open(facts: Facts) -> Vec<String> {
    let mut explained = explain(facts).executions;
    assert_eq!(explained.len(), 1, "{explained:?}");
    explained.remove(0).sentences
}

/// The run of an attempt from 08:00:05 to 08:00:09.
fn ended(facts: &Facts, ending: Ending, error: Option<&str>) -> (Finished, Next) {
    let job = &facts.view.job;
    let live = Live { state: running(at("08:00:05")), ..facts.view.open[0].clone() };
    let end = End {
        ending,
        retryable: true,
        started_at: None,
        completed_at: at("08:00:09"),
        error: error.map(str::to_owned),
        result: None,
    };
    let terms = Terms { settings: &job.spec.settings, mark: job.mark };
    let settled = live.settled(end, Some(terms), at("08:00:09")).unwrap();
    (settled.finished, settled.next)
}

/// The facts after the only attempt has ended for good with this execution in history.
fn finished(mut facts: Facts, last: Finished, mark: JobMark) -> Facts {
    facts.view.open.clear();
    facts.view.job.mark = mark;
    facts.view.last_finished = Some(last.clone());
    facts.history.insert(0, last);
    facts
}

fn letter(facts: &Facts, attempts: u32) -> DeadLetter {
    let job = &facts.view.job;
    DeadLetter {
        number: 1,
        occurrence: job.id.occurrence(1),
        job_name: job.spec.name.clone(),
        job_type: job.spec.job_type.clone(),
        queue: job.spec.queue.clone(),
        attempts,
        epoch: Epoch(1),
        scheduled_time: at("08:00:00"),
        origin: Origin::Schedule,
        died_at: at("08:00:09"),
        error: Some("out of paper".to_owned()),
        noted: false,
    }
}

#[test]
fn a_running_execution_is_told_with_place_time_and_limit() {
    let mut facts = facts(job(|spec| {
        spec.settings.timeout_ms = 60_000;
        spec.settings.timeout_growth_pct = 150;
    }));
    facts.view.open[0].state = running(at("08:09:00"));
    facts.view.open[0].attempt = 2;
    facts.view.open[0].charged = 1;
    facts.sessions = vec![worker(HOLDER, "w1", &["report"])];
    let told = "Attempt 2 has been running on worker w1 since 2026-11-15T08:09:00Z (1m ago), with a time limit of \
                1m30s.";
    assert_eq!(about_open(facts.clone()), [told]);
    assert_eq!(explain(facts.clone()).summary, told);

    let mut changed = facts.clone();
    changed.view.job.version = 2;
    assert_eq!(
        about_open(changed),
        [
            "Attempt 2 has been running on worker w1 since 2026-11-15T08:09:00Z (1m ago), by version 1 of the job, \
             which has been changed since."
        ]
    );

    let LiveState::Running(lease) = &mut facts.view.open[0].state else { panic!("not running") };
    lease.cancel_requested = true;
    facts.sessions.clear();
    let said = about_open(facts);
    assert!(said[0].contains("on a worker that is no longer connected"), "{said:?}");
    assert_eq!(said[1], "It counts as lost once its worker has been silent for long enough.");
    assert_eq!(said[2], "It has been asked to stop, and ends cancelled however its run ends.");
}

#[test]
fn a_retry_is_told_with_its_number_its_time_and_what_went_before() {
    let mut facts = facts(job(|spec| {
        spec.settings.retry = punctual_core::retry::RetryPolicy::Ladder { steps_ms: vec![700_000] };
    }));
    let error = "out of paper\n  at the printer\n";
    let (failed, Next::Retry(next)) = ended(&facts, Ending::Failed, Some(error)) else {
        panic!("not retried");
    };
    facts.view.open = vec![next];
    facts.history = vec![failed];
    assert_eq!(
        about_open(facts.clone()),
        [
            "Attempt 2 waits until 2026-11-15T08:11:49Z (in 1m49s): it is retry 1 of 3, after attempt 1 ended FAILED \
          (out of paper…)."
        ]
    );
    assert!(explain(facts).recent.is_empty(), "what is open has not ended");
}

#[test]
fn a_time_that_was_moved_is_told() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].state = behind(Gate::Time);
    facts.view.open[0].available_at = at("09:00:00");
    assert_eq!(about_open(facts), ["It waits for its time, 2026-11-15T09:00:00Z (in 50m)."]);
}

#[test]
fn a_dependency_names_the_jobs_that_are_not_finished() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].state = behind(Gate::Dependency);
    let parent = |n: u64, known: Option<(&str, JobStatus)>| Parent {
        id: JobId::new(at("07:00:00"), n),
        known: known.map(|(name, status)| (name.to_owned(), status)),
    };
    facts.parents = vec![parent(1, Some(("load", JobStatus::Active))), parent(2, None)];
    let (first, second) = (facts.parents[0].id, facts.parents[1].id);
    assert_eq!(
        about_open(facts.clone()),
        [format!("It waits for job {first} (load, ACTIVE) and job {second} (gone) to succeed.")]
    );
    facts.parents = (0..8).map(|n| parent(n, Some(("load", JobStatus::Paused)))).collect();
    assert!(about_open(facts.clone())[0].contains(" and 3 more to succeed."));
    facts.parents.clear();
    assert!(about_open(facts)[0].contains("all of which have succeeded by now"));
}

#[test]
fn a_job_of_later_tells_what_else_it_will_wait_for() {
    let mut facts = facts(job(|spec| spec.settings.schedule = Schedule::OneTime { at: at("09:00:00") }));
    let id = JobId::new(at("07:00:00"), 1);
    facts.parents = vec![Parent { id, known: Some(("load".to_owned(), JobStatus::Active)) }];
    let explained = explain(facts);
    assert_eq!(explained.summary, "It runs next at 2026-11-15T09:00:00Z (in 50m), once.");
    assert_eq!(
        explained.sentences[1],
        format!("When its time has come, it also waits for job {id} (load, ACTIVE).")
    );
}

#[test]
fn an_overlap_names_what_it_waits_behind() {
    let job = job(|spec| {
        every_hour(spec);
        spec.settings.overlap = OverlapPolicy::Queue;
    });
    let mut facts = facts(job.clone());
    facts.view.open = vec![
        live(&job, 3, behind(Gate::Overlap)),
        live(&job, 2, behind(Gate::Overlap)),
        live(&job, 1, running(at("08:09:00"))),
    ];
    let explained = explain(facts.clone()).executions;
    let first = job.id.occurrence(1).attempt(1);
    let told = format!("It waits until {first} has ended (overlap_policy QUEUE)");
    assert_eq!(explained[0].sentences, [format!("{told}, and another one waits before it.")]);
    assert_eq!(explained[1].sentences, [format!("{told}.")]);
    let explained = explain(facts.clone());
    assert_eq!(explained.summary, explained.executions[2].sentences[0]);
    assert!(explained.summary.starts_with(&format!("{first}: Attempt 1 has been running")), "{explained:?}");
    facts.view.open.truncate(1);
    let alone = "It waits until an earlier occurrence of the job has ended (overlap_policy QUEUE).";
    assert_eq!(about_open(facts), [alone]);
}

#[test]
fn a_pause_and_a_limit_are_told() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].state = LiveState::Waiting(Gates::only(Gate::Concurrency).with(Gate::Paused));
    facts.view.job.mark = JobMark::Paused;
    let id = facts.view.job.id;
    let explained = explain(facts);
    assert_eq!(
        explained.executions[0].sentences,
        ["It waits because as many run at once as may.", "It is held because the job is paused.",]
    );
    let paused = "The job is paused: nothing of it starts until it is resumed.";
    assert_eq!((explained.summary.as_str(), explained.next_run_time), (paused, None));
    assert_eq!(explained.advice, [Advice::resume_job(id)]);
}

#[test]
fn a_paused_job_of_a_paused_queue_tells_both() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].state = behind(Gate::Paused);
    facts.view.job.mark = JobMark::Paused;
    facts.queue_paused_at = Some(at("07:10:00"));
    let said = explain(facts.clone()).sentences;
    assert!(said[0].starts_with("The job is paused: "), "{said:?}");
    assert!(said[1].starts_with("The queue default has been paused since 2026-11-15T07:10:00Z"), "{said:?}");
    let advice = [Advice::resume_job(facts.view.job.id), Advice::resume_queue("default")];
    assert_eq!(explain(facts.clone()).advice, advice);
    facts.view.open.clear();
    facts.view.job.mark = JobMark::Cancelled;
    assert!(!explain(facts).sentences.concat().contains("queue"), "nothing of it starts anyway");
}

#[test]
fn a_paused_one_time_job_runs_then_or_at_once() {
    let mut facts = facts(job(|spec| spec.settings.schedule = Schedule::OneTime { at: at("09:00:00") }));
    facts.view.job.mark = JobMark::Paused;
    facts.view.schedule.as_mut().unwrap().due_at = None;
    let said = explain(facts.clone()).sentences.remove(1);
    assert_eq!(said, "If it is resumed before 2026-11-15T09:00:00Z (in 50m), it runs then, once.");
    facts.now = at("10:00:00");
    assert_eq!(explain(facts).sentences[1], "Once it is resumed, it runs at once.");
}

#[test]
fn a_paused_recurring_job_tells_when_it_would_go_on() {
    let mut facts = facts(job(every_hour));
    let standing =
        Standing { job: facts.view.job.clone(), schedule: facts.view.schedule.clone(), open: vec![] };
    let change = standing.apply(&Verb::Pause, None, facts.now).unwrap();
    let punctual_core::control::ScheduleChange::Put(held) = change.schedule else { panic!("not held") };
    facts.view.job.mark = JobMark::Paused;
    facts.view.schedule = Some(*held);
    let explained = explain(facts.clone());
    assert_eq!(explained.next_run_time, None);
    assert_eq!(
        explained.sentences[1],
        "If it is resumed before 2026-11-15T08:30:00Z (in 20m), it runs then, by its schedule: At minute 0 of every \
         hour, Kolkata time."
    );
    facts.now = at("10:00:00");
    let later = explain(facts).sentences.remove(1);
    assert_eq!(
        later,
        "Once it is resumed, it goes on by its schedule: At minute 0 of every hour, Kolkata time."
    );
}

#[test]
fn a_queued_execution_tells_that_its_queue_is_paused() {
    let mut facts = facts(job(|_| {}));
    facts.queue_paused_at = Some(at("07:10:00"));
    facts.sessions = vec![worker(HOLDER, "w1", &["report"])];
    assert_eq!(
        about_open(facts),
        [
            "The queue default has been paused since 2026-11-15T07:10:00Z (1h ago): nothing of it starts until it is \
             resumed.",
            "It has been ready since 2026-11-15T08:00:00Z (10m ago).",
        ]
    );
}

#[test]
fn a_queued_execution_tells_that_nobody_has_its_handler() {
    let mut facts = facts(job(|_| {}));
    let said = about_open(facts.clone());
    assert_eq!(said[0], "No worker is connected; it needs one that has a handler for report.");
    facts.sessions = vec![worker(HOLDER, "w1", &["noop", "sleep"]), worker(SessionId(2), "w2", &[])];
    assert_eq!(
        about_open(facts)[0],
        "No connected worker has a handler for report: w1 has noop and sleep and w2 has none."
    );
}

#[test]
fn a_queued_execution_tells_how_many_are_ahead_and_that_all_are_busy() {
    let mut facts = facts(job(|_| {}));
    let id = facts.view.open[0].id;
    facts.sessions = vec![worker(HOLDER, "w1", &["report"]), worker(SessionId(2), "w2", &["report", "noop"])];
    assert_eq!(about_open(facts.clone())[0], "Nothing is in its way: a worker takes it at any moment.");
    for (ahead, told) in [
        (1, "One execution of the same queue and type is ahead of it."),
        (12, "12 executions of the same queue and type are ahead of it."),
        (10_000, "At least 10000 executions of the same queue and type are ahead of it."),
    ] {
        facts.ahead.insert(id, ahead);
        assert_eq!(about_open(facts.clone())[0], told);
    }
    let depth = |job_type: &str, running| Depth {
        lane: Lane::new("default", job_type),
        waiting: 0,
        queued: 0,
        running,
        oldest_queued: None,
    };
    facts.depths = vec![depth("report", 3), depth("noop", 1), depth("other", 50)];
    assert_eq!(about_open(facts.clone())[1], "All 4 slots of the 2 workers that have its handler are busy.");
    facts.sessions.truncate(1);
    assert_eq!(
        about_open(facts.clone())[1],
        "All 2 slots of worker w1, the only one with its handler, are busy."
    );
    facts.sessions[0].slots = 1;
    assert_eq!(about_open(facts)[1], "The only slot of worker w1, the only one with its handler, is busy.");
}

#[test]
fn an_expiry_is_told_as_long_as_nothing_has_started() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].expires_at = Some(at("08:15:00"));
    let said = about_open(facts).pop();
    assert_eq!(
        said.as_deref(),
        Some("It expires at 2026-11-15T08:15:00Z (in 5m) unless it has started by then.")
    );
}

#[test]
fn the_next_run_is_told_with_its_schedule_and_zone() {
    let mut facts = facts(job(every_hour));
    let told = "It runs next at 2026-11-15T08:30:00Z (in 20m), by its schedule: At minute 0 of every hour, Kolkata \
                time";
    assert_eq!(explain(facts.clone()).summary, format!("{told}."));
    let state = facts.view.schedule.as_mut().unwrap();
    let Schedule::Recurring(recurring) = &mut state.schedule else { panic!("not recurring") };
    recurring.max_runs = Some(5);
    state.fired = 2;
    state.replay = Some(punctual_core::schedule::Replay {
        next: at("03:30:00"),
        until: at("05:30:00"),
        due_at: at("08:10:01"),
        later: vec![],
    });
    let explained = explain(facts);
    assert_eq!(explained.summary, format!("{told}; 2 of 5 runs have begun."));
    assert_eq!(
        explained.sentences[1],
        "It makes up for missed occurrences, of which those from 2026-11-15T03:30:00Z to 2026-11-15T05:30:00Z are \
         left."
    );
}

#[test]
fn skipped_occurrences_are_told_with_reason_and_count() {
    let mut facts = facts(job(every_hour));
    let range = |count, reason| SkipRange { first: at("03:30:00"), last: at("05:30:00"), count, reason };
    facts.skipped = vec![range(3, SkipReason::Misfire), range(1, SkipReason::Overlap)];
    let explained = explain(facts.clone());
    assert_eq!(explained.skipped.len(), 2);
    assert_eq!(
        explained.sentences[1..],
        [
            "3 occurrences scheduled from 2026-11-15T03:30:00Z to 2026-11-15T05:30:00Z were skipped because the \
             scheduler came too late (misfire_policy).",
            "The occurrence scheduled for 2026-11-15T03:30:00Z was skipped because an earlier occurrence was still \
             open (overlap_policy).",
        ]
    );
    for (reason, because) in [
        (SkipReason::Paused, "the job was paused."),
        (SkipReason::Calendar, "the calendar excludes that time."),
        (SkipReason::Backlog, "too many occurrences of the job were open (max_open)."),
        (SkipReason::Dependency, "a job that it depended on did not succeed."),
    ] {
        facts.skipped = vec![range(1, reason)];
        assert!(explain(facts.clone()).sentences[1].ends_with(because), "{reason:?}");
    }
}

#[test]
fn a_failure_for_good_is_told_with_its_dead_letter() {
    let start = facts(job(|spec| spec.settings.max_retries = 0));
    let (failed, _) = ended(&start, Ending::Failed, Some("out of paper"));
    let mut facts = finished(start, failed, JobMark::Failed);
    facts.dead = Some(letter(&facts, 1));
    let id = facts.view.job.id;
    let explained = explain(facts);
    assert_eq!(explained.summary, "The job has failed: attempt 1 failed and no retry is left.");
    assert_eq!(
        explained.sentences[1],
        format!(
            "The occurrence scheduled for 2026-11-15T08:00:00Z failed for good at 2026-11-15T08:00:09Z (9m51s ago) \
             after 1 attempt (out of paper); its dead letter is {id}.1, and a redrive runs it again."
        )
    );
    assert_eq!(explained.advice, [Advice::redrive(id.occurrence(1))]);
    let recent = &explained.recent[0];
    assert_eq!((recent.status, recent.attempts), (ExecutionStatus::Failed, 1));
    assert_eq!(recent.reason.as_deref(), Some("attempt 1 failed and no retry is left"));
    assert_eq!(recent.late_by, Some("5s".parse().unwrap()));
}

#[test]
fn the_dead_letter_of_a_cancelled_job_is_not_to_be_redriven() {
    let mut facts = facts(job(every_hour));
    facts.dead = Some(letter(&facts, 1));
    facts.view.schedule = None;
    facts.view.job.mark = JobMark::Cancelled;
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
    let reason = |facts: &Facts| explain(facts.clone()).recent.remove(0).reason.unwrap();
    let plain = "attempt 1 was cancelled while it ran";
    assert_eq!(
        reason(&facts),
        format!("{plain}, by the next occurrence (overlap_policy REPLACE) or by hand")
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
    let explained = explain(finished(start.clone(), expired, JobMark::Failed));
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
        explain(finished(start.clone(), skipped, JobMark::Failed)).summary,
        "The job has failed: it was skipped: job 7 is CANCELLED."
    );

    let parent = JobId::new(at("07:00:00"), 1);
    let mut dependent = start.clone();
    dependent.view.job.spec.settings.depends_on = vec![parent];
    let why = format!("job {parent}, on which it depended, did not succeed");
    let skipped = open.skipped(SkipReason::Dependency, why, None, at("08:05:00")).unwrap().finished;
    let mut dependent = finished(dependent, skipped, JobMark::Failed);
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
            "It does not come back by itself: mend and retry that job, and trigger this one once it has succeeded.",
            vec![Advice::retry_job(parent), by_hand.clone()],
        ),
        (
            JobStatus::Completed,
            "That job has succeeded since: trigger this one to run it.",
            vec![by_hand.clone()],
        ),
        (
            JobStatus::Cancelled,
            "It does not come back by itself: trigger it to run it without that job.",
            vec![by_hand.clone()],
        ),
    ] {
        dependent.blamed = Some(("load".to_owned(), status));
        let explained = explain(dependent.clone());
        assert_eq!((explained.summary, explained.sentences[1].as_str()), (told(" (load)"), told_next));
        assert_eq!(explained.advice, advice);
    }

    let standing = Standing { job: start.view.job.clone(), schedule: None, open: vec![open] };
    let mut change = standing.apply(&Verb::Cancel, None, at("08:05:00")).unwrap();
    let Some(punctual_core::control::LiveChange::Close(_, settled)) = change.live.pop() else {
        panic!("not closed");
    };
    assert_eq!(
        explain(finished(start, settled.finished, JobMark::Cancelled)).summary,
        "The job is cancelled: attempt 1 was cancelled before it started."
    );
}

#[test]
fn a_cancelled_job_says_what_still_runs() {
    let mut facts = facts(job(|_| {}));
    facts.view.job.mark = JobMark::Cancelled;
    facts.view.open[0].state = running(at("08:09:00"));
    let execution = facts.view.open[0].execution();
    assert_eq!(
        explain(facts.clone()).sentences[1],
        format!("The job is cancelled: {execution} still runs and has been asked to stop.")
    );
    facts.view.open.clear();
    assert_eq!(explain(facts).summary, "The job is cancelled: nothing more of it will run.");
}

#[test]
fn a_completed_job_tells_its_last_run_and_how_late_it_was() {
    let start = facts(job(|_| {}));
    let (done, _) = ended(&start, Ending::Succeeded, None);
    let explained = explain(finished(start, done, JobMark::Active));
    assert_eq!(
        explained.sentences,
        [
            "The job is completed: nothing of it is left to run.",
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
    assert!(told(&[done, again, failed]).ends_with("after 2 attempts that did not succeed (no route)."));
}

#[test]
fn a_start_after_other_jobs_is_not_called_late() {
    let mut start = facts(job(|spec| spec.settings.depends_on = vec![JobId::new(at("07:00:00"), 1)]));
    // Begun without a look at what it depends on, as if that had just succeeded.
    let open = live(&start.view.job, 1, LiveState::Queued);
    start.view.open = vec![open];
    let (done, _) = ended(&start, Ending::Succeeded, None);
    let mut facts = finished(start, done, JobMark::Active);
    let told = |facts: &Facts| explain(facts.clone()).sentences[2].clone();
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
        "Worker w1, the only one with its handler, is paused: it takes nothing until it is resumed."
    );
    assert_eq!(explained.advice, [Advice::resume_worker("w1")]);
    facts.sessions[1] = SessionRow { mode: SessionMode::Draining, ..worker(SessionId(2), "w1", &["report"]) };
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "All 2 workers that have its handler take nothing new: w1 is paused and w1 is draining."
    );
    assert_eq!(explained.advice, [Advice::resume_worker("1")], "its name would not say which");
    facts.sessions.remove(0);
    let explained = explain(facts.clone());
    assert_eq!(
        explained.summary,
        "Worker w1, the only one with its handler, is draining: it takes nothing more."
    );
    assert_eq!(explained.advice, []);
    facts.sessions.push(worker(SessionId(3), "w3", &["report"]));
    assert_eq!(explain(facts).summary, "Nothing is in its way: a worker takes it at any moment.");
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
        "The server is stopping: what has not started runs after its next start."
    );
}

#[test]
fn lateness_is_only_told_of_a_first_attempt_that_is_kept() {
    let start = facts(job(|_| {}));
    let (mut second, _) = ended(&start, Ending::Succeeded, None);
    second.id.attempt = 2;
    second.status = Status::Succeeded;
    let explained = explain(finished(start, second, JobMark::Active));
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
