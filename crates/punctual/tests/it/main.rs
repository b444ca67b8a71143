//! The binary from outside: its HTTP API, its command line, and what is left after it was killed.
//!
//! Every case starts the real binary on a fresh data directory and a free port.

mod api;
mod bad_control;
mod bad_input;
mod bench;
mod cli;
mod cli_words;
mod clock;
mod control;
mod dead_letters;
mod dependencies;
mod depth;
mod driven;
mod events;
mod expiry;
mod explain;
mod follow;
mod full_disk;
#[cfg(feature = "http")]
mod http;
mod keys;
mod kill;
mod lifecycle;
mod notes;
mod metrics;
mod overlap;
mod process;
mod queues;
mod redact;
mod restart;
mod server;
mod update;
mod worker_orders;
mod worker_protocol;
