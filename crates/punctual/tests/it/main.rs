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
mod driven;
mod expiry;
mod explain;
mod full_disk;
mod graceful;
#[cfg(feature = "http")]
mod http;
mod keys;
mod kill;
mod lifecycle;
mod overlap;
mod power;
mod process;
mod queues;
mod redact;
mod restart;
mod scenarios;
mod server;
mod update;
mod worker_protocol;
