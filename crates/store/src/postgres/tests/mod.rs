//! Tests of this adapter: the conformance suite, and tests that only PostgreSQL can run. Tests that all
//! server stores share are in `server/tests`, and are compiled once for each store.

#[path = "../../server/tests/alike.rs"]
mod alike;
#[path = "../../server/tests/baseline.rs"]
mod baseline;
mod claim_cursors;
mod conflicts;
#[path = "../../server/tests/conformance.rs"]
mod conformance;
mod contention;
#[path = "../../server/tests/counter_mismatch.rs"]
mod counter_mismatch;
pub(crate) mod database;
mod dialect;
mod faults;
#[path = "../../server/tests/fixture.rs"]
mod fixture;
mod hosts;
pub(crate) mod integrity;
#[path = "../../server/tests/log_lines.rs"]
mod log_lines;
mod log_quota;
#[path = "../../server/tests/malformed_rows.rs"]
mod malformed_rows;
#[path = "../../server/tests/membership.rs"]
mod membership;
mod migrations;
#[path = "../../server/tests/nodes.rs"]
mod nodes;
mod notifications;
mod open_transactions;
mod partitioning;
mod plans;
mod proxy;
#[path = "../../server/tests/reading.rs"]
mod reading;
mod replica;
mod restarts;
#[path = "../../server/tests/round_trips.rs"]
mod round_trips;
mod security;
#[path = "../../server/tests/unused.rs"]
mod unused;
mod waiting;
mod write_plans;
