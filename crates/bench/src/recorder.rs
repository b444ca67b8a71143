//! A handler that only reports when it was started.

use crate::pipe::{MachineMoment, NodeMessage, RecordedStart};
use punctual_core::ports::{Clock, ExecutionContext, Executor, Outcome, Task};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

pub const JOB_TYPE: &str = "bench";

pub struct StartRecorder {
    pub clock: Arc<dyn Clock>,
    pub sender: UnboundedSender<NodeMessage>,
}

impl Executor for StartRecorder {
    fn job_types(&self) -> Vec<String> {
        vec![JOB_TYPE.to_owned()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let (clock, sender) = (self.clock.clone(), self.sender.clone());
        Box::pin(async move {
            let start = RecordedStart {
                job: context.assignment.execution.occurrence.job,
                nominal_us: context.assignment.scheduled_time.as_micros(),
                started_us: clock.wall().as_micros(),
                at: MachineMoment::now(),
            };
            // The receiver is gone if the benchmark was interrupted.
            let _ = sender.send(NodeMessage::Started(start));
            Outcome::Succeeded { result: None }
        })
    }
}
