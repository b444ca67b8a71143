//! The loops. Each goes round until it is dropped, and each round is complete in itself.

mod clock;
mod dispatch;
mod fire;
mod recover;
mod resolve;
mod retain;

pub(crate) use clock::keep_time;
pub(crate) use dispatch::dispatch;
pub(crate) use fire::fire;
pub(crate) use recover::recover;
pub(crate) use resolve::resolve;
pub(crate) use retain::retain;
