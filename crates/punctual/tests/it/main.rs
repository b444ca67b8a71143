//! Tests of the binary from outside: its HTTP API, its command line, and its state after it was killed.
//!
//! Every case starts the real binary on a fresh data directory and a free port.

mod api;
mod autoscaling;
mod backup;
mod bad_control;
mod bad_input;
mod bench;
mod cli;
mod cli_terminal;
mod cli_words;
mod clock;
#[cfg(feature = "postgres")]
mod cluster;
mod config;
mod containment;
mod control;
#[cfg(all(feature = "postgres", feature = "mysql"))]
mod coordination;
#[cfg(all(feature = "postgres", feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod coordination_services;
mod counted;
mod damaged;
#[cfg(feature = "postgres")]
mod database_away;
mod dead_letters;
mod demo;
#[cfg(all(feature = "postgres", feature = "mysql"))]
mod denied;
mod dependencies;
mod depth;
mod doctor;
mod documents;
mod driven;
mod events;
mod executions;
mod exit_codes;
mod expiry;
mod explain;
mod first_run;
mod follow;
mod full_disk;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod galera;
mod generated;
mod graceful;
#[cfg(all(feature = "postgres", feature = "http"))]
mod hooks;
#[cfg(feature = "http")]
mod http;
mod keys;
mod kill;
mod lifecycle;
mod limits;
#[cfg(feature = "postgres")]
mod load;
mod log_limit;
mod metrics;
#[cfg(feature = "postgres")]
mod migrate_data;
mod notes;
mod openapi;
mod overlap;
mod pages;
mod passed_over;
mod power;
#[cfg(feature = "postgres")]
mod private;
mod process;
#[cfg(feature = "postgres")]
mod promotion;
mod queue_limits;
mod queues;
mod raw;
mod redact;
#[cfg(feature = "postgres")]
mod replica;
mod restart;
mod roles;
mod scenarios;
#[cfg(feature = "postgres")]
mod segments;
mod server;
mod slips;
mod slow_connections;
mod small_disk;
mod terminal;
#[cfg(feature = "top")]
mod top;
mod update;
mod waiting;
mod worker_health;
#[cfg(feature = "postgres")]
mod worker_loss;
mod worker_orders;
mod worker_protocol;
