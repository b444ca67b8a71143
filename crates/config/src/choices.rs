//! Setting values that are one of a few words.

use crate::value::choice;
use punctual_shim::containment::ContainmentMode;
use punctual_shim::sandbox::IsolationMode;

/// The clock of schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ClockKind {
    System,
    Manual,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Who needs a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientAuth {
    All,
    Workers,
}

choice!(ClientAuth, ClockKind, LogFormat, ContainmentMode, IsolationMode);
