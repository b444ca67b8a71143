//! Seeds that every change runs: no rule is broken, and what they are meant to provoke does happen.

use punctual_sim::{Coverage, Options, simulate};
use std::ops::Range;

/// Runs the seeds and returns how often the interesting things happened.
#[track_caller]
fn check(seeds: Range<u64>) -> Coverage {
    let mut coverage = Coverage::new();
    for seed in seeds {
        let outcome = simulate(Options::seed(seed));
        assert!(outcome.violation.is_none(), "\n{outcome}");
        for (what, count) in outcome.coverage {
            *coverage.entry(what).or_default() += count;
        }
    }
    coverage
}

#[test]
fn seeds_from_0_are_sound() {
    check(0..40);
}

#[test]
fn seeds_from_40_are_sound() {
    check(40..80);
}

#[test]
fn seeds_from_80_are_sound() {
    check(80..120);
}

#[test]
fn seeds_from_120_are_sound() {
    check(120..160);
}

#[test]
fn seeds_from_160_are_sound_and_provoke_everything_they_are_meant_to() {
    let coverage = check(160..200);
    for what in [
        "answers lost",
        "batches of several writes",
        "clocks set wrong",
        "conflicts on fire",
        "conflicts on gates",
        "connections closed by the sender",
        "crashes",
        "duplicate polls refused",
        "executions given back",
        "executions lost",
        "fires and gates on time",
        "messages doubled",
        "occurrences dead",
        "occurrences skipped as missed",
        "occurrences skipped for overlap",
        "offers taken",
        "partitions",
        "pauses beyond the lease",
        "repeated reports recognised",
        "resyncs",
        "retries",
        "runs that may happen once",
        "sessions lost",
        "stale reports refused",
        "stale resyncs refused",
        "store answers lost",
        "store calls stalled",
        "submits of unknown fate",
        "workers drained",
    ] {
        assert!(coverage.contains_key(what), "no seed brought {what}: {coverage:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed: u64| {
        let outcome = simulate(Options::seed(seed));
        (outcome.hash, outcome.events, outcome.polls)
    };
    let hashes: Vec<_> = (1_000..1_012).map(run).collect();
    assert_eq!(hashes, (1_000..1_012).map(run).collect::<Vec<_>>());
    assert!(hashes.windows(2).all(|pair| pair[0].0 != pair[1].0), "seeds give different runs: {hashes:?}");
}
