//! Events for other systems: finished executions and dead letters, published to a broker at least once.
//!
//! A duty of the leader. History is the outbox: an execution is in it as soon as it has ended, and a stored cursor says
//! how far it was published. The cursor moves after the broker has confirmed a batch, so a crash, a new leader or a lost
//! answer repeats events and loses none. While the broker is away the cursor waits; nothing is held in memory meanwhile.

use crate::history_reader::{HistoryReader, PAGES_MAX};
use crate::notify::{KnownJobs, StoredAs, begun, commit, cut_error, is_stopped, moved, next_attempt, read};
use crate::pause::ErrorPause;
use crate::{Duties, EngineContext};
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    BrokerError, DeadLetterQuery, DocumentKind, EventSink, FinishedPage, OutgoingEvent, StoreError,
};
use punctual_core::published::PublishedType;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the cursor.
const CURSOR: &str = "events";

/// What a node needs to publish events.
#[derive(Debug, Clone)]
pub struct EventsConfig {
    pub sink: Arc<dyn EventSink>,
    pub types: BTreeSet<PublishedType>,
    /// The `source` of the events.
    pub source: String,
    /// Whether events contain the payloads of jobs and the results of executions.
    pub with_payloads: bool,
}

/// How far events are published, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsState {
    /// `redis`, `nats`, `amqp` or `kafka`.
    pub kind: &'static str,
    /// Finished executions that were not published yet.
    pub waiting: u64,
    /// How long ago the oldest of them ended.
    pub lag_us: i64,
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
}

/// What this node knows about its events; `None` while it does not lead.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Option<EventsState>>);

impl Outbox {
    pub fn state(&self) -> Option<EventsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, state: Option<EventsState>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Up to where history was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct EventsCursor {
    history: u64,
}

#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

impl EngineContext {
    /// Stores from where on events are published, before anything can end that must be published.
    pub(crate) async fn begin_publishing(&self) -> Result<(), StoreError> {
        if self.config.events.is_some() {
            begin(self).await?;
        }
        Ok(())
    }
}

pub(crate) async fn publish(context: &EngineContext) {
    let Some(config) = &context.config.events else { return };
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let mut publisher: Option<Publisher> = None;
    let (mut error_pause, mut is_failing) = (ErrorPause::default(), false);
    loop {
        context.host.clock.sleep(limits::EVENTS_INTERVAL).await;
        if !context.leads() {
            publisher = None;
            context.outbox.set(None);
            continue;
        }
        match publisher.get_or_insert_default().step(context, config).await {
            Ok(()) => {
                error_pause.succeeded();
                if std::mem::take(&mut is_failing) {
                    tracing::info!(broker = config.sink.kind(), "events are published again");
                }
            }
            Err(error) => {
                // The next attempt starts from the stored cursor.
                publisher = None;
                context.counters.event_errors.add(1);
                if let Some(mut state) = context.outbox.state() {
                    state.error = Some(error.to_string());
                    context.outbox.set(Some(state));
                }
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(broker = config.sink.kind(), %error, "events cannot be published; retrying");
                }
                context.host.clock.sleep(error_pause.failed()).await;
            }
        }
    }
}

/// The stored cursor. The first time, events begin now: older history is not published.
async fn begin(context: &EngineContext) -> Result<StoredAs<EventsCursor>, StoreError> {
    let store = &*context.store;
    if let Some(cursor) = read(store, (DocumentKind::Cursor, CURSOR)).await? {
        return Ok(cursor);
    }
    let value = EventsCursor { history: store.history_span().await?.ends_at };
    if commit(store, vec![begun(CURSOR, &value)?]).await? {
        return Ok(StoredAs { name: CURSOR.to_owned(), version: 1, value });
    }
    // Another process was first.
    let cursor = read(store, (DocumentKind::Cursor, CURSOR)).await?;
    cursor.ok_or_else(|| StoreError::Unavailable("the cursor of events cannot be stored".to_owned()))
}

#[derive(Default)]
struct Publisher {
    history: HistoryReader,
    jobs: KnownJobs,
}

impl Publisher {
    /// Publishes what has ended since the last step.
    async fn step(&mut self, context: &EngineContext, config: &EventsConfig) -> Result<(), PublishError> {
        if is_stopped(context).await? {
            context.outbox.set(None);
            return Ok(());
        }
        let mut cursor = begin(context).await?;
        let missed = self.history.resume(&*context.store, cursor.value.history).await?;
        if missed > 0 {
            tracing::warn!(
                positions = missed,
                "history was deleted before its events were published: keep_history is shorter than the broker was away"
            );
        }
        let limit = if config.with_payloads {
            limits::EVENTS_WITH_PAYLOAD_BATCH_MAX
        } else {
            limits::EVENTS_BATCH_MAX
        };
        for _ in 0..PAGES_MAX {
            let page = self.history.page(&*context.store, limit).await?;
            self.note_lag(context, config, &page).await?;
            let events = self.events_of(context, config, &page).await?;
            if !events.is_empty() {
                config.sink.publish(&events).await?;
                context.counters.events_published.add(events.len() as u64);
            }
            let now = context.host.clock.monotonic();
            let is_due = self.history.done(page.looked_to, now);
            if page.looked_to > cursor.value.history && (is_due || !events.is_empty()) {
                cursor.value.history = page.looked_to;
                if !commit(&*context.store, vec![moved(&cursor)?]).await? {
                    return Err(StoreError::Unavailable("another leader publishes events".to_owned()).into());
                }
                cursor.version += 1;
                self.history.saved(now);
            }
            if !page.more {
                break;
            }
        }
        let kind = config.sink.kind();
        context.outbox.set(Some(EventsState { kind, waiting: 0, lag_us: 0, error: None }));
        Ok(())
    }

    /// Notes how much waits, before it is published.
    async fn note_lag(
        &self,
        context: &EngineContext,
        config: &EventsConfig,
        page: &FinishedPage,
    ) -> Result<(), StoreError> {
        let Some(first) = page.items.first() else { return Ok(()) };
        let waiting = if page.more {
            context.store.history_span().await?.ends_at.saturating_sub(self.history.read_to())
        } else {
            page.items.len() as u64
        };
        let lag = context.time.now().since(first.finished.completed_at);
        context.outbox.set(Some(EventsState {
            kind: config.sink.kind(),
            waiting,
            lag_us: i64::try_from(lag.as_micros()).unwrap_or(i64::MAX),
            error: context.outbox.state().and_then(|state| state.error),
        }));
        Ok(())
    }

    async fn events_of(
        &mut self,
        context: &EngineContext,
        config: &EventsConfig,
        page: &FinishedPage,
    ) -> Result<Vec<OutgoingEvent>, StoreError> {
        let mut events = vec![];
        for event in &page.items {
            let finished = &event.finished;
            let is_wanted = |kind| config.types.contains(&kind);
            let is_dead =
                is_wanted(PublishedType::DeadLetterAdded) && is_dead_letter(context, finished).await?;
            if !is_dead && !is_wanted(PublishedType::ExecutionFinished) {
                continue;
            }
            let data = self.data(context, config, finished).await?;
            if is_wanted(PublishedType::ExecutionFinished) {
                events.push(cloud_event(config, PublishedType::ExecutionFinished, finished, &data));
            }
            if is_dead {
                events.push(cloud_event(config, PublishedType::DeadLetterAdded, finished, &data));
            }
        }
        Ok(events)
    }

    async fn data(
        &mut self,
        context: &EngineContext,
        config: &EventsConfig,
        finished: &Finished,
    ) -> Result<Map<String, Value>, StoreError> {
        let id = finished.id.occurrence.job;
        let mut data = Map::new();
        let mut add = |name: &str, value: Value| {
            if !value.is_null() {
                data.insert(name.to_owned(), value);
            }
        };
        add("execution_id", json!(finished.id.to_string()));
        add("job_id", json!(id.to_string()));
        add("occurrence", json!(finished.id.occurrence.number));
        add("attempt", json!(finished.id.attempt));
        add("status", json!(finished.status));
        add("scheduled_time", json!(finished.scheduled_time));
        add("started_at", json!(finished.started_at));
        add("completed_at", json!(finished.completed_at));
        add("worker", json!(finished.worker));
        add("skip_reason", json!(finished.reason));
        add("error_message", json!(finished.error.as_deref().map(cut_error)));
        // A job that was purged meanwhile has only its id.
        if let Some(facts) = self.jobs.facts(&*context.store, id, finished.job_version).await? {
            add("job_name", json!(facts.name));
            add("job_type", json!(facts.job_type));
            add("queue", json!(facts.queue));
            add("owner_id", json!(facts.owner));
            add("tags", json!(facts.tags));
        }
        if config.with_payloads {
            let job = context.store.job(id).await?;
            add("payload", job.map_or(Value::Null, |view| json_of(&view.job.spec.payload)));
            add("result", finished.result.as_deref().map_or(Value::Null, json_of));
        }
        Ok(data)
    }
}

/// Stored JSON text. Text that cannot be parsed is given as a string.
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Whether the occurrence has failed for good with this execution. One that somebody has retried since then is no
/// longer a dead letter.
async fn is_dead_letter(context: &EngineContext, finished: &Finished) -> Result<bool, StoreError> {
    match finished.status {
        Status::Succeeded | Status::Cancelled | Status::Snoozed => Ok(false),
        Status::Failed | Status::TimedOut | Status::Lost => {
            Ok(context.store.execution(next_attempt(finished.id)).await?.is_none())
        }
        // An occurrence that failed before and then never started again.
        Status::Skipped | Status::Expired if finished.id.attempt == 1 => Ok(false),
        Status::Skipped | Status::Expired => {
            let job = Some(finished.id.occurrence.job);
            let query = DeadLetterQuery { job, limit: limits::PAGE_ITEMS_MAX, ..DeadLetterQuery::default() };
            let letters = context.store.dead_letters(query).await?.items;
            Ok(letters.iter().any(|letter| letter.occurrence == finished.id.occurrence))
        }
    }
}

/// The envelope of an event: CloudEvents 1.0 in JSON.
fn cloud_event(
    config: &EventsConfig,
    kind: PublishedType,
    finished: &Finished,
    data: &Map<String, Value>,
) -> OutgoingEvent {
    #[derive(Serialize)]
    struct Envelope<'a> {
        specversion: &'static str,
        id: &'a str,
        source: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        subject: &'a str,
        time: Timestamp,
        datacontenttype: &'static str,
        data: &'a Map<String, Value>,
    }
    let id = format!("{}:{}", kind.word(), finished.id);
    let subject = finished.id.occurrence.job.to_string();
    let envelope = Envelope {
        specversion: "1.0",
        id: &id,
        source: &config.source,
        kind: kind.full(),
        subject: &subject,
        time: finished.completed_at,
        datacontenttype: "application/json",
        data,
    };
    let body = serde_json::to_string(&envelope).expect("maps with text as keys are JSON");
    OutgoingEvent { id, kind: kind.full(), subject, body }
}
