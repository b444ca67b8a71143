//! A test harness with one job in memory. It fires, claims and ends occurrences and applies verbs, writing
//! the changes as a store would.

use punctual_core::control::{Change, LiveChange, LoadedJob, Refusal, ScheduleChange, Update, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobSpec, JobStatus, Settings, StoredStatus};
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::{
    Cancelled, Finished, Live, LiveState, Looked, Next, ReportedEnd, Settled, Terms,
};
use punctual_core::ports::DeadLetter;
use punctual_core::rank::Shares;
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{
    Beginning, OverlapPolicy, Present, Recurring, Schedule, ScheduleState, SkipRange, begin,
};
use punctual_core::time::Timestamp;

pub const RETRY_DELAY: i64 = 5;
pub const TRIGGER: Verb = Verb::trigger(false);
pub const TRIGGER_ANYWAY: Verb = Verb::trigger(true);
const HOLDER: SessionId = SessionId(1);

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
}

pub fn spec(schedule: impl Into<Schedule>) -> JobSpec {
    let retry = RetryPolicy::Ladder { steps_ms: vec![RETRY_DELAY as u64 * 1_000] };
    let settings = Settings { schedule: schedule.into(), max_retries: 1, retry, ..Settings::default() };
    JobSpec { settings, ..JobSpec::named("report") }
}

pub fn with(spec: JobSpec, change: impl FnOnce(&mut Settings)) -> JobSpec {
    let mut spec = spec;
    change(&mut spec.settings);
    spec
}

pub fn every(seconds: i64) -> Recurring {
    Recurring::new(RecurrenceSpec::interval(&format!("{seconds}s"), at(0))).unwrap()
}

pub fn until(end: i64, recurring: Recurring) -> Recurring {
    let spec = RecurrenceSpec { end_at: Some(at(end)), ..recurring.recurrence.spec().clone() };
    Recurring { recurrence: Recurring::new(spec).unwrap().recurrence, ..recurring }
}

pub fn once(seconds: i64) -> Schedule {
    Schedule::OneTime { at: at(seconds) }
}

pub fn waiting(gates: &[Gate]) -> LiveState {
    LiveState::Waiting(gates.iter().fold(Gates::NONE, |gates, gate| gates.with(*gate)))
}

#[derive(Debug, Clone)]
pub struct Harness {
    pub standing: LoadedJob,
    pub dead: Vec<DeadLetter>,
    pub history: Vec<Finished>,
    pub skipped: Vec<SkipRange>,
}

impl Harness {
    /// A job submitted at second 0.
    pub fn submitted(spec: JobSpec) -> Self {
        Self::submitted_behind(spec, false)
    }

    /// A job submitted at second 0; `waits_for_parents` says whether jobs that it depends on are unfinished.
    pub fn submitted_behind(spec: JobSpec, waits_for_parents: bool) -> Self {
        let (id, mark) = (JobId::new(at(0), 1), StoredStatus::Active);
        let job = Job {
            id,
            version: 1,
            mark,
            numbered: None,
            fired: 0,
            created_at: at(0),
            updated_at: at(0),
            spec,
        };
        let (schedule, open) = match begin(&job, at(0), waits_for_parents, &mut Shares::default()) {
            Beginning::Due(live) => (None, vec![live]),
            Beginning::Later(schedule) => (Some(schedule), vec![]),
            Beginning::Over => (None, vec![]),
        };
        let standing = LoadedJob { job, schedule, open };
        Harness { standing, dead: vec![], history: vec![], skipped: vec![] }
    }

    /// A recurring job, every ten seconds, whose first occurrence has been queued since second 10.
    pub fn recurring(policy: OverlapPolicy) -> Self {
        let mut harness = Harness::submitted(with(spec(every(10)), |settings| settings.overlap = policy));
        harness.fire(at(10));
        harness
    }

    /// The same, and the first occurrence has been running since second 11.
    pub fn running(policy: OverlapPolicy) -> Self {
        let mut harness = Harness::recurring(policy);
        harness.claim(1, at(11));
        harness
    }

    /// A one-shot job that failed finally at second 20.
    pub fn failed() -> Self {
        let mut harness = Harness::submitted(with(spec(once(10)), |settings| settings.max_retries = 0));
        harness.fire(at(10));
        harness.claim(1, at(11));
        harness.end(1, Ending::Failed, at(20));
        assert_eq!(harness.status(), JobStatus::Failed);
        harness
    }

    /// A one-shot job that succeeded at second 20.
    pub fn completed() -> Self {
        let mut harness = Harness::submitted(spec(once(10)));
        harness.fire(at(10));
        harness.claim(1, at(11));
        harness.end(1, Ending::Succeeded, at(20));
        assert_eq!(harness.status(), JobStatus::Completed);
        harness
    }

    /// A recurring job with a running occurrence and one that waits for it, cancelled at second 30.
    pub fn cancelled() -> Self {
        let mut harness = Harness::running(OverlapPolicy::Queue);
        harness.fire(at(20));
        harness.does(Verb::Cancel, at(30));
        harness
    }

    pub fn status(&self) -> JobStatus {
        self.standing.status()
    }

    pub fn schedule(&self) -> &ScheduleState {
        self.standing.schedule.as_ref().expect("something is to come")
    }

    pub fn live(&self, number: u32) -> &Live {
        &self.standing.open[self.place(number)]
    }

    pub fn state(&self, number: u32) -> LiveState {
        self.live(number).state
    }

    pub fn is_asked_to_stop(&self, number: u32) -> bool {
        matches!(self.state(number), LiveState::Running(lease) if lease.cancel_requested)
    }

    pub fn numbers(&self) -> Vec<u32> {
        self.standing.open.iter().map(|live| live.id.number).collect()
    }

    /// What the verb would change.
    pub fn asked(&self, verb: Verb, now: Timestamp) -> Result<Change, Refusal> {
        self.standing.apply(&verb, self.dead.last(), now)
    }

    /// Applies the verb and returns its change.
    pub fn does(&mut self, verb: Verb, now: Timestamp) -> Change {
        let change = self.asked(verb.clone(), now);
        let change = change.unwrap_or_else(|refusal| panic!("{verb:?}: {refusal}"));
        if verb == Verb::Retry {
            self.dead.pop();
        }
        self.write(change.clone());
        change
    }

    pub fn is_updated(&mut self, spec: JobSpec, now: Timestamp) -> Change {
        self.does(Verb::Update(Box::new(Update { spec, expected_version: None })), now)
    }

    /// Its description, changed.
    pub fn respecified(&self, change: impl FnOnce(&mut Settings)) -> JobSpec {
        with(self.standing.job.spec.clone(), change)
    }

    pub fn write(&mut self, change: Change) {
        if let Some(job) = change.job {
            self.standing.job = job;
        }
        match change.schedule {
            ScheduleChange::Keep => {}
            ScheduleChange::Put(state) => self.standing.schedule = Some(*state),
            ScheduleChange::Remove => {
                assert!(self.standing.schedule.take().is_some(), "there was none to remove");
            }
        }
        self.skipped.extend(change.skipped);
        let mut closed = vec![];
        for change in change.live {
            match change {
                LiveChange::Add(live) => self.add(live),
                LiveChange::Put(live) => self.put(live),
                LiveChange::Close(live, settled) => {
                    assert_eq!(live, *self.live(live.id.number));
                    closed.push(settled);
                }
            }
        }
        self.settle(closed);
    }

    pub fn fire(&mut self, now: Timestamp) {
        let LoadedJob { schedule, open, .. } = &self.standing;
        let schedule = schedule.as_ref().expect("something is to come");
        let regular = open.iter().filter(|live| !live.flags.replayed);
        let present = Present {
            replaceable: match schedule.overlap.policy {
                OverlapPolicy::Replace => regular.cloned().collect(),
                _ => vec![],
            },
            ..self.present()
        };
        let has_waited = schedule.is_replay_waiting();
        let plan = schedule.plan(now, present, &mut Shares::default());
        if plan.next.is_none() {
            self.standing.job.numbered = Some(plan.numbered);
            self.standing.job.fired = plan.runs;
            self.standing.job.updated_at = self.standing.job.updated_at.max(now);
        }
        self.standing.schedule = plan.next;
        if !has_waited && self.standing.schedule.as_ref().is_some_and(ScheduleState::is_replay_waiting) {
            self.standing.open.iter_mut().for_each(|live| live.flags.followed = true);
        }
        self.skipped.extend(plan.skipped);
        plan.fired.into_iter().for_each(|live| self.add(live));
        let mut closed = vec![];
        for replaced in plan.replaced {
            match replaced {
                Cancelled::Requested(live) => self.put(live),
                Cancelled::Closed(settled) => closed.push(settled),
            }
        }
        self.settle(closed);
    }

    fn present(&self) -> Present {
        let open = &self.standing.open;
        let count = |wanted: &dyn Fn(&Live) -> bool| open.iter().filter(|live| wanted(live)).count();
        Present {
            open: open.len(),
            behind: count(&|live| live.is_closed_by(Gate::Overlap)),
            replayed: count(&|live| live.flags.replayed),
            replayed_behind: count(&|live| live.flags.replayed && live.is_closed_by(Gate::Overlap)),
            ..Present::default()
        }
    }

    pub fn claim(&mut self, number: u32, now: Timestamp) {
        let version = self.standing.job.version;
        self.put(self.live(number).claimed(HOLDER, version, now).expect("it is queued"));
    }

    pub fn end(&mut self, number: u32, ending: Ending, now: Timestamp) {
        let end = ReportedEnd {
            ending,
            retryable: true,
            next_at: None,
            started_at: None,
            completed_at: now,
            error: None,
            result: None,
        };
        let settled = self.live(number).settled(end, self.terms(), now).expect("it runs");
        self.settle(vec![settled]);
    }

    /// Cancels one of its executions, unless it was asked to stop before.
    pub fn cancel(&mut self, number: u32, now: Timestamp) {
        match self.live(number).cancelled(self.terms(), now) {
            Ok(Cancelled::Requested(live)) => self.put(live),
            Ok(Cancelled::Closed(settled)) => self.settle(vec![settled]),
            Err(_) => {}
        }
    }

    /// Applies the passing of time to all live rows.
    pub fn look(&mut self, now: Timestamp) {
        for number in self.numbers() {
            if self.live(number).look_at().is_none_or(|at| at > now) {
                continue;
            }
            match self.live(number).looked_at(self.terms(), now).expect("there is something to see") {
                Looked::Opened(live) => self.put(live),
                Looked::Expired(settled) => self.settle(vec![settled]),
                Looked::TooEarly => {}
            }
        }
    }

    fn terms(&self) -> Option<Terms<'_>> {
        let Job { spec, mark, .. } = &self.standing.job;
        Some(Terms { settings: &spec.settings, mark: *mark })
    }

    fn place(&self, number: u32) -> usize {
        let place = self.standing.open.iter().position(|live| live.id.number == number);
        place.unwrap_or_else(|| panic!("{number} is not open, but {:?}", self.numbers()))
    }

    fn add(&mut self, live: Live) {
        assert!(!self.numbers().contains(&live.id.number), "{} is open already", live.id.number);
        self.standing.open.push(live);
        self.standing.open.sort_by_key(|live| live.id);
    }

    fn put(&mut self, live: Live) {
        let place = self.place(live.id.number);
        self.standing.open[place] = live;
    }

    /// Ends attempts in one commit. Occurrences that wait for a closed one proceed once all attempts are
    /// written.
    fn settle(&mut self, settled: Vec<Settled>) {
        let mut is_followed = false;
        let mut now = at(0);
        for Settled { finished, next } in settled {
            now = finished.completed_at;
            match next {
                Next::Retry(live) => self.put(live),
                Next::Closed { dead_letter, job_mark } => {
                    let place = self.place(finished.id.occurrence.number);
                    is_followed |= self.standing.open.remove(place).flags.followed;
                    if dead_letter {
                        self.dead.push(self.letter(&finished));
                    }
                    if self.standing.open.is_empty() && self.standing.schedule.is_none() {
                        self.standing.job.mark = job_mark.unwrap_or(self.standing.job.mark);
                    }
                }
            }
            self.history.push(finished);
        }
        let open = &self.standing.open;
        if is_followed
            && open.iter().all(|live| live.is_closed_by(Gate::Overlap))
            && let Some(first) = open.iter().min_by_key(|live| (live.flags.replayed, live.id.number))
        {
            self.put(first.gate_opened(Gate::Overlap, now).expect("it waits"));
        }
        let left = self.present();
        if let Some(schedule) = self.standing.schedule.as_mut().filter(|_| is_followed)
            && let Some(woken) = schedule.woken(now, &left)
        {
            *schedule = woken;
        }
    }

    fn letter(&self, finished: &Finished) -> DeadLetter {
        let spec = &self.standing.job.spec;
        DeadLetter {
            number: self.dead.len() as u64 + 1,
            occurrence: finished.id.occurrence,
            job_name: spec.name.clone(),
            job_type: spec.job_type.clone(),
            queue: spec.queue.clone(),
            attempts: finished.id.attempt,
            epoch: finished.epoch,
            scheduled_time: finished.scheduled_time,
            origin: finished.origin,
            died_at: finished.completed_at,
            error: finished.error.clone(),
            noted: false,
            input: finished.input.clone(),
        }
    }
}
