//! Checks a database server as a process that uses it would: whether it is reachable, its tables are right,
//! its latency, and whether its clock agrees with this machine's.

use super::finding::Finding;
use punctual_client::host;
use punctual_config::SizeMax;
use punctual_config::output;
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{Store, StoreError};
use punctual_node::store::{self, ServerPlace, StorePlace};
use std::time::{Duration, Instant};

/// Queries that are timed; the fastest counts, because other load can only slow them down.
const ROUNDS: usize = 5;
/// Every commit waits for several responses: a higher latency is noticeable.
const ANSWER_SLOW: Duration = Duration::from_millis(10);
/// A noticeable difference between two clocks.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// A fire that is overdue by more than this was not picked up: schedulers scan every second.
const FIRE_OVERDUE: Duration = Duration::from_secs(10);

pub async fn check(place: &ServerPlace) -> Vec<Finding> {
    let host = match host::this_machine() {
        Ok(host) => host,
        Err(error) => return vec![Finding::skipped("store", format!("cannot read randomness: {error}"))],
    };
    let migration = match store::migration_status(place).await {
        Ok(migration) => migration,
        Err(error) => {
            let fix = "start the database, and give the user in store.url access and all required rights";
            return vec![Finding::failed("store", error.message, fix)];
        }
    };
    if !migration.is_done() {
        let found = format!(
            "{} has schema version {}, and this binary needs {}",
            place.url, migration.version, migration.version_known
        );
        let fix = if migration.version > migration.version_known {
            "use the newer binary that wrote it"
        } else {
            "run `punctual migrate up`; an empty database is set up by the first server"
        };
        return vec![Finding::failed("store", found, fix)];
    }
    let open = match store::open(&StorePlace::Server(Box::new(place.clone())), SizeMax::default(), &host)
        .await
    {
        Ok(open) => open,
        Err(error) => return vec![Finding::failed("store", error.message, "run `punctual migrate status`")],
    };
    let mut quickest: Option<(Duration, i64)> = None;
    for _ in 0..ROUNDS {
        let (wall, asked) = (host::wall_time(), Instant::now());
        match open.store.clock().await {
            Ok(theirs) => {
                let took = asked.elapsed();
                let ahead = theirs.as_micros() - wall.plus(took / 2).as_micros();
                if quickest.is_none_or(|(before, _)| took < before) {
                    quickest = Some((took, ahead));
                }
            }
            Err(error) => return vec![Finding::failed("store", error.to_string(), "see the database's log")],
        }
    }
    let (took, ahead) = quickest.unwrap_or_default();
    vec![distance(place, migration.version, took), clocks(ahead), schedules(&*open.store).await]
}

/// Whether due schedules are fired. Nothing else would report it: a cluster without a scheduler looks idle.
async fn schedules(store: &dyn Store) -> Finding {
    let overdue = async {
        let now = store.clock().await?;
        let first = store.due(SegmentSet::ALL, now.minus(FIRE_OVERDUE), 1).await?.into_iter().next();
        Ok::<_, StoreError>(first.map(|due| now.since(due.at)))
    };
    match overdue.await {
        Ok(None) => Finding::good("schedules", "everything due was fired"),
        Ok(Some(late)) => Finding::failed(
            "schedules",
            format!("a run has been due for {} and was not fired", output::span(late)),
            "start `punctual scheduler` or `punctual serve` on this database; if one runs, see its log",
        ),
        Err(error) => Finding::failed("schedules", error.to_string(), "see the database's log"),
    }
}

fn distance(place: &ServerPlace, version: usize, took: Duration) -> Finding {
    let micros = took.as_micros();
    let shown = if micros < 1_000 { format!("{micros}us") } else { output::span(took) };
    let found = format!("{} answers in {shown}, schema version {version}", place.url);
    if took < ANSWER_SLOW {
        return Finding::good("store", found);
    }
    Finding::warning(
        "store",
        found,
        "run servers close to their database: every commit needs several round trips",
    )
}

fn clocks(ahead_us: i64) -> Finding {
    let difference = Duration::from_micros(ahead_us.unsigned_abs());
    let word = if ahead_us < 0 { "behind" } else { "ahead of" };
    let found = format!("the database's clock is {} {word} this machine's", output::span(difference));
    if difference < CLOCK_DIFFERENCE {
        return Finding::good("store's clock", found);
    }
    let fix = "schedules use the database's clock: synchronize it and this machine's with NTP";
    Finding::warning("store's clock", found, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn clocks_that_differ_by_a_second_are_told() {
        assert_eq!([-999_999, 0, 999_999].map(|ahead| clocks(ahead).level), [Severity::Good; 3]);
        let behind = clocks(-2_000_000);
        assert_eq!(behind.level, Severity::Warning);
        assert!(behind.found.contains("2s behind this machine's"), "{}", behind.found);
        assert!(clocks(2_000_000).found.contains("2s ahead of this machine's"));
    }
}
