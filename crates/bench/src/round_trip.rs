//! Added network latency between the measured processes and their database server.

use crate::{PlaceArgs, bad_option};
use anyhow::Context;
use punctual_client::Span;
use punctual_config::exit::CliError;
use punctual_config::output::span;
use punctual_link::{Link, NetworkFault};
use std::time::Duration;

/// A higher latency than around the earth would show nothing new.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// Checks that several processes can use the store with these latencies. Returns the address of the database server,
/// unless it has several.
pub fn check(place: &PlaceArgs, round_trips: &[Span]) -> Result<Option<String>, CliError> {
    let Some(server) = place.database_server()? else {
        return Err(bad_option(
            "--store: pass the PostgreSQL or MySQL server whose database the processes share; the embedded store is used by a \
             single process",
        ));
    };
    if let Some(long) = round_trips.iter().find(|trip| trip.get() > ROUND_TRIP_MAX) {
        return Err(bad_option(format!("--round-trip {long}: must be at most {}", span(ROUND_TRIP_MAX))));
    }
    let address = server.url.address();
    if address.is_none() && round_trips.iter().any(|trip| !trip.get().is_zero()) {
        return Err(bad_option(
            "--round-trip: added latency needs a single host with one port in --store; or measure with --round-trip 0ms",
        ));
    }
    Ok(address)
}

/// A proxy that delays each response by this much, half in each direction; `None` without latency.
pub async fn proxy(address: Option<&str>, round_trip: Duration) -> anyhow::Result<Option<Link>> {
    let Some(address) = address.filter(|_| !round_trip.is_zero()) else { return Ok(None) };
    let proxy = Link::open(address).await.context("cannot listen on 127.0.0.1")?;
    proxy.set(NetworkFault::Slow(round_trip / 2));
    Ok(Some(proxy))
}

/// The latency in words.
pub fn describe(round_trip_ms: f64) -> String {
    match round_trip_ms {
        0.0 => "no added latency".to_owned(),
        ms => format!("{ms} ms added to each response"),
    }
}
