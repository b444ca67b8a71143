//! Which events a server logs: a level, also by module.

use crate::value::{Raw, Value};
use tracing_subscriber::filter::Targets;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A level, or levels by module.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLevels {
    text: String,
    targets: Targets,
}

impl LogLevels {
    /// The filter of events.
    pub const fn targets(&self) -> &Targets {
        &self.targets
    }
}

impl Value for LogLevels {
    fn kind() -> String {
        format!("one of {}, also by module, such as info,punctual_engine=debug", LEVELS.join(", "))
    }

    fn placeholder() -> String {
        "LEVEL".to_owned()
    }

    /// A single word that is not a level would be taken for a module, and silence the rest.
    fn read(raw: &Raw) -> Result<Self, String> {
        let is_known =
            |part: &&str| part.contains('=') || LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
        let wrong = || format!("must be {}", LogLevels::kind());
        let text = raw.text().ok_or_else(wrong)?;
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let targets = parts.join(",").parse().ok().filter(|_| parts.iter().all(is_known));
        Ok(LogLevels { text: text.to_owned(), targets: targets.ok_or_else(wrong)? })
    }

    fn written(&self) -> serde_json::Value {
        self.text.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter;

    #[test]
    fn levels_are_words_of_a_fixed_set() {
        for good in ["info", "WARN", "off", "info,punctual_engine=debug", "punctual_store=trace"] {
            assert_eq!(LogLevels::read(&Raw::word(good)).unwrap().written(), good);
        }
        for bad in ["loud", "", "info,loud", "punctual_engine=loud"] {
            assert!(LogLevels::read(&Raw::word(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn modules_have_levels_of_their_own_and_others_the_one_without_a_module() {
        let level = |text: &str, module: &str| {
            let level = LogLevels::read(&Raw::word(text)).unwrap();
            let levels = [LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG];
            let enabled = levels.into_iter().rev().find(|filter| {
                filter.into_level().is_some_and(|wanted| level.targets().would_enable(module, &wanted))
            });
            enabled.unwrap_or(LevelFilter::OFF)
        };
        let text = "WARN, punctual_engine=debug,punctual_engine::loops=off";
        assert_eq!(level(text, "punctual_api"), LevelFilter::WARN);
        assert_eq!(level(text, "punctual_engine::desk"), LevelFilter::DEBUG);
        assert_eq!(level(text, "punctual_engine::loops::fire"), LevelFilter::OFF);
        assert_eq!(level("punctual_store=trace", "punctual_api"), LevelFilter::OFF);
    }
}
