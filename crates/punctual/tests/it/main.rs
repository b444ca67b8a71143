//! The binary from outside: its HTTP API, its command line, and what is left after it was killed.
//!
//! Every case starts the real binary on a fresh data directory and a free port.

mod api;
mod bad_input;
mod bench;
mod cli;
mod full_disk;
mod kill;
mod lifecycle;
mod redact;
mod server;
