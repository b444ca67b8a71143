//! Workers with handlers in Rust.
//!
//! ```no_run
//! use punctual_client::Client;
//! use punctual_client::worker::{Context, Worker};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting {
//!     name: String,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("127.0.0.1:7070", std::env::var("PUNCTUAL_TOKEN")?)?;
//! let worker = Worker::builder(client)
//!     .slots(4)
//!     .handler("greet", |_: Context, greeting: Greeting| async move { Ok(format!("hello {}", greeting.name)) })
//!     .build();
//! worker.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! This module owns what a handler sees. Sessions, slots, timeouts and reports are those of `punctual-worker`, over
//! [`RemotePort`].

mod handler;

pub use handler::{Cancellation, CheckpointError, Context, HandlerError};
pub use punctual_core::health::{FreeMin, HealthLimits};
pub use punctual_core::log_level::LogLevel;

use crate::client::{Client, ClientError};
use crate::host;
use crate::remote::RemotePort;
use handler::{Graceful, Typed};
use punctual_core::limits;
use punctual_core::ports::{Executor, Host};
use punctual_worker::{WorkerConfig, prefetch_max};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Why a worker cannot run.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The server rejects this worker, however often it retries.
    #[error("the server rejects this worker")]
    Refused(#[source] ClientError),
    #[error("cannot read randomness")]
    NoRandomness(#[source] getrandom::Error),
}

/// A worker, ready to run.
pub struct Worker {
    client: Client,
    config: WorkerConfig,
    handlers: Vec<Arc<dyn Executor>>,
    schemas: BTreeMap<String, Value>,
}

impl Worker {
    /// A worker for the server of this client.
    pub fn builder(client: Client) -> WorkerBuilder {
        let program = std::env::current_exe().ok();
        let name = program.as_ref().and_then(|path| path.file_stem()).and_then(|stem| stem.to_str());
        let config = WorkerConfig {
            name: name.unwrap_or("worker").to_owned(),
            // Prefetched work would wait here while other workers may be idle.
            prefetch: 0,
            ..WorkerConfig::default()
        };
        WorkerBuilder {
            worker: Worker { client, config, handlers: Vec::new(), schemas: BTreeMap::new() },
            stop_grace: Duration::ZERO,
        }
    }

    /// Works until the server rejects it or an operator drains it. Retries while the server is unreachable.
    pub async fn run(self) -> Result<(), WorkerError> {
        self.run_until(std::future::pending()).await
    }

    /// Works until `stop` is ready, then accepts no more work, lets running handlers finish within the grace
    /// period, and returns. Must be called within a tokio runtime.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), WorkerError> {
        let host = host::this_machine().map_err(WorkerError::NoRandomness)?;
        let (drain, draining) = watch::channel(false);
        let drain = Arc::new(drain);
        let refusal = Arc::new(Mutex::new(None));
        let running = self.start(host, drain.clone(), refusal.clone()).run(draining);
        let mut running = pin!(running);
        tokio::select! {
            () = running.as_mut() => {}
            () = stop => {
                drain.send_replace(true);
                running.await;
            }
        }
        let refused = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        refused.map_or(Ok(()), |error| Err(WorkerError::Refused(error)))
    }

    /// The underlying worker: a rejection drains it and is recorded.
    fn start(
        self,
        host: Host,
        drain: Arc<watch::Sender<bool>>,
        refusal: Arc<Mutex<Option<ClientError>>>,
    ) -> punctual_worker::Worker {
        let port = RemotePort::new(self.client).with_schemas(self.schemas).when_refused(move |error| {
            *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            drain.send_replace(true);
        });
        let config = WorkerConfig { address: host::own_address(), ..self.config };
        punctual_worker::Worker::new(config, host, Arc::new(port), self.handlers)
            .on_machine(host::health("."))
    }
}

/// The settings of a worker.
pub struct WorkerBuilder {
    worker: Worker,
    stop_grace: Duration,
}

impl WorkerBuilder {
    /// The worker's name, stable across restarts; by default the program's name.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|config| config.name = name.into())
    }

    /// Concurrent handlers; 16 by default.
    pub fn slots(self, slots: usize) -> Self {
        self.with(|config| config.slots = slots)
    }

    /// Concurrent handlers, between these bounds: more while work waits, as far as the machine allows.
    pub fn slots_between(self, slots: RangeInclusive<usize>) -> Self {
        self.with(|config| (config.slots, config.slots_max) = (*slots.start(), Some(*slots.end())))
    }

    /// Limits of memory, disk and processors beyond which the worker accepts no new work; none by default.
    pub fn limits(self, limits: HealthLimits) -> Self {
        self.with(|config| config.limits = limits)
    }

    /// Executions prefetched beyond the slots; none by default. Some prefetch makes many short handlers
    /// faster.
    pub fn prefetch(self, prefetch: usize) -> Self {
        let most = prefetch_max(limits::WORKER_SLOTS_MAX as usize);
        self.with(|config| config.prefetch = prefetch.min(most))
    }

    /// Serves this queue. Call it once per queue; without a call, the worker serves all queues.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|config| config.queues.push(queue.into()))
    }

    /// How long the worker may be silent before its work is given to other workers; 6 seconds by default.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|config| config.lease = lease)
    }

    /// How long running handlers may take to finish when the worker is stopped; 30 seconds by default.
    pub fn drain_grace(self, grace: Duration) -> Self {
        self.with(|config| config.drain_grace = grace)
    }

    /// How long a handler may take to return after it is asked to stop, so that it can save a checkpoint; see
    /// [`Context::stopping`]. By default it is dropped at its next `await`. A lost lease allows no such time.
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Runs jobs of this type with this function; of two for the same type the later one is used. The payload
    /// is parsed as `P`: one that does not match fails permanently.
    pub fn handler<P, R, F, Running>(mut self, job_type: impl Into<String>, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Context, P) -> Running + Send + Sync + 'static,
        Running: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.worker.handlers.push(Arc::new(Typed::new(job_type.into(), handler)));
        self
    }

    /// Registers a JSON Schema for the payloads of a job type: the server rejects jobs that do not match it when they
    /// are submitted. A schema that was set with `punctual type set` stays.
    pub fn schema(mut self, job_type: impl Into<String>, schema: Value) -> Self {
        self.worker.schemas.insert(job_type.into(), schema);
        self
    }

    pub fn build(self) -> Worker {
        let WorkerBuilder { mut worker, stop_grace: grace } = self;
        if !grace.is_zero() {
            let handlers = worker.handlers.into_iter();
            worker.handlers =
                handlers.map(|handler| Arc::new(Graceful { handler, grace }) as Arc<dyn Executor>).collect();
        }
        worker
    }

    fn with(mut self, change: impl FnOnce(&mut WorkerConfig)) -> Self {
        change(&mut self.worker.config);
        self
    }
}
