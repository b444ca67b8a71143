//! Gates: the reasons why a live execution may not be claimed yet. An execution is claimable when none is
//! closed.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One reason to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The backoff of a retry has not passed.
    Time = 1,
    /// A job it depends on has not succeeded.
    Dependency = 2,
    /// An earlier occurrence of the same job is still open.
    Overlap = 4,
    /// A concurrency limit is reached.
    Concurrency = 8,
    /// Its job is paused.
    Paused = 16,
}

impl Gate {
    pub const ALL: [Gate; 5] = [Gate::Time, Gate::Dependency, Gate::Overlap, Gate::Concurrency, Gate::Paused];

    pub const fn name(self) -> &'static str {
        match self {
            Gate::Time => "time",
            Gate::Dependency => "dependency",
            Gate::Overlap => "overlap",
            Gate::Concurrency => "concurrency",
            Gate::Paused => "paused",
        }
    }
}

/// The closed gates of an execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gates(u8);

impl Gates {
    pub const NONE: Gates = Gates(0);
    const MASK: u8 = 0b1_1111;

    pub const fn only(gate: Gate) -> Self {
        Gates(gate as u8)
    }

    /// The set with these bits; `None` if a bit names no gate.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::MASK == 0 { Some(Gates(bits)) } else { None }
    }

    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn contains(self, gate: Gate) -> bool {
        self.0 & gate as u8 != 0
    }

    pub const fn with(self, gate: Gate) -> Self {
        Gates(self.0 | gate as u8)
    }

    pub const fn without(self, gate: Gate) -> Self {
        Gates(self.0 & !(gate as u8))
    }

    pub fn iter(self) -> impl Iterator<Item = Gate> {
        Gate::ALL.into_iter().filter(move |gate| self.contains(*gate))
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Gate::name)).finish()
    }
}
