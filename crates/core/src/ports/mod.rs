//! What the rules ask of the world. Only the binary and the simulator name concrete adapters.

mod executor;
mod host;
mod store;
mod worker;

pub use executor::{ExecutionContext, Executor, LogSink, Outcome, Stop, StopSignal};
pub use host::{Clock, DrivenClock, Host, Random, Spawn, Task};
pub use store::*;
pub use worker::*;
