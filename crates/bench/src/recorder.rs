//! A handler that does nothing but tell when it was started.

use crate::pipe::{MachineMoment, RecordedStart, Tell};
use punctual_core::ports::{Clock, ExecutionContext, Executor, Outcome, Task};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

pub const JOB_TYPE: &str = "bench";

pub struct StartRecorder {
    pub clock: Arc<dyn Clock>,
    pub tell: UnboundedSender<Tell>,
}

impl Executor for StartRecorder {
    fn job_types(&self) -> Vec<String> {
        vec![JOB_TYPE.to_owned()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let (clock, tell) = (self.clock.clone(), self.tell.clone());
        Box::pin(async move {
            let start = RecordedStart {
                job: context.assignment.execution.occurrence.job,
                nominal_us: context.assignment.scheduled_time.as_micros(),
                started_us: clock.wall().as_micros(),
                at: MachineMoment::now(),
            };
            // Nobody listens any more when the benchmark was broken off.
            let _ = tell.send(Tell::Started(start));
            Outcome::Succeeded { result: None }
        })
    }
}
