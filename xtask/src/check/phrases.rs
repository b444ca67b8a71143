//! Phrases that hide who acts or what happens. See "Language" in CONTRIBUTING.md.

use super::{TextFile, Violation};

/// The phrase in lower case, and what to write instead.
const PHRASES: [(&str, &str); 16] = [
    ("whoever", "name the process, the user or the caller"),
    ("as things are", "say which state prevents it"),
    ("again and again", "write repeatedly, or at an interval"),
    ("that which", "name the thing"),
    ("look after", "write own, or maintain"),
    ("looked after", "write owned, or maintained"),
    ("looks after", "write owns, or maintains"),
    ("is told", "write is notified, reported or printed"),
    ("are told", "write are notified, reported or printed"),
    ("anew", "write again, or generate"),
    ("give way", "write is replaced, skipped or evicted"),
    ("bury", "write dead-letter, or record the end"),
    ("nobody is there", "say what is unreachable or missing"),
    ("all is well", "write if there are no problems"),
    ("for want of", "write without, or for lack of"),
    ("comes to pass", "write happens, or succeeds"),
];
/// This file, and files that are generated from texts that are checked where they are written.
const EXEMPT: [&str; 2] = ["xtask/src/check/phrases.rs", "docs/reference/"];

pub fn check(file: &TextFile) -> Vec<Violation> {
    if EXEMPT.iter().any(|exempt| file.path.starts_with(exempt)) {
        return vec![];
    }
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.to_lowercase();
        for (phrase, advice) in PHRASES.iter().filter(|(phrase, _)| line.contains(phrase)) {
            let advice = format!("\"{phrase}\": {advice}");
            violations.push(Violation { path: file.path.clone(), line: index + 1, rule: "phrases", advice });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_in_comments_strings_and_documents() {
        let found = |path: &str, text: &str| {
            let file = TextFile { path: path.to_owned(), text: text.to_owned() };
            check(&file).iter().map(Violation::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            found("a.md", "One.\nWhoever reads it."),
            ["a.md:2: phrases: \"whoever\": name the process, the user or the caller"]
        );
        assert_eq!(found("a.rs", "// It runs again and again, as things are.").len(), 2);
        assert_eq!(found("a.rs", "// The scheduler fires it."), Vec::<String>::new());
        assert_eq!(found("docs/reference/cli.md", "whoever"), Vec::<String>::new());
    }
}
