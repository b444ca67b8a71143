//! Client actions on existing objects: every verb, at any moment, on jobs that the clients know and on
//! executions, dead letters, queues and sessions that they find.

use crate::auditor::AuditViolation;
use crate::clients::{Clients, KnownJob};
use crate::lock;
use crate::network::NoAnswer;
use crate::workload::{ClientBehaviour, QUEUES, changed, queue_settings, without_slow_rates};
use punctual_core::control::{Update, Verb};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::Job;
use punctual_core::ports::{Controlled, Pausing, Task};
use punctual_core::queue::{QueueChange, QueueSettings};
use punctual_core::session::SessionOrder;
use punctual_engine::{ControlError, Engine};
use std::sync::Arc;
use std::time::Duration;

/// How often a client repeats a verb whose outcome it does not know.
const TRIES_MAX: u64 = 3;
/// How long a client waits for a response.
const WAIT: Duration = Duration::from_secs(5);

/// One action.
#[derive(Debug, Clone)]
enum ClientAction {
    Control(JobId, Box<Verb>),
    CancelExecution(ExecutionId),
    Redrive(Vec<OccurrenceId>),
    Discard(Vec<OccurrenceId>),
    PauseQueue(String, Pausing),
    SetQueue(String, QueueSettings),
    OrderSession(SessionId, SessionOrder),
}

/// Whether an action is to be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActionOutcome {
    Known,
    Unknown,
}

impl Clients {
    /// Performs a random action, if there is a target for one.
    pub(crate) async fn act(&self) {
        let Some(action) = self.draw() else { return };
        let tries = lock(&self.rng).between(1, TRIES_MAX);
        for _ in 0..tries {
            if self.attempt(&action).await == ActionOutcome::Known {
                return;
            }
            self.cluster.world.count("verbs with unknown outcome");
            let pause = lock(&self.rng).millis(10, 1_500);
            self.cluster.world.executor.sleep(pause).await;
        }
    }

    /// Sets the limits of a queue.
    pub(crate) async fn limit(&self, queue: &str, settings: QueueSettings) {
        self.attempt(&ClientAction::SetQueue(queue.to_owned(), settings)).await;
    }

    /// Removes rate limits that would make the run last too long.
    pub(crate) async fn speed_up(&self) {
        let world = &self.cluster.world;
        for (queue, settings) in world.ask(|auditor| auditor.queue_settings()) {
            let limits = without_slow_rates(&settings.limits);
            if limits != settings.limits {
                self.attempt(&ClientAction::SetQueue(queue, QueueSettings { limits, ..settings })).await;
            }
        }
    }

    /// Resumes everything that is paused, so that the run can finish.
    pub(crate) async fn resume_all(&self) {
        let world = &self.cluster.world;
        loop {
            let queues = world.ask(|auditor| auditor.paused_queues());
            let jobs = world.ask(|auditor| auditor.paused_jobs());
            let sessions = world.ask(|auditor| auditor.paused_sessions());
            if queues.is_empty() && jobs.is_empty() && sessions.is_empty() {
                return;
            }
            for queue in queues {
                self.attempt(&ClientAction::PauseQueue(queue, Pausing::Resume)).await;
            }
            for session in sessions {
                self.attempt(&ClientAction::OrderSession(session, SessionOrder::Resume)).await;
            }
            for job in jobs {
                self.attempt(&ClientAction::Control(job, Box::new(Verb::Resume))).await;
            }
            world.executor.sleep(Duration::from_millis(100)).await;
        }
    }

    fn draw(&self) -> Option<ClientAction> {
        let world = &self.cluster.world;
        let mut rng = lock(&self.rng);
        let known = lock(&self.ledger);
        if known.jobs.is_empty() {
            return None;
        }
        // Mostly the same few jobs, so that verbs interfere with each other.
        let few = known.jobs.len().min(6);
        let index = if rng.per_mille(500) { rng.index(few) } else { rng.index(known.jobs.len()) };
        let KnownJob { id, spec, version } = known.jobs[index].clone();
        drop(known);
        let control = |verb: Verb| Some(ClientAction::Control(id, Box::new(verb)));
        if self.setting.mood == ClientBehaviour::Fickle && rng.per_mille(700) {
            let verb = match rng.below(20) {
                0..=7 => {
                    let spec = changed(&mut rng, &spec, world.now(), self.setting);
                    Verb::Update(Box::new(Update { spec, expected_version: None }))
                }
                8..=11 => Verb::Pause,
                12..=14 => Verb::Resume,
                15..=18 => Verb::trigger(rng.per_mille(300)),
                _ => Verb::Cancel,
            };
            return control(verb);
        }
        if self.setting.is_limited && rng.per_mille(80) {
            let settings = queue_settings(&mut rng, self.setting);
            return Some(ClientAction::SetQueue((*rng.pick(&QUEUES)).to_owned(), settings));
        }
        match rng.below(116) {
            0..=13 => control(Verb::Pause),
            14..=25 => control(Verb::Resume),
            26..=41 => control(Verb::trigger(rng.per_mille(300))),
            42..=46 => control(Verb::Cancel),
            47..=50 => control(Verb::Delete),
            51..=58 => control(Verb::Retry),
            59..=76 => {
                let spec = changed(&mut rng, &spec, world.now(), self.setting);
                let expected_version = rng.per_mille(400).then_some(version);
                control(Verb::Update(Box::new(Update { spec, expected_version })))
            }
            77..=84 => {
                let live = world.ask(|auditor| auditor.open_executions());
                let of_job = id.occurrence(1).attempt(rng.between(1, 2) as u32);
                let execution = if live.is_empty() { of_job } else { *rng.pick(&live) };
                Some(ClientAction::CancelExecution(execution))
            }
            85..=91 => {
                let letters = world.ask(|auditor| auditor.letters());
                let first = rng.index(letters.len() + 1);
                let mut dead: Vec<OccurrenceId> = letters.into_iter().skip(first).take(2).collect();
                dead.push(id.occurrence(1));
                dead.dedup();
                Some(ClientAction::Redrive(dead))
            }
            92..=93 => {
                let letters = world.ask(|auditor| auditor.letters());
                let dead = if letters.is_empty() { id.occurrence(1) } else { *rng.pick(&letters) };
                Some(ClientAction::Discard(vec![dead]))
            }
            94..=96 => Some(ClientAction::PauseQueue((*rng.pick(&QUEUES)).to_owned(), Pausing::Pause)),
            97..=99 => Some(ClientAction::PauseQueue((*rng.pick(&QUEUES)).to_owned(), Pausing::Resume)),
            100..=104 => {
                let settings = queue_settings(&mut rng, self.setting);
                Some(ClientAction::SetQueue((*rng.pick(&QUEUES)).to_owned(), settings))
            }
            _ => {
                let sessions = world.ask(|auditor| auditor.sessions_there());
                let orders =
                    [SessionOrder::Pause, SessionOrder::Pause, SessionOrder::Resume, SessionOrder::Drain];
                let order = *rng.pick(&orders);
                (!sessions.is_empty()).then(|| ClientAction::OrderSession(*rng.pick(&sessions), order))
            }
        }
    }

    async fn attempt(&self, action: &ClientAction) -> ActionOutcome {
        self.cluster.world.note(format_args!("client: {action:?}"));
        match action.clone() {
            ClientAction::Control(job, verb) => self.control(job, *verb).await,
            ClientAction::CancelExecution(execution) => {
                let answer = self.ask(WAIT, move |engine| {
                    Box::pin(async move { engine.cancel_execution(execution, None).await.is_ok() })
                });
                known(answer.await)
            }
            ClientAction::Redrive(dead) => {
                let answer = self.ask(WAIT, move |engine| {
                    let dead = dead.clone();
                    Box::pin(async move { engine.redrive(dead, None).await.is_ok() })
                });
                known(answer.await)
            }
            ClientAction::Discard(dead) => {
                let answer = self.ask(WAIT, move |engine| {
                    let dead = dead.clone();
                    Box::pin(async move { engine.discard(dead, None).await.is_ok() })
                });
                known(answer.await)
            }
            ClientAction::SetQueue(queue, settings) => {
                let answer = self.ask(WAIT, move |engine| {
                    let (queue, settings) = (queue.clone(), settings.clone());
                    Box::pin(async move {
                        engine.set_queue(queue, QueueChange::Replace(settings), None).await.is_ok()
                    })
                });
                known(answer.await)
            }
            ClientAction::OrderSession(session, order) => {
                let answer = self.ask(WAIT, move |engine| {
                    Box::pin(async move { engine.order_session(session, order, None).await.is_ok() })
                });
                known(answer.await)
            }
            ClientAction::PauseQueue(queue, pausing) => {
                let answer = self.ask(WAIT, move |engine| {
                    let queue = queue.clone();
                    Box::pin(async move { engine.pause_queue(queue, pausing, None).await.is_ok() })
                });
                known(answer.await)
            }
        }
    }

    async fn control(&self, job: JobId, verb: Verb) -> ActionOutcome {
        let world = &self.cluster.world;
        let asked = verb.clone();
        let answer = self.ask(WAIT, move |engine: Arc<Engine>| -> Task<_> {
            let verb = asked.clone();
            Box::pin(async move {
                match verb {
                    Verb::Update(update) => self::update(&engine, job, *update).await,
                    verb => engine.control(job, verb, None).await,
                }
            })
        });
        match answer.await {
            Err(NoAnswer) | Ok(Err(ControlError::Unavailable(_))) => ActionOutcome::Unknown,
            Ok(Err(ControlError::NotThere | ControlError::Refused(_))) => ActionOutcome::Known,
            Ok(Err(ControlError::Invalid(problems))) => {
                let expected = ["end_at", "expires_at", "depends_on"];
                if let Some(problem) = problems.iter().find(|problem| !expected.contains(&&*problem.field)) {
                    let detail = format!("{verb:?} was refused: {problem:?}");
                    world.object(AuditViolation { rule: "a valid update is accepted", detail });
                }
                world.count("invalid updates");
                ActionOutcome::Known
            }
            Ok(Ok(controlled)) => {
                world.note(format_args!("client: {verb:?} of job {job} is acknowledged: {controlled:?}"));
                world.audit(|auditor| auditor.acknowledged_verb(job, &verb, &controlled));
                if let Verb::Update(update) = verb {
                    lock(&self.ledger).updated(job, update.spec, controlled.version);
                }
                ActionOutcome::Known
            }
        }
    }
}

/// Updates a job, either from the version that the client knows or unconditionally.
async fn update(engine: &Engine, job: JobId, update: Update) -> Result<Controlled, ControlError> {
    update.spec.check().map_err(ControlError::Invalid)?;
    let Some(version) = update.expected_version else {
        return engine.control(job, Verb::Update(Box::new(update)), None).await;
    };
    match engine.store().job(job).await? {
        // From the version that the client knows, not from the current one.
        Some(view) => engine.update(&Job { version, ..view.job }, update.spec, None).await,
        None => Err(ControlError::NotThere),
    }
}

fn known(answer: Result<bool, NoAnswer>) -> ActionOutcome {
    if matches!(answer, Ok(true)) { ActionOutcome::Known } else { ActionOutcome::Unknown }
}
