//! The types of events that are published for other systems.

use std::fmt;

/// A type of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublishedType {
    /// An execution has ended, with any status.
    ExecutionFinished,
    /// An occurrence has failed for good.
    DeadLetterAdded,
}

impl PublishedType {
    pub const ALL: [PublishedType; 2] = [PublishedType::ExecutionFinished, PublishedType::DeadLetterAdded];

    /// The type in an event.
    pub const fn full(self) -> &'static str {
        match self {
            PublishedType::ExecutionFinished => "punctual.execution.finished",
            PublishedType::DeadLetterAdded => "punctual.dead_letter.added",
        }
    }

    /// The word in settings: the type without `punctual.`.
    pub fn word(self) -> &'static str {
        self.full().trim_start_matches("punctual.")
    }

    pub fn of_word(word: &str) -> Option<Self> {
        PublishedType::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for PublishedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
