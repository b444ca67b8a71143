//! Shared by the stores on database servers: everything but connections and SQL. It must not know a driver;
//! `postgres/` and `mysql/` are its dialects.

pub(crate) mod asks;
pub(crate) mod changes;
pub(crate) mod connection;
pub(crate) mod counter_mismatch;
pub(crate) mod export;
pub(crate) mod loaded;
pub(crate) mod log_quota;
pub(crate) mod logs;
pub(crate) mod maintenance;
pub(crate) mod malformed;
pub(crate) mod membership;
pub(crate) mod migrations;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod partitions;
pub(crate) mod queue_check;
pub(crate) mod unused;
