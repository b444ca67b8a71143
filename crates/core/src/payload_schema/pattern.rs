//! The patterns of a schema. Small texts can be large patterns: `\w{90}` compiles to megabytes.

use crate::limits;
use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct SchemaPattern {
    pub(super) text: String,
    regex: Regex,
    bytes: usize,
}

impl SchemaPattern {
    fn compile(text: &str) -> Result<Self, String> {
        let config = Config::new()
            .nfa_size_limit(Some(limits::SCHEMA_PATTERN_BYTES_MAX))
            .hybrid_cache_capacity(limits::SCHEMA_PATTERN_CACHE_BYTES)
            .which_captures(WhichCaptures::Implicit)
            .onepass(false);
        let regex = Regex::builder().configure(config).build(text).map_err(|error| fix(&error))?;
        let bytes = regex.memory_usage();
        Ok(SchemaPattern { text: text.to_owned(), regex, bytes })
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The steps of one search. In the worst case it takes time in proportion to both lengths.
    pub(super) fn steps(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul(self.bytes as u64) / limits::SCHEMA_PATTERN_BYTES_PER_STEP
    }
}

fn fix(error: &BuildError) -> String {
    match error.size_limit() {
        Some(limit) => format!(
            "is a pattern that compiles to more than {} KiB, the limit of one pattern; use smaller repetitions, or \
             [A-Za-z0-9_] in place of \\w",
            limit / 1024
        ),
        None => "must be a regular expression without look-around and back-references".to_owned(),
    }
}

/// The patterns of one schema, each compiled once, and the number of its parts.
#[derive(Debug, Default)]
pub(super) struct SchemaParts {
    patterns: BTreeMap<String, Arc<SchemaPattern>>,
    pattern_bytes: usize,
    pub(super) nodes: usize,
}

impl SchemaParts {
    pub(super) fn pattern(&mut self, text: &str) -> Result<Arc<SchemaPattern>, String> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        if self.patterns.len() >= limits::SCHEMA_PATTERNS_MAX {
            return Err(format!(
                "is one of more than {} different patterns, the limit of one schema",
                limits::SCHEMA_PATTERNS_MAX
            ));
        }
        let pattern = Arc::new(SchemaPattern::compile(text)?);
        self.pattern_bytes += pattern.bytes;
        if self.pattern_bytes > limits::SCHEMA_PATTERNS_BYTES_MAX {
            return Err(format!(
                "brings the patterns of the schema to more than {} KiB when compiled, the limit of one schema; use \
                 smaller repetitions, or [A-Za-z0-9_] in place of \\w",
                limits::SCHEMA_PATTERNS_BYTES_MAX / 1024
            ));
        }
        self.patterns.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }

    /// The memory of compiled patterns and of the caches that their searches fill.
    pub(super) fn pattern_bytes(&self) -> usize {
        self.pattern_bytes + self.patterns.len() * 2 * limits::SCHEMA_PATTERN_CACHE_BYTES
    }
}
