//! What people do to jobs, verb by verb, from every way in which a job can stand.

mod ending;
mod house;
mod pause;
mod redrive;
mod table;
mod trigger;
mod update;
mod walk;
