//! The verbs that users apply to jobs, one by one, from every state of a job.

mod adjust;
mod ending;
mod harness;
mod pause;
mod redrive;
mod table;
mod trigger;
mod update;
mod walk;
