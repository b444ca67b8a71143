//! Removes the values of secrets from the output of handlers.

use super::unescaped::Unescaped;
use crate::limits;
use crate::notes::CUT_MARK;
use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use url::Url;

/// What stands in place of a result or checkpoint whose secrets cannot be replaced one by one.
pub(super) const REMOVED: &str = "[removed: it contained secrets]";

/// Replaces the values of secrets in texts of handlers: the value itself, its Base64, each of its lines, and the
/// host of a URL. All of them are found with and without the escapes of JSON.
pub struct Redactor {
    needles: Vec<Needle>,
    /// Finds all needles in one pass, however many they are.
    automaton: NFA,
}

struct Needle {
    text: String,
    mark: String,
}

/// A part of a text, and what stands in its place.
type FoundValue<'a> = (Range<usize>, &'a str);

/// Without the values.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks: BTreeSet<&str> = self.needles.iter().map(|needle| needle.mark.as_str()).collect();
        f.debug_tuple("Redactor").field(&marks).finish()
    }
}

impl Redactor {
    /// For secrets with these names and values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut values, mut encodings, mut lines) = (vec![], vec![], vec![]);
        for (name, value) in secrets {
            lines.extend(value.lines().map(|line| (name, line.trim().to_owned())));
            if is_long(value) {
                encodings.push((name, STANDARD_NO_PAD.encode(value)));
                encodings.push((name, URL_SAFE_NO_PAD.encode(value)));
                encodings.extend(host(value).map(|host| (name, host)));
                values.push((name, value.to_owned()));
            }
        }
        lines.retain(|(_, line)| is_long(line));
        lines.sort_by_key(|(_, line)| Reverse(line.len()));
        let (mut seen, mut bytes, mut needles) = (BTreeSet::new(), 0, Vec::new());
        for (name, text) in values.into_iter().chain(encodings).chain(lines) {
            let is_room = needles.len() < limits::SECRET_REDACTED_TEXTS_MAX
                && bytes + text.len() <= limits::SECRET_REDACTED_BYTES_MAX;
            if is_room && seen.insert(text.clone()) {
                bytes += text.len();
                needles.push(Needle { text, mark: format!("[secret {name}]") });
            }
        }
        let mut building = NFA::builder();
        building.match_kind(MatchKind::Standard).prefilter(false);
        let automaton = building.build(needles.iter().map(|needle| &needle.text));
        Redactor { needles, automaton: automaton.expect("the size of the needles is bounded") }
    }

    /// A text that was cut to so many bytes, and is cut again if the names of secrets make it longer. A value may
    /// be spread over its lines.
    pub fn text(&self, text: String, bytes_max: usize) -> String {
        let mut found = self.found(&text);
        found.extend(self.found_over_lines(&text));
        found.extend(self.cut_value(&text, bytes_max));
        let found = apart(found);
        if found.is_empty() { text } else { cut(without(&text, 0..text.len(), &found), bytes_max) }
    }

    /// The same for consecutive lines of one stream: a value may be spread over several of them.
    pub fn lines(&self, lines: &mut [&mut String]) {
        let joined: String = lines.iter().map(|line| line.as_str()).collect();
        let mut found = self.found(&joined);
        let mut start = 0;
        for line in lines.iter() {
            let cut_value = self.cut_value(line, limits::LOG_LINE_BYTES_MAX);
            found.extend(cut_value.map(|(range, mark)| (start + range.start..start + range.end, mark)));
            start += line.len();
        }
        let found = apart(found);
        if found.is_empty() {
            return;
        }
        let mut start = 0;
        for line in lines {
            let part = start..start + line.len();
            start = part.end;
            if !within(&part, &found).is_empty() {
                **line = cut(without(&joined, part, &found), limits::LOG_LINE_BYTES_MAX);
            }
        }
    }

    /// The same for a JSON text of at most so many bytes: in its strings, the names of its members, and its
    /// numbers. Everything else stays as it was written.
    pub fn json(&self, json: String, bytes_max: usize) -> String {
        if serde_json::from_str::<IgnoredAny>(&json).is_err() {
            return self.text(json, bytes_max);
        }
        let mut redacted = String::with_capacity(json.len());
        // Its strings and numbers one after another, without the names of members.
        let mut leaves = String::new();
        let mut rest = json.as_str();
        while !rest.is_empty() {
            let (token, after) = rest.split_at(token_length(rest));
            rest = after;
            let text = match token.starts_with('"') {
                true => serde_json::from_str(token).unwrap_or_default(),
                false => token.to_owned(),
            };
            // The rest is punctuation, and words such as `true`.
            if !is_scalar(token) {
                redacted.push_str(token);
                continue;
            }
            let found = apart(self.found(&text));
            let kept = without(&text, 0..text.len(), &found);
            if !after.trim_start().starts_with(':') {
                leaves.push_str(&kept);
            }
            match found.is_empty() {
                true => redacted.push_str(token),
                false => redacted.push_str(&Value::from(kept).to_string()),
            }
        }
        // A value can be JSON itself, or be spread over several strings and numbers.
        let is_left = !self.found(&redacted).is_empty() || !self.found(&leaves).is_empty();
        if is_left || redacted.len() > bytes_max { Value::from(REMOVED).to_string() } else { redacted }
    }

    /// Where values are, as they are or with the escapes of JSON.
    fn found(&self, text: &str) -> Vec<FoundValue<'_>> {
        let mut found = self.found_unescaped(text);
        for Unescaped { text, places } in Unescaped::levels(text) {
            let in_source = |range: Range<usize>| places[range.start]..places[range.end];
            let decoded = self.found_unescaped(&text).into_iter();
            found.extend(decoded.map(|(range, mark)| (in_source(range), mark)));
        }
        found
    }

    /// Where values are as they are: of several that end at one place, the longest one.
    fn found_unescaped(&self, text: &str) -> Vec<FoundValue<'_>> {
        let automaton = &self.automaton;
        let mut state = automaton.start_state(Anchored::No).expect("it searches at any place");
        let mut found = Vec::new();
        for (end, byte) in (1..).zip(text.bytes()) {
            state = automaton.next_state(Anchored::No, state, byte);
            if automaton.is_match(state) {
                let needle = &self.needles[automaton.match_pattern(state, 0).as_usize()];
                found.push((end - needle.text.len()..end, needle.mark.as_str()));
            }
        }
        found
    }

    /// Where values are in a text of several lines once its line breaks are left out.
    fn found_over_lines(&self, text: &str) -> Vec<FoundValue<'_>> {
        if !text.contains('\n') {
            return vec![];
        }
        let (mut joined, mut starts, mut place) = (String::with_capacity(text.len()), Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            starts.push((joined.len(), place));
            joined.push_str(line.trim_end_matches(['\r', '\n']));
            place += line.len();
        }
        let in_text = |at: usize| {
            let line = starts.partition_point(|(start, _)| *start <= at) - 1;
            let (start, place) = starts[line];
            place + at - start
        };
        let found = self.found(&joined).into_iter();
        found.map(|(range, mark)| (in_text(range.start)..in_text(range.end - 1) + 1, mark)).collect()
    }

    /// The beginning of a value at the end of a text of this many bytes, or of one that somebody has cut.
    fn cut_value(&self, text: &str, bytes_max: usize) -> Option<FoundValue<'_>> {
        // A cut between two characters leaves up to three bytes of room.
        let kept = match text.strip_suffix(CUT_MARK) {
            None if text.len() + 3 < bytes_max => return None,
            kept => kept.unwrap_or(text),
        };
        let whole = self.beginning_at_end(kept).map(|(length, mark)| (kept.len() - length, mark));
        let levels = Unescaped::levels(kept);
        let decoded = levels.iter().filter_map(|Unescaped { text, places }| {
            let (length, mark) = self.beginning_at_end(text)?;
            Some((places[text.len() - length], mark))
        });
        let (start, mark) = whole.into_iter().chain(decoded).min_by_key(|(start, _)| *start)?;
        Some((start..kept.len(), mark))
    }

    /// The length of the longest beginning of a value with which a text ends.
    fn beginning_at_end(&self, text: &str) -> Option<(usize, &str)> {
        let beginnings = self.needles.iter().filter_map(|needle| {
            let (shortest, _) = needle.text.char_indices().nth(limits::SECRET_REDACTED_CHARS_MIN)?;
            let lengths = shortest..=needle.text.len().min(text.len());
            let is_there = |length: &usize| text.as_bytes().ends_with(&needle.text.as_bytes()[..*length]);
            Some((lengths.rev().find(is_there)?, needle.mark.as_str()))
        });
        beginnings.max_by_key(|(length, _)| *length)
    }
}

fn is_long(text: &str) -> bool {
    text.chars().count() >= limits::SECRET_REDACTED_CHARS_MIN
}

/// The host of a value that is a URL, as programs write it in their messages: in lower case.
fn host(value: &str) -> Option<String> {
    let url = Url::parse(value.trim()).ok()?;
    url.host_str().filter(|host| is_long(host)).map(str::to_owned)
}

/// The same places in order and without overlaps.
fn apart(mut found: Vec<FoundValue<'_>>) -> Vec<FoundValue<'_>> {
    found.sort_by_key(|(range, _)| (range.start, Reverse(range.end)));
    let mut apart: Vec<FoundValue<'_>> = Vec::new();
    for (range, mark) in found {
        match apart.last_mut() {
            Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
            _ => apart.push((range, mark)),
        }
    }
    apart
}

/// What was found in a part of a text.
fn within<'f, 'a>(part: &Range<usize>, found: &'f [FoundValue<'a>]) -> &'f [FoundValue<'a>] {
    let first = found.partition_point(|(range, _)| range.end <= part.start);
    let end = found.partition_point(|(range, _)| range.start < part.end);
    found.get(first..end).unwrap_or_default()
}

/// A part of a text with marks in place of what was found.
fn without(text: &str, part: Range<usize>, found: &[FoundValue<'_>]) -> String {
    let mut kept = String::new();
    let mut at = part.start;
    for (range, mark) in within(&part, found) {
        kept.push_str(&text[at..range.start.max(at)]);
        kept.push_str(mark);
        at = range.end.min(part.end);
    }
    kept.push_str(&text[at..part.end]);
    kept
}

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(CUT_MARK.len())));
        text.push_str(CUT_MARK);
    }
    text
}

/// Whether a token of JSON is a string or a number.
fn is_scalar(token: &str) -> bool {
    token.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// The bytes of the first token of a valid JSON text: a string, a number, or everything up to the next of these.
fn token_length(json: &str) -> usize {
    let bytes = json.as_bytes();
    if bytes.first() == Some(&b'"') {
        let mut at = 1;
        while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
            at += if *byte == b'\\' { 2 } else { 1 };
        }
        return (at + 1).min(bytes.len());
    }
    let is_number = |byte: &u8| matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'0'..=b'9');
    let end = match bytes.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit()) {
        true => bytes.iter().position(|byte| !is_number(byte)),
        false => bytes.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9')),
    };
    end.unwrap_or(bytes.len())
}
