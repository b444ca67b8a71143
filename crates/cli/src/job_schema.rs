//! `punctual schema`: the JSON Schema of files of jobs.

use punctual_config::exit::Exit;
use punctual_config::output::print_raw;

/// Generated from the wire types by a test in `punctual-api`.
const SCHEMA: &str = include_str!("../../../docs/reference/jobs.schema.json");

pub fn run() -> anyhow::Result<Exit> {
    print_raw(SCHEMA)?;
    Ok(Exit::Done)
}
