//! Every case that an explanation covers, with its sentences.

mod line;
mod past;

use super::*;
use punctual_client::ExecutionStatus;
use punctual_core::cluster_pause::ClusterPause;
use punctual_core::control::{LoadedJob, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, JobId, SessionId};
use punctual_core::job::{Job, JobSpec, Priority, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::limiter::{LimiterId, LimiterUse};
use punctual_core::occurrence::{Lease, LiveState, Next, Origin, ReportedEnd, Terms};
use punctual_core::ports::{DeadLetter, Depth, JobView, Lane};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Beginning, OverlapPolicy, Recurring, SkipRange, SkipReason, begin};
use punctual_core::session::Pulse;
use punctual_engine::LimitHolder;
use std::collections::BTreeMap;

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
        mark: StoredStatus::Active,
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

/// A new job, explained ten minutes later.
fn facts(job: Job) -> ExplainedFacts {
    let (schedule, open) = match begin(&job, job.created_at, false, &mut Default::default()) {
        Beginning::Due(live) => (None, vec![live]),
        Beginning::Later(state) => (Some(state), vec![]),
        Beginning::Over => (None, vec![]),
    };
    ExplainedFacts {
        now: at("08:10:00"),
        view: JobView { job, schedule, open, last_finished: None },
        parents: vec![],
        sessions: vec![],
        depths: vec![],
        cluster_pause: None,
        queue_paused_at: None,
        queue_unreadable: None,
        ahead: BTreeMap::new(),
        skipped: vec![],
        history: vec![],
        dead: None,
        blamed: None,
        parents_ended_at: None,
        is_stopping: false,
        notes: vec![],
        limits: Default::default(),
        lines: Default::default(),
        more_open: MoreOpen::NONE,
        holders: Default::default(),
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
        token: None,
        mode: Default::default(),
        worker: name.to_owned(),
        embedded: false,
        job_types: job_types.iter().map(|job_type| (*job_type).to_owned()).collect(),
        slots: 2,
        condition: None,
        opened_at: at("07:00:00"),
        beaten_at: at("08:09:59"),
    }
}

/// The sentences about the only open execution.
fn about_open(facts: ExplainedFacts) -> Vec<String> {
    let mut explained = explain(facts).executions;
    assert_eq!(explained.len(), 1, "{explained:?}");
    explained.remove(0).sentences
}

/// An attempt that ran from 08:00:05 to 08:00:09.
fn ended(facts: &ExplainedFacts, ending: Ending, error: Option<&str>) -> (Finished, Next) {
    let job = &facts.view.job;
    let live = Live { state: running(at("08:00:05")), ..facts.view.open[0].clone() };
    let end = ReportedEnd {
        ending,
        retryable: true,
        next_at: None,
        started_at: None,
        completed_at: at("08:00:09"),
        error: error.map(str::to_owned),
        result: None,
    };
    let terms = Terms { settings: &job.spec.settings, mark: job.mark };
    let settled = live.settled(end, Some(terms), at("08:00:09")).unwrap();
    (settled.finished, settled.next)
}

/// The facts after the only attempt has ended permanently, with this execution in history.
fn finished(mut facts: ExplainedFacts, last: Finished, mark: StoredStatus) -> ExplainedFacts {
    facts.view.open.clear();
    facts.view.job.mark = mark;
    facts.view.last_finished = Some(last.clone());
    facts.history.insert(0, last);
    facts
}

fn letter(facts: &ExplainedFacts, attempts: u32) -> DeadLetter {
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
        input: None,
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
        ["Attempt 2 has been running on worker w1 since 2026-11-15T08:09:00Z (1m ago), with version 1 \
             of the job, which has changed since then."]
    );

    let LiveState::Running(lease) = &mut facts.view.open[0].state else { panic!("not running") };
    lease.cancel_requested = true;
    facts.sessions.clear();
    let said = about_open(facts);
    assert!(said[0].contains("on a worker that is no longer connected"), "{said:?}");
    assert_eq!(said[1], "It counts as lost once its worker's lease has expired.");
    assert_eq!(said[2], "It has been asked to stop and will end cancelled, whatever its handler reports.");
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
    assert_eq!(about_open(facts), ["It waits until 2026-11-15T09:00:00Z (in 50m)."]);
}

#[test]
fn a_dependency_names_the_jobs_that_are_not_finished() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].state = behind(Gate::Dependency);
    let parent = |n: u64, known: Option<(&str, JobStatus)>| ParentJob {
        id: JobId::new(at("07:00:00"), n),
        known: known.map(|(name, status)| (name.to_owned(), status)),
    };
    let known = |name, status| Some((name, status));
    facts.parents =
        vec![parent(1, known("load", JobStatus::Active)), parent(2, known("clean", JobStatus::Paused))];
    let (first, second) = (facts.parents[0].id, facts.parents[1].id);
    assert_eq!(
        about_open(facts.clone()),
        [format!("It waits for job {first} (load, ACTIVE) and job {second} (clean, PAUSED) to succeed.")]
    );
    facts.parents[1].known = None;
    assert_eq!(
        about_open(facts.clone()),
        [format!(
            "Job {second}, which it depends on, was deleted before it succeeded: once the run of that job has stopped, \
             this one is skipped with reason dependency. To run it without that job, trigger it then, or submit it again \
             without depends_on."
        )]
    );
    facts.parents = (0..8).map(|n| parent(n, Some(("load", JobStatus::Paused)))).collect();
    assert!(about_open(facts.clone())[0].contains(" and 3 more to succeed."));
    facts.parents.clear();
    assert!(about_open(facts)[0].contains("which have now all succeeded"));
}

#[test]
fn a_due_job_that_nobody_fires_is_told() {
    let facts = facts(job(|spec| spec.settings.schedule = Schedule::OneTime { at: at("08:09:00") }));
    assert_eq!(
        explain(facts).summary,
        "It was due at 2026-11-15T08:09:00Z (1m ago), once, and no scheduler has fired it yet: check that \
         a scheduler is running and keeps up."
    );
}

#[test]
fn a_job_of_later_tells_what_else_it_will_wait_for() {
    let mut facts = facts(job(|spec| spec.settings.schedule = Schedule::OneTime { at: at("09:00:00") }));
    let id = JobId::new(at("07:00:00"), 1);
    facts.parents = vec![ParentJob { id, known: Some(("load".to_owned(), JobStatus::Active)) }];
    let explained = explain(facts);
    assert_eq!(explained.summary, "It runs next at 2026-11-15T09:00:00Z (in 50m), once.");
    assert_eq!(explained.sentences[1], format!("When it is due, it also waits for job {id} (load, ACTIVE)."));
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
    facts.view.job.mark = StoredStatus::Paused;
    let id = facts.view.job.id;
    let explained = explain(facts);
    assert_eq!(
        explained.executions[0].sentences,
        ["It waits because a concurrency limit is reached.", "It waits because the job is paused.",]
    );
    let paused = "The job is paused: it starts no executions until it is resumed.";
    assert_eq!((explained.summary.as_str(), explained.next_run_time), (paused, None));
    assert_eq!(explained.advice, [Advice::resume_job(id)]);
}

#[test]
fn a_line_of_a_paused_queue_waits_for_the_queue() {
    let mut facts = facts(job(|_| {}));
    let line = LimiterId::of_queue("default");
    facts.view.open[0].state = behind(Gate::Concurrency);
    facts.view.open[0].line = Some(line);
    facts.lines = [(line, LimiterUse { waiting: 3, ..LimiterUse::default() })].into();
    facts.queue_paused_at = Some(at("07:10:00"));
    let said = explain(facts).executions.remove(0).sentences;
    assert_eq!(
        said,
        ["It is on the wait list until queue default is resumed. 3 executions wait for this limit in total."]
    );
}

#[test]
fn a_paused_job_of_a_paused_queue_tells_both() {
    let mut facts = facts(job(|_| {}));
    facts.view.open[0].state = behind(Gate::Paused);
    facts.view.job.mark = StoredStatus::Paused;
    facts.queue_paused_at = Some(at("07:10:00"));
    let said = explain(facts.clone()).sentences;
    assert!(said[0].starts_with("The job is paused: "), "{said:?}");
    assert!(said[1].starts_with("The queue default has been paused since 2026-11-15T07:10:00Z"), "{said:?}");
    let advice = [Advice::resume_job(facts.view.job.id), Advice::resume_queue("default")];
    assert_eq!(explain(facts.clone()).advice, advice);
    facts.view.open.clear();
    facts.view.job.mark = StoredStatus::Cancelled;
    assert!(!explain(facts).sentences.concat().contains("queue"), "nothing of it starts anyway");
}

#[test]
fn a_paused_one_time_job_runs_then_or_at_once() {
    let mut facts = facts(job(|spec| spec.settings.schedule = Schedule::OneTime { at: at("09:00:00") }));
    facts.view.job.mark = StoredStatus::Paused;
    facts.view.schedule.as_mut().unwrap().due_at = None;
    let said = explain(facts.clone()).sentences.remove(1);
    assert_eq!(said, "If it is resumed before 2026-11-15T09:00:00Z (in 50m), it runs then, once.");
    facts.now = at("10:00:00");
    assert_eq!(explain(facts).sentences[1], "Once it is resumed, it runs immediately.");
}

#[test]
fn a_paused_recurring_job_tells_when_it_would_go_on() {
    let mut facts = facts(job(every_hour));
    let standing =
        LoadedJob { job: facts.view.job.clone(), schedule: facts.view.schedule.clone(), open: vec![] };
    let change = standing.apply(&Verb::Pause, None, facts.now).unwrap();
    let punctual_core::control::ScheduleChange::Put(held) = change.schedule else { panic!("not held") };
    facts.view.job.mark = StoredStatus::Paused;
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
        "Once it is resumed, it continues by its schedule: At minute 0 of every hour, Kolkata time."
    );
}

#[test]
fn a_queued_execution_tells_that_the_cluster_is_paused() {
    let mut facts = facts(job(|_| {}));
    facts.cluster_pause = Some(ClusterPause {
        reason: "database upgrade".to_owned(),
        paused_at: at("07:10:00"),
        until: Some(at("09:00:00")),
        skips: true,
        paused_by: "ops".to_owned(),
    });
    let said = explain(facts).summary;
    assert!(said.starts_with("The whole cluster has been paused since"), "{said}");
    assert!(said.contains("(database upgrade)") && said.contains("recurring runs are skipped"), "{said}");
}

#[test]
fn a_queued_execution_tells_that_its_queue_is_paused() {
    let mut facts = facts(job(|_| {}));
    facts.queue_paused_at = Some(at("07:10:00"));
    facts.sessions = vec![worker(HOLDER, "w1", &["report"])];
    assert_eq!(
        about_open(facts),
        [
            "The queue default has been paused since 2026-11-15T07:10:00Z (1h ago): it starts no \
             executions until it is resumed.",
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
    assert_eq!(about_open(facts.clone())[0], "Nothing blocks it: a worker will claim it shortly.");
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
        waits: false,
        backfill: None,
    });
    let explained = explain(facts.clone());
    assert_eq!(explained.summary, format!("{told}; 2 of 5 runs have started."));
    assert_eq!(
        explained.sentences[1],
        "3 missed occurrences are left to replay, the next one of 2026-11-15T03:30:00Z, at 2026-11-15T08:10:01Z (in \
         1s)."
    );

    facts.view.schedule.as_mut().unwrap().due_at = Some(at("08:10:01"));
    assert_eq!(
        explain(facts).summary,
        "It runs next at 2026-11-15T08:10:01Z (in 1s), to replay a missed occurrence; 2 of 5 runs have started."
    );
}

#[test]
fn a_replay_is_told_with_what_is_left_and_what_it_waits_for() {
    let mut facts = facts(job(every_hour));
    let open = live(&facts.view.job, 1, LiveState::Queued);
    facts.view.open = vec![open];
    let state = facts.view.schedule.as_mut().unwrap();
    state.due_at = Some(at("08:10:05"));
    state.replay = Some(punctual_core::schedule::Replay {
        next: at("03:30:00"),
        until: at("05:30:00"),
        due_at: at("08:10:05"),
        later: vec![(at("06:30:00"), at("06:30:00"))],
        waits: true,
        backfill: None,
    });
    let waits = |facts: &ExplainedFacts, change: &dyn Fn(&mut ExplainedFacts)| {
        let mut facts = facts.clone();
        change(&mut facts);
        let said = explain(facts).sentences;
        let replay = said.iter().find(|said| said.contains("left to replay"));
        replay.and_then(|said| said.split_once("; it waits for ")).expect("it waits").1.to_owned()
    };
    let explained = explain(facts.clone());
    assert_eq!(explained.next_run_time, Some(at("08:00:00")), "the one that is queued");
    let of_job =
        explain(ExplainedFacts { view: JobView { open: vec![], ..facts.view.clone() }, ..facts.clone() });
    assert_eq!(of_job.next_run_time, Some(at("08:30:00")), "not when the replay is tried again");
    assert!(
        explained.sentences.iter().any(|said| said.starts_with("4 missed occurrences are left to replay"))
    );

    let policy = |policy| {
        move |facts: &mut ExplainedFacts| facts.view.schedule.as_mut().unwrap().overlap.policy = policy
    };
    let end = "all open occurrences of the job to end, because its overlap policy is";
    assert_eq!(waits(&facts, &policy(OverlapPolicy::Skip)), format!("{end} SKIP."));
    assert_eq!(waits(&facts, &policy(OverlapPolicy::Replace)), format!("{end} REPLACE."));
    assert_eq!(
        waits(&facts, &policy(OverlapPolicy::Allow)),
        "room under max_open (1000), of which one is reserved for regular occurrences."
    );
    assert_eq!(
        waits(&facts, &policy(OverlapPolicy::Queue)),
        "room under overlap_limit (10) and max_open (1000), of each of which one is reserved for regular \
         occurrences."
    );
    let paused = waits(&facts, &|facts| facts.view.schedule.as_mut().unwrap().due_at = None);
    assert_eq!(paused, "the job to be resumed.");
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
            "3 occurrences scheduled from 2026-11-15T03:30:00Z to 2026-11-15T05:30:00Z were skipped \
             because no scheduler fired in time (misfire_policy).",
            "The occurrence scheduled for 2026-11-15T03:30:00Z was skipped because an earlier occurrence was still \
             open, or was due at the same time and ran first (overlap_policy).",
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
