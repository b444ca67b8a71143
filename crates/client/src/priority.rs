//! Priorities as people write them: a number from 1 to 10, or a word.

use punctual_core::job::Priority;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A parsed priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityBody(pub Priority);

impl Default for PriorityBody {
    fn default() -> Self {
        PriorityBody(Priority::DEFAULT)
    }
}

const EXPECTED: &str = "must be a number from 1 to 10, or low, medium or high";

/// The text is not a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{EXPECTED}")]
pub struct ParsePriorityError;

impl FromStr for PriorityBody {
    type Err = ParsePriorityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = match text.to_ascii_lowercase().as_str() {
            "low" => 2,
            "medium" => 5,
            "high" => 8,
            digits => digits.parse().map_err(|_| ParsePriorityError)?,
        };
        Priority::new(number).map(PriorityBody).ok_or(ParsePriorityError)
    }
}

impl Serialize for PriorityBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.0.get())
    }
}

impl<'de> Deserialize<'de> for PriorityBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriorityVisitor)
    }
}

struct PriorityVisitor;

impl de::Visitor<'_> for PriorityVisitor {
    type Value = PriorityBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 1 to 10, or low, medium or high")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<PriorityBody, E> {
        let priority = u8::try_from(number).ok().and_then(Priority::new);
        priority.map(PriorityBody).ok_or_else(|| E::custom(EXPECTED))
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<PriorityBody, E> {
        // A number in quotes is an error in a JSON body, although it is valid on a command line.
        match word.parse::<u8>() {
            Ok(_) => Err(E::custom(EXPECTED)),
            Err(_) => word.parse().map_err(E::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_priorities() {
        for (json, number) in
            [("1", 1), ("10", 10), ("\"low\"", 2), ("\"medium\"", 5), ("\"high\"", 8), ("\"HIGH\"", 8)]
        {
            assert_eq!(serde_json::from_str::<PriorityBody>(json).unwrap().0.get(), number);
        }
        for json in ["0", "11", "256", "-1", "\"7\"", "\"urgent\"", "true"] {
            assert!(serde_json::from_str::<PriorityBody>(json).is_err(), "{json}");
        }
    }
}
