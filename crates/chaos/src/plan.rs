//! Which faults to cause, and when: chosen by a seed, or in a fixed order that contains every kind. Pure, so
//! that the same seed always makes the same plan, whatever the cluster does.

use crate::chance::Chance;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Scheduler,
    Api,
    Worker,
}

impl Role {
    pub const fn word(self) -> &'static str {
        match self {
            Role::Scheduler => "scheduler",
            Role::Api => "api",
            Role::Worker => "worker",
        }
    }
}

/// How many processes of each role there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProcessTopology {
    pub schedulers: usize,
    pub apis: usize,
    pub workers: usize,
}

impl ProcessTopology {
    /// Every process by its name, such as `worker-2`.
    pub fn members(self) -> Vec<(Role, String)> {
        let roles =
            [(Role::Scheduler, self.schedulers), (Role::Api, self.apis), (Role::Worker, self.workers)];
        roles
            .into_iter()
            .flat_map(|(role, count)| {
                (1..=count).map(move |number| (role, format!("{}-{number}", role.word())))
            })
            .collect()
    }
}

/// The only target that is not a process of ours.
pub const DATABASE: &str = "database";

/// The kinds of faults of a process or of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// `kill -9`, and restarted after a while.
    Kill,
    /// SIGSTOP, and SIGCONT after more than a lease.
    Pause,
    /// Its connections to the database are closed, and new ones are refused.
    CutOff,
    /// Nothing passes to or from the database, and connections stay open.
    BlackHole,
    /// Its messages do not reach the database.
    RequestsLost,
    /// The database's responses do not arrive.
    AnswersLost,
    /// All traffic between it and the database is delayed.
    Slow,
    /// Client connections to an API node are closed, and new ones are refused.
    ClientsCutOff,
    /// Nothing passes between clients and an API node, and connections stay open.
    ClientsBlackHole,
    /// Its wall clock is set to another time; its monotonic clock continues.
    Clock,
    /// The database server ends as in a power failure, and is restarted.
    DatabaseKill,
    /// The database server is stopped and started as an operator does.
    DatabaseRestart,
}

impl FaultKind {
    pub const ALL: [FaultKind; 12] = [
        FaultKind::Kill,
        FaultKind::Pause,
        FaultKind::CutOff,
        FaultKind::BlackHole,
        FaultKind::RequestsLost,
        FaultKind::AnswersLost,
        FaultKind::Slow,
        FaultKind::ClientsCutOff,
        FaultKind::ClientsBlackHole,
        FaultKind::Clock,
        FaultKind::DatabaseKill,
        FaultKind::DatabaseRestart,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill -9",
            FaultKind::Pause => "pause",
            FaultKind::CutOff => "cut off",
            FaultKind::BlackHole => "black hole",
            FaultKind::RequestsLost => "requests lost",
            FaultKind::AnswersLost => "answers lost",
            FaultKind::Slow => "slow",
            FaultKind::ClientsCutOff => "clients cut off",
            FaultKind::ClientsBlackHole => "clients' black hole",
            FaultKind::Clock => "clock",
            FaultKind::DatabaseKill => "database kill -9",
            FaultKind::DatabaseRestart => "database restart",
        }
    }

    /// One letter for the timeline.
    pub const fn letter(self) -> char {
        match self {
            FaultKind::Kill => 'K',
            FaultKind::Pause => 'P',
            FaultKind::CutOff => 'X',
            FaultKind::BlackHole => 'B',
            FaultKind::RequestsLost => 'Q',
            FaultKind::AnswersLost => 'A',
            FaultKind::Slow => 'S',
            FaultKind::ClientsCutOff => 'x',
            FaultKind::ClientsBlackHole => 'b',
            FaultKind::Clock => 'C',
            FaultKind::DatabaseKill => 'K',
            FaultKind::DatabaseRestart => 'R',
        }
    }

    const fn is_of_database(self) -> bool {
        matches!(self, FaultKind::DatabaseKill | FaultKind::DatabaseRestart)
    }

    const fn is_of_clients(self) -> bool {
        matches!(self, FaultKind::ClientsCutOff | FaultKind::ClientsBlackHole)
    }

    /// Its relative frequency: processes die and stall more often than databases.
    const fn weight(self) -> u64 {
        match self {
            FaultKind::Kill => 6,
            FaultKind::Pause => 5,
            FaultKind::CutOff | FaultKind::BlackHole | FaultKind::Clock => 3,
            FaultKind::RequestsLost | FaultKind::AnswersLost | FaultKind::Slow => 2,
            FaultKind::ClientsCutOff | FaultKind::ClientsBlackHole => 1,
            FaultKind::DatabaseKill | FaultKind::DatabaseRestart => 1,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One fault, which is undone afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedFault {
    /// From the beginning of the plan.
    pub at: Duration,
    pub lasts: Duration,
    pub kind: FaultKind,
    /// A process, or [`DATABASE`].
    pub target: String,
    /// For a delay, the milliseconds added to each message; for a clock, its offset in seconds.
    pub amount: i64,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{at:7.1} s  {:12} {:20} for {lasts:.1} s", self.target, self.kind.word())?;
        match self.kind {
            FaultKind::Slow => write!(f, ", {} ms", self.amount),
            FaultKind::Clock => write!(f, ", {:+} s", self.amount),
            _ => Ok(()),
        }
    }
}

/// The minimum time between the starts of two faults.
const GAP_MIN: Duration = Duration::from_millis(500);
const GAP_MAX: Duration = Duration::from_secs(4);
/// Concurrent faults.
const AT_ONCE_MAX: usize = 4;
/// The minimum time without faults before the next fault of a target, so that a restarted process gets to do
/// something.
const SETTLE: Duration = Duration::from_secs(3);
/// The time without faults at the end of the plan.
const CALM_AT_END: Duration = Duration::from_secs(5);
/// Clock offsets in seconds, to either side.
const CLOCK_OFFSETS: [i64; 6] = [1, 3, 30, 300, 3_600, 86_400];
/// Delays of each message in milliseconds.
const DELAYS_MS: [i64; 4] = [20, 50, 150, 400];
/// Tries to place one fault before the plan continues without it.
const PLACES_TRIED_MAX: usize = 50;

/// All planned faults, by start time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultPlan {
    pub faults: Vec<PlannedFault>,
    pub lasts: Duration,
}

/// The parameters of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest {
    pub topology: ProcessTopology,
    pub lasts: Duration,
    /// The lease of workers: a pause that matters is longer.
    pub lease: Duration,
}

impl FaultPlan {
    /// Random faults. At least one API node always stays healthy, so that clients can reach one; all
    /// schedulers or all workers may be hit at the same time.
    pub fn random(seed: u64, request: &PlanRequest) -> Self {
        let mut chance = Chance::new(seed);
        let mut faults: Vec<PlannedFault> = Vec::new();
        let mut at = Duration::from_secs(1);
        while at + CALM_AT_END < request.lasts {
            let placed = (0..PLACES_TRIED_MAX)
                .map(|_| drawn(&mut chance, at, request))
                .find(|fault| is_possible(fault, &faults, request));
            faults.extend(placed);
            at += chance.between(GAP_MIN, GAP_MAX);
        }
        FaultPlan { faults, lasts: request.lasts }
    }

    /// Every kind of fault once, on alternating targets, several at a time.
    pub fn ordered(request: &PlanRequest) -> Self {
        let beyond_lease = request.lease * 2;
        let brief = Duration::from_secs(2);
        let order = [
            (FaultKind::Kill, "scheduler-1", brief, 0),
            (FaultKind::Pause, "worker-1", beyond_lease, 0),
            (FaultKind::ClientsCutOff, "api-1", brief, 0),
            (FaultKind::Clock, "scheduler-2", beyond_lease, 300),
            (FaultKind::Kill, "worker-2", brief, 0),
            (FaultKind::BlackHole, "api-2", beyond_lease, 0),
            (FaultKind::DatabaseKill, DATABASE, Duration::from_secs(1), 0),
            (FaultKind::Clock, "worker-1", beyond_lease, -300),
            (FaultKind::CutOff, "scheduler-1", brief, 0),
            (FaultKind::AnswersLost, "worker-2", beyond_lease, 0),
            (FaultKind::Kill, "api-1", brief, 0),
            (FaultKind::Pause, "scheduler-2", beyond_lease, 0),
            (FaultKind::RequestsLost, "scheduler-1", beyond_lease, 0),
            (FaultKind::Slow, "worker-1", beyond_lease, 100),
            (FaultKind::ClientsBlackHole, "api-2", brief, 0),
            (FaultKind::DatabaseRestart, DATABASE, Duration::from_secs(1), 0),
        ];
        let gap = Duration::from_millis(1_500);
        let faults: Vec<PlannedFault> = (0..)
            .zip(order)
            .map(|(index, (kind, target, lasts, amount))| PlannedFault {
                at: Duration::from_secs(1) + gap * index,
                lasts,
                kind,
                target: target.to_owned(),
                amount,
            })
            .collect();
        let end = faults.iter().map(|fault| fault.at + fault.lasts).max().unwrap_or_default();
        FaultPlan { faults, lasts: end + CALM_AT_END }
    }
}

fn drawn(chance: &mut Chance, at: Duration, request: &PlanRequest) -> PlannedFault {
    let weights: u64 = FaultKind::ALL.iter().map(|kind| kind.weight()).sum();
    let mut left = chance.below(weights);
    let kind = *FaultKind::ALL
        .iter()
        .find(|kind| match left.checked_sub(kind.weight()) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
        .expect("the weights add up");
    let seconds = Duration::from_secs_f64;
    let lasts = match kind {
        // Sometimes shorter than a lease: a worker that returns in time must continue.
        FaultKind::Pause => chance.between(request.lease / 3, request.lease * 2),
        FaultKind::DatabaseKill | FaultKind::DatabaseRestart => chance.between(seconds(0.2), seconds(4.0)),
        _ => chance.between(seconds(0.5), request.lease * 2),
    };
    let members = request.topology.members();
    let target = match kind {
        _ if kind.is_of_database() => DATABASE.to_owned(),
        _ if kind.is_of_clients() => {
            let apis: Vec<_> = members.iter().filter(|(role, _)| *role == Role::Api).collect();
            chance.of(&apis).1.clone()
        }
        _ => chance.of(&members).1.clone(),
    };
    let sign = [1, -1][usize::from(chance.below(2) == 0)];
    let amount = match kind {
        FaultKind::Slow => *chance.of(&DELAYS_MS),
        FaultKind::Clock => sign * *chance.of(&CLOCK_OFFSETS),
        _ => 0,
    };
    PlannedFault { at, lasts, kind, target, amount }
}

fn is_possible(fault: &PlannedFault, before: &[PlannedFault], request: &PlanRequest) -> bool {
    let is_api = |target: &str| target.starts_with(Role::Api.word());
    let is_free = |target: &str| {
        !before.iter().any(|other| other.target == target && fault.at < other.at + other.lasts + SETTLE)
    };
    let at_once = before.iter().filter(|other| fault.at < other.at + other.lasts).count();
    let leaves_an_api = !is_api(&fault.target)
        || request
            .topology
            .members()
            .iter()
            .any(|(role, name)| *role == Role::Api && *name != fault.target && is_free(name));
    is_free(&fault.target)
        && at_once < AT_ONCE_MAX
        && leaves_an_api
        && fault.at + fault.lasts + CALM_AT_END <= request.lasts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn request() -> PlanRequest {
        let topology = ProcessTopology { schedulers: 3, apis: 2, workers: 4 };
        PlanRequest { topology, lasts: Duration::from_secs(600), lease: Duration::from_secs(6) }
    }

    #[test]
    fn a_seed_always_makes_the_same_plan() {
        assert_eq!(FaultPlan::random(7, &request()), FaultPlan::random(7, &request()));
        assert_ne!(FaultPlan::random(7, &request()), FaultPlan::random(8, &request()));
    }

    #[test]
    fn a_plan_keeps_one_api_node_healthy_and_ends_in_time() {
        for seed in 0..50 {
            let plan = FaultPlan::random(seed, &request());
            assert!(plan.faults.len() > 100, "seed {seed}: {}", plan.faults.len());
            for fault in &plan.faults {
                assert!(fault.at + fault.lasts < plan.lasts);
                let during = plan.faults.iter().filter(|other| {
                    other.target.starts_with("api")
                        && other.at <= fault.at
                        && fault.at < other.at + other.lasts
                });
                assert!(during.count() < 2, "seed {seed}: all API nodes at once, at {fault}");
            }
        }
    }

    #[test]
    fn ten_minutes_have_every_kind_of_fault_and_several_at_a_time() {
        let plan = FaultPlan::random(1, &request());
        let kinds: BTreeSet<_> = plan.faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), FaultKind::ALL.len(), "{kinds:?}");
        let is_beside =
            |one: &PlannedFault, other: &PlannedFault| one.at < other.at && other.at < one.at + one.lasts;
        assert!(plan.faults.windows(2).any(|pair| is_beside(&pair[0], &pair[1])));
    }

    #[test]
    fn the_fixed_order_has_every_kind_and_meets_no_target_twice_at_once() {
        let topology = ProcessTopology { schedulers: 2, apis: 2, workers: 2 };
        let plan = FaultPlan::ordered(&PlanRequest {
            topology,
            lasts: Duration::ZERO,
            lease: Duration::from_secs(2),
        });
        let kinds: BTreeSet<_> = plan.faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), FaultKind::ALL.len());
        let names: Vec<String> = topology.members().into_iter().map(|(_, name)| name).collect();
        for (index, fault) in plan.faults.iter().enumerate() {
            assert!(fault.target == DATABASE || names.contains(&fault.target));
            let mut before = plan.faults[..index].iter();
            assert!(
                !before.any(|other| other.target == fault.target && fault.at < other.at + other.lasts),
                "{fault} comes too early"
            );
        }
    }
}
