//! Rules for every Rust file: how it begins, how long it is, and what must not be left in it.

use super::Violation;
use super::source::{RustSource, find_words};

/// A longer file covers more than one topic.
const LINES_MAX: usize = 700;

/// Leftovers that are forbidden, and what to do instead.
const LEFTOVERS: [(&str, &str); 6] = [
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("dbg!", "remove it"),
    ("#[allow(", "use #[expect(.., reason = \"..\")], which says why and goes away when it is not needed"),
    ("#![allow(", "use #[expect(.., reason = \"..\")], which says why and goes away when it is not needed"),
    ("#[ignore", "a test that does not run proves nothing: fix it or remove it"),
];

/// The only test function that may let time pass: it polls until a condition holds.
const MAY_WAIT: &str = "eventually";
/// The text of a comment above a sleep whose duration is the input of the test.
const NOT_A_WAIT: &str = "not a wait";

pub fn check(source: &RustSource) -> Vec<Violation> {
    let mut violations = leftovers(source);
    violations.extend(opening(source));
    violations.extend(length(source));
    violations.extend(sleeps(source));
    violations
}

fn leftovers(source: &RustSource) -> Vec<Violation> {
    let found = |(word, advice): &(&'static str, &'static str)| {
        let (word, advice) = (*word, *advice);
        let places = find_words(&source.code, word);
        places.into_iter().map(move |at| source.violation(at, "leftovers", format!("`{word}`: {advice}")))
    };
    LEFTOVERS.iter().flat_map(found).collect()
}

fn opening(source: &RustSource) -> Option<Violation> {
    let is_product = source.path.split('/').any(|part| part == "src");
    let advice = "begin with `//!`: what this module owns and what it must not depend on";
    (is_product && !source.text.starts_with("//!")).then(|| source.violation(0, "opening", advice))
}

fn length(source: &RustSource) -> Option<Violation> {
    let lines = source.text.lines().count();
    let advice = format!("{lines} lines are more than {LINES_MAX}: split it by topic");
    (lines > LINES_MAX).then(|| Violation {
        path: source.path.to_owned(),
        line: LINES_MAX + 1,
        rule: "length",
        advice,
    })
}

fn sleeps(source: &RustSource) -> Vec<Violation> {
    if !source.is_in_tests_directory() {
        return vec![];
    }
    let calls = ["thread::sleep", "time::sleep"];
    let places = calls.iter().flat_map(|call| find_words(&source.code, call));
    let advice = "wait with a signal or `eventually`, or pause the clock; a sleep is slow or flaky. If how long it \
                  takes is the input of the test, say above it that it is not a wait";
    places
        .filter(|at| enclosing_function(&source.code[..*at]) != MAY_WAIT && !is_excused(&source.text[..*at]))
        .map(|at| source.violation(at, "sleeps", advice))
        .collect()
}

/// The name of the last function that begins in this code.
fn enclosing_function(code_before: &str) -> &str {
    let Some(at) = find_words(code_before, "fn").pop() else { return "" };
    code_before[at + "fn".len()..].trim_start().split(['(', '<']).next().unwrap_or("")
}

fn is_excused(text_before: &str) -> bool {
    let mut lines = text_before.lines().rev().skip(1);
    lines.next().is_some_and(|above| above.trim_start().starts_with("//") && above.contains(NOT_A_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&RustSource::new(path, text)).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn nothing_unfinished_is_left_behind() {
        for text in [
            "//!\nfn f() { todo!() }",
            "//!\nfn f() { dbg!(1); }",
            "//!\nfn f() { unimplemented!() }",
            "//!\n#[allow(dead_code)]\nfn f() {}",
            "//!\n#![allow(dead_code)]",
            "//!\n#[cfg(test)]\nmod tests { #[test] #[ignore = \"slow\"] fn f() {} }",
        ] {
            assert_eq!(rules("crates/core/src/a.rs", text), ["leftovers"], "{text}");
        }
        let text = "//! todo!\n#[expect(dead_code, reason = \"todo!\")]\nfn my_todo() { \"#[ignore]\" }";
        assert_eq!(rules("crates/core/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn every_source_file_begins_by_saying_what_it_owns() {
        assert_eq!(rules("crates/core/src/a.rs", "use std::fmt;"), ["opening"]);
        assert_eq!(rules("crates/punctual/src/main.rs", "fn main() {}"), ["opening"]);
        assert_eq!(rules("crates/core/src/a.rs", "//! Owns a.\nuse std::fmt;"), [""; 0]);
        assert_eq!(rules("crates/core/tests/a.rs", "use std::fmt;"), [""; 0]);
    }

    #[test]
    fn files_fit_a_topic() {
        assert_eq!(rules("crates/core/tests/a.rs", &"\n".repeat(LINES_MAX)), [""; 0]);
        assert_eq!(rules("crates/core/tests/a.rs", &"\n".repeat(LINES_MAX + 1)), ["length"]);
    }

    #[test]
    fn tests_do_not_sleep() {
        for text in ["std::thread::sleep(d);", "thread::sleep(d);", "tokio::time::sleep(d).await;"] {
            assert_eq!(rules("crates/core/tests/a.rs", text), ["sleeps"], "{text}");
            let excused = format!("fn f() {{\n    // The input, not a wait.\n    {text}\n}}");
            assert_eq!(rules("crates/core/tests/a.rs", &excused), [""; 0], "{text}");
            let eventually = format!("fn f() {{}}\nasync fn eventually<T>(t: T) {{ {text} }}");
            assert_eq!(rules("crates/core/tests/a.rs", &eventually), [""; 0], "{text}");
        }
        assert_eq!(rules("crates/core/tests/a.rs", "clock.sleep(d).await; // thread::sleep"), [""; 0]);
    }
}
