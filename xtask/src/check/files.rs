//! The shape of every Rust file: how it begins, how long it is, and what must not be left in it.

use super::Violation;
use super::source::{Source, find_words};

/// A file that is longer covers more than one topic.
const LINES_MAX: usize = 700;

/// What must not be left behind, and what to do instead.
const LEFTOVERS: [(&str, &str); 6] = [
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("dbg!", "remove it"),
    ("#[allow(", "use #[expect(.., reason = \"..\")], which says why and goes away when it is not needed"),
    ("#![allow(", "use #[expect(.., reason = \"..\")], which says why and goes away when it is not needed"),
    ("#[ignore", "a test that does not run proves nothing: mend it or remove it"),
];

/// The one kind of test file that may wait for time to pass: the loop that asks until a condition holds.
const MAY_WAIT: &str = "eventually.rs";

pub fn check(source: &Source) -> Vec<Violation> {
    let mut violations = leftovers(source);
    violations.extend(opening(source));
    violations.extend(length(source));
    violations.extend(sleeps(source));
    violations
}

fn leftovers(source: &Source) -> Vec<Violation> {
    let found = |(word, advice): &(&'static str, &'static str)| {
        let (word, advice) = (*word, *advice);
        let places = find_words(&source.code, word);
        places.into_iter().map(move |at| source.violation(at, "leftovers", format!("`{word}`: {advice}")))
    };
    LEFTOVERS.iter().flat_map(found).collect()
}

fn opening(source: &Source) -> Option<Violation> {
    let is_product = source.path.split('/').any(|part| part == "src");
    let advice = "begin with `//!`: what this module owns and what it must not know";
    (is_product && !source.text.starts_with("//!")).then(|| source.violation(0, "opening", advice))
}

fn length(source: &Source) -> Option<Violation> {
    let lines = source.text.lines().count();
    let advice = format!("{lines} lines are more than {LINES_MAX}: split it by topic");
    (lines > LINES_MAX).then(|| Violation {
        path: source.path.to_owned(),
        line: LINES_MAX + 1,
        rule: "length",
        advice,
    })
}

fn sleeps(source: &Source) -> Vec<Violation> {
    if !source.is_in_tests_directory() || source.path.ends_with(MAY_WAIT) {
        return vec![];
    }
    let calls = ["thread::sleep", "tokio::time::sleep", "time::sleep"];
    let mut violations: Vec<Violation> = calls
        .iter()
        .flat_map(|call| find_words(&source.code, call))
        .map(|at| {
            let advice = "wait for a signal or a condition, or pause the clock; a sleep is slow or flaky";
            source.violation(at, "sleeps", advice)
        })
        .collect();
    violations.sort();
    violations.dedup();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Source::new(path, text)).into_iter().map(|violation| violation.rule).collect()
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
            assert_eq!(rules("crates/core/tests/common/eventually.rs", text), [""; 0], "{text}");
        }
        assert_eq!(rules("crates/core/tests/a.rs", "clock.sleep(d).await; // thread::sleep"), [""; 0]);
    }
}
