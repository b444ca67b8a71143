//! Handlers for tests and benchmarks: `noop` and `sleep`.

use punctual_core::ports::{Clock, ExecutionContext, Executor, Host, Outcome, Task};
use std::sync::Arc;
use std::time::Duration;

/// The executors that every worker has.
pub fn builtin_executors(host: &Host) -> Vec<Arc<dyn Executor>> {
    vec![Arc::new(Noop), Arc::new(SleepExecutor { clock: host.clock.clone() })]
}

/// Succeeds at once.
struct Noop;

impl Executor for Noop {
    fn job_types(&self) -> Vec<String> {
        vec!["noop".to_owned()]
    }

    fn execute(&self, _context: ExecutionContext) -> Task<Outcome> {
        Box::pin(std::future::ready(Outcome::Succeeded { result: None }))
    }
}

/// Waits for the number of milliseconds in the payload, then succeeds.
struct SleepExecutor {
    clock: Arc<dyn Clock>,
}

impl Executor for SleepExecutor {
    fn job_types(&self) -> Vec<String> {
        vec!["sleep".to_owned()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        match sleep_ms(&context.assignment.payload) {
            Some(ms) => {
                let sleep = self.clock.sleep(Duration::from_millis(ms));
                Box::pin(async move {
                    sleep.await;
                    Outcome::Succeeded { result: None }
                })
            }
            None => Box::pin(std::future::ready(Outcome::failed_for_good(
                "the payload of a sleep job must be {\"ms\": <milliseconds>}".to_owned(),
            ))),
        }
    }
}

fn sleep_ms(payload: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(payload).ok()?.get("ms")?.as_u64()
}
