//! The report of a run: with a timeline for people, as JSON for programs.

use crate::checker::{Availability, CheckVerdict, CheckedRule, Counted, RuleViolation};
use crate::lateness::{FirstStart, Recovery, StartLateness, recoveries, starts};
use crate::nemesis::InjectedFault;
use crate::observed::Observed;
use crate::plan::{DATABASE, FaultKind, ProcessTopology};
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The width of the timeline in characters.
const COLUMNS: usize = 100;
/// Violations of one rule that are printed; JSON contains all of them.
const SHOWN_MAX: usize = 5;

#[derive(Debug, Serialize)]
pub struct ChaosReport {
    pub store: String,
    pub seed: u64,
    pub topology: ProcessTopology,
    pub lasted_secs: f64,
    /// From the end of the last fault until all jobs were finished.
    pub settled_secs: Option<f64>,
    pub has_passed: bool,
    pub counted: Counted,
    pub violations: Vec<RuleViolation>,
    pub availability: Availability,
    pub availability_percent: f64,
    pub lateness: StartLateness,
    /// For starts due without a fault at that time or shortly before.
    pub lateness_in_calm: StartLateness,
    pub recoveries: Vec<Recovery>,
    pub faults: Vec<InjectedFault>,
    /// Processes that were restarted because they had ended, which is correct when their database is
    /// unavailable at their start.
    pub restarts: usize,
    #[serde(skip)]
    timeline: Timeline,
}

/// Parameters of the run, besides the observations.
pub struct RunParameters {
    pub store: String,
    pub seed: u64,
    pub topology: ProcessTopology,
    pub from: Timestamp,
    pub lasted: Duration,
    pub settled: Option<Duration>,
}

impl ChaosReport {
    pub fn new(about: RunParameters, observed: &Observed, verdict: CheckVerdict) -> Self {
        let starts = starts(observed);
        let calm = starts.iter().filter(|start| is_calm(start, &observed.faults));
        let availability = crate::checker::availability(observed);
        ChaosReport {
            has_passed: verdict.violations.is_empty(),
            lasted_secs: about.lasted.as_secs_f64(),
            settled_secs: about.settled.map(|settled| settled.as_secs_f64()),
            availability_percent: availability.per_mille() / 10.0,
            availability,
            lateness: StartLateness::of(starts.iter().map(|start| start.late)),
            lateness_in_calm: StartLateness::of(calm.map(|start| start.late)),
            recoveries: recoveries(&observed.faults, &starts),
            timeline: Timeline::new(&about, observed, &starts),
            faults: observed.faults.clone(),
            restarts: observed.unordered_ends.len(),
            counted: verdict.counted,
            violations: verdict.violations,
            store: about.store,
            seed: about.seed,
            topology: about.topology,
        }
    }
}

fn is_calm(start: &FirstStart, faults: &[InjectedFault]) -> bool {
    const AFTERMATH: Duration = Duration::from_secs(10);
    !faults.iter().any(|fault| fault.from <= start.due && start.due <= fault.until.plus(AFTERMATH))
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessTopology { schedulers, apis, workers } = self.topology;
        writeln!(
            f,
            "\nchaos on {}, seed {}: {schedulers} schedulers, {apis} API nodes, {workers} workers, {:.0} s, {} faults",
            self.store,
            self.seed,
            self.lasted_secs,
            self.faults.len()
        )?;
        writeln!(f, "\n{}", self.timeline)?;
        let Counted { jobs, occurrences_due, fired, skipped_for_overlap, attempts, .. } = self.counted;
        writeln!(
            f,
            "jobs          {jobs}, {occurrences_due} occurrences due: {fired} fired, {skipped_for_overlap} skipped for overlap"
        )?;
        let Counted { lost_attempts, failed_attempts, runs, overlaps_of_paused_workers, .. } = self.counted;
        writeln!(
            f,
            "attempts      {attempts}, of them {lost_attempts} lost and {failed_attempts} failed; {runs} runs in the record, \
             {overlaps_of_paused_workers} of paused workers beside a later one"
        )?;
        writeln!(
            f,
            "submissions   {} unanswered, none stored twice unless reported below",
            self.counted.submissions_unanswered
        )?;
        let Counted { notifications_due, notifications, notification_tries, .. } = self.counted;
        writeln!(
            f,
            "messages      {notifications} arrived in {notification_tries} tries, about {notifications_due} failures and jobs \
             that did not run"
        )?;
        writeln!(
            f,
            "availability  {}; database down {:.1} s",
            self.availability, self.availability.database_down_secs
        )?;
        for (name, lateness) in [("lateness", &self.lateness), ("  in calm", &self.lateness_in_calm)] {
            let StartLateness { count, p50_ms, p90_ms, p99_ms, max_ms, late } = lateness;
            writeln!(
                f,
                "{name:13} p50 {p50_ms} ms, p90 {p90_ms} ms, p99 {p99_ms} ms, max {max_ms} ms; {late} of {count} over 1 s"
            )?;
        }
        for Recovery { kind, count, unnoticed, median_secs, longest_secs } in &self.recoveries {
            writeln!(
                f,
                "  {:20} {count:3} times, {unnoticed:3} unnoticed, else last late start after {median_secs} s (longest {longest_secs} s)",
                kind.word()
            )?;
        }
        match self.settled_secs {
            Some(settled) => {
                writeln!(f, "settled       everything at its end {settled:.1} s after the plan's")?
            }
            None => writeln!(f, "settled       never")?,
        }
        self.fmt_verdict(f)
    }
}

impl ChaosReport {
    fn fmt_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_passed {
            return writeln!(f, "PASSED: 0 missed, 0 extra, 0 doubled, 0 stale, 0 lost");
        }
        writeln!(f, "FAILED: {} violations", self.violations.len())?;
        let mut by_rule: BTreeMap<CheckedRule, Vec<&str>> = BTreeMap::new();
        for RuleViolation { rule, what } in &self.violations {
            by_rule.entry(*rule).or_default().push(what);
        }
        for (rule, all) in by_rule {
            writeln!(f, "  {rule:?}, {} times", all.len())?;
            for what in all.iter().take(SHOWN_MAX) {
                writeln!(f, "    {what}")?;
            }
            if all.len() > SHOWN_MAX {
                writeln!(f, "    … the others with -o json")?;
            }
        }
        Ok(())
    }
}

/// Faults by target, and lateness above them; each column is a slice of the run.
#[derive(Debug)]
struct Timeline {
    slice: Duration,
    /// The latest start among those due in each slice.
    late: Vec<Option<Duration>>,
    rows: BTreeMap<String, Vec<char>>,
}

impl Timeline {
    fn new(about: &RunParameters, observed: &Observed, starts: &[FirstStart]) -> Self {
        let slice = (about.lasted / COLUMNS as u32).max(Duration::from_millis(1));
        let column = |at: Timestamp| {
            let column = at.since(about.from).as_secs_f64() / slice.as_secs_f64();
            (column as usize).min(COLUMNS - 1)
        };
        let mut late = vec![None; COLUMNS];
        for start in starts {
            let slot = &mut late[column(start.due)];
            *slot = (*slot).max(Some(start.late));
        }
        let names = about.topology.members().into_iter().map(|(_, name)| name);
        let mut rows: BTreeMap<String, Vec<char>> =
            names.chain([DATABASE.to_owned()]).map(|name| (name, vec!['·'; COLUMNS])).collect();
        for fault in &observed.faults {
            let Some(row) = rows.get_mut(&fault.target) else { continue };
            row[column(fault.from)..=column(fault.until)].fill(fault.kind.letter());
        }
        Timeline { slice, late, rows }
    }
}

/// A character for the lateness: one step for every factor of about three.
fn mark(late: Option<Duration>) -> char {
    const STEPS: [(u64, char); 8] = [
        (30, '▁'),
        (100, '▂'),
        (300, '▃'),
        (1_000, '▄'),
        (3_000, '▅'),
        (10_000, '▆'),
        (30_000, '▇'),
        (u64::MAX, '█'),
    ];
    late.map_or(' ', |late| {
        let step = STEPS.iter().find(|(below_ms, _)| late.as_millis() < u128::from(*below_ms));
        step.map_or('█', |(_, mark)| *mark)
    })
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |marks: &mut dyn Iterator<Item = char>| marks.collect::<String>();
        writeln!(f, "{:12} {}", "latest start", line(&mut self.late.iter().map(|late| mark(*late))))?;
        for (name, row) in &self.rows {
            writeln!(f, "{name:12} {}", line(&mut row.iter().copied()))?;
        }
        writeln!(
            f,
            "{:12} a column is {:.1} s; ▁ under 30 ms, ▂ 100 ms, ▃ 300 ms, ▄ 1 s, ▅ 3 s, ▆ 10 s, ▇ 30 s, █ later",
            "",
            self.slice.as_secs_f64()
        )?;
        let legend: Vec<String> =
            FaultKind::ALL.iter().map(|kind| format!("{} {}", kind.letter(), kind.word())).collect();
        write!(f, "{:12} {}", "", legend.join(", "))
    }
}
