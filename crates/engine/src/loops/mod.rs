//! The loops. Each runs until it is dropped, and each iteration is complete in itself. A loop that is not
//! among the node's duties ends at once.

mod admit;
mod alert;
mod audit;
mod clock;
mod cluster;
mod dispatch;
mod execution_log;
mod fire;
mod operate;
mod peers;
mod recover;
mod resolve;
mod retain;
mod retime;

pub(crate) use admit::admit;
pub(crate) use alert::alert;
pub(crate) use audit::audit;
pub(crate) use clock::keep_time;
pub(crate) use cluster::cluster;
pub(crate) use dispatch::dispatch;
pub(crate) use execution_log::log_executions;
pub(crate) use fire::fire;
pub(crate) use operate::operate;
pub(crate) use peers::{publish_hints, receive_hints, watch};
pub(crate) use recover::recover;
pub(crate) use resolve::resolve;
pub(crate) use retain::retain;
pub(crate) use retime::retime;
