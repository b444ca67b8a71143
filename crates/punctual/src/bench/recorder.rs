//! A handler that does nothing but tell when it was started.

use punctual_core::ports::{Clock, ExecutionContext, Executor, Outcome, Task};
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub const JOB_TYPE: &str = "bench";

/// One start of a handler.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub at: Instant,
    /// How long after its nominal time.
    pub late: Duration,
}

pub struct StartRecorder {
    clock: Arc<dyn Clock>,
    starts: mpsc::UnboundedSender<Start>,
}

impl StartRecorder {
    /// The handler, and where its starts arrive.
    pub fn new(clock: Arc<dyn Clock>) -> (Arc<Self>, mpsc::UnboundedReceiver<Start>) {
        let (starts, arrived) = mpsc::unbounded_channel();
        (Arc::new(StartRecorder { clock, starts }), arrived)
    }
}

impl Executor for StartRecorder {
    fn job_types(&self) -> Vec<String> {
        vec![JOB_TYPE.to_owned()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let nominal: Timestamp = context.assignment.scheduled_time;
        let (clock, starts) = (self.clock.clone(), self.starts.clone());
        Box::pin(async move {
            // Nobody listens any more when the benchmark was broken off.
            let _ = starts.send(Start { at: Instant::now(), late: clock.wall().since(nominal) });
            Outcome::Succeeded { result: None }
        })
    }
}
