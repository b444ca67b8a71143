//! Documents: links have targets, decisions have unique numbers, and the overview stays short.

use super::{TextFile, Violation};
use std::path::Path;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 200;
const DECISIONS: &str = "docs/decisions/";
pub const DECISIONS_INDEX: &str = "docs/decisions/README.md";

pub fn check(root: &Path, file: &TextFile) -> Vec<Violation> {
    let mut violations = broken_links(file, |target| root.join(target).exists());
    violations.extend(overlong_architecture(file));
    violations.extend(unnumbered_decision(&file.path));
    violations
}

fn broken_links(file: &TextFile, exists: impl Fn(&Path) -> bool) -> Vec<Violation> {
    let directory = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut violations = Vec::new();
    for (line, link) in links(&file.text) {
        let target = link.split(['#', '?']).next().unwrap_or("");
        let is_elsewhere = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
        if !is_elsewhere && !exists(&directory.join(target)) {
            let advice = format!("{link} does not exist: fix the link");
            violations.push(Violation { path: file.path.clone(), line, rule: "links", advice });
        }
    }
    violations
}

/// The targets of inline links and of reference definitions outside code, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_code_block = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code_block = !in_code_block;
        } else if !in_code_block {
            links.extend(links_of_line(line).map(|link| (index + 1, link)));
        }
    }
    links
}

fn links_of_line(line: &str) -> impl Iterator<Item = &str> {
    // Every second piece between backticks is code.
    let inline = line
        .split('`')
        .step_by(2)
        .flat_map(|prose| prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()));
    let defined = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline.chain(defined.and_then(|(_, target)| target.split_whitespace().next()))
}

fn overlong_architecture(file: &TextFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    (file.path == ARCHITECTURE && lines >= ARCHITECTURE_LINES_MAX).then(|| Violation {
        path: file.path.clone(),
        line: ARCHITECTURE_LINES_MAX,
        rule: "length",
        advice: format!(
            "{lines} lines: keep it under {ARCHITECTURE_LINES_MAX} by moving details next to their code"
        ),
    })
}

fn is_decision(path: &str) -> bool {
    path.starts_with(DECISIONS) && path != DECISIONS_INDEX
}

fn unnumbered_decision(path: &str) -> Option<Violation> {
    (is_decision(path) && decision_number(path).is_none()).then(|| Violation {
        path: path.to_owned(),
        line: 1,
        rule: "decisions",
        advice: "name it NNNN-what-was-decided.md, with the next free number".to_owned(),
    })
}

/// A decision's number and file.
pub fn decision_number(path: &str) -> Option<(u32, String)> {
    let (number, _) = path.strip_prefix(DECISIONS)?.split_once('-')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (number.parse().expect("four digits"), path.to_owned()))
}

/// The index has a line for each number, in order: a link to the decision, or why there is none.
pub fn unindexed_decisions(index: &TextFile, decisions: &[(u32, String)]) -> Vec<Violation> {
    let entries: Vec<(usize, &str)> = index
        .text
        .lines()
        .enumerate()
        .filter_map(|(line, text)| Some((line + 1, text.strip_prefix("- ")?.trim_start_matches('['))))
        .collect();
    let violation = |line, advice| Violation { path: index.path.clone(), line, rule: "decisions", advice };
    let mut violations = Vec::new();
    for (number, (line, entry)) in (1..).zip(&entries) {
        if !entry.starts_with(&format!("{number:04}")) {
            violations.push(violation(*line, format!("{number:04} comes here: write why it is absent")));
            break;
        }
    }
    for (number, path) in decisions {
        let name = path.trim_start_matches(DECISIONS);
        if !entries.iter().any(|(_, entry)| entry.starts_with(&format!("{number:04}]({name}): "))) {
            violations.push(violation(1, format!("{name} is not listed: add a line for it")));
        }
    }
    violations
}

/// Pages that name source files for people who change them.
const MAPS: [&str; 2] = [ARCHITECTURE, "CONTRIBUTING.md"];

/// Names of source files in a map end the path of some file. A map may leave out the first folders.
pub fn absent_sources(file: &TextFile, paths: &[&str]) -> Vec<Violation> {
    if !MAPS.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (line, text) in file.text.lines().enumerate() {
        for name in text.split('`').skip(1).step_by(2).filter(|code| is_source_path(code)) {
            if !paths.iter().any(|path| {
                path.strip_suffix(name).is_some_and(|folders| folders.is_empty() || folders.ends_with('/'))
            }) {
                let advice = format!("{name} does not exist: name the file that replaced it");
                violations.push(Violation { path: file.path.clone(), line: line + 1, rule: "maps", advice });
            }
        }
    }
    violations
}

fn is_source_path(code: &str) -> bool {
    code.strip_suffix(".rs").is_some_and(|stem| {
        stem.chars().all(|letter| letter.is_ascii_alphanumeric() || "/_-.".contains(letter))
    })
}

pub fn repeated_decisions(decisions: &[(u32, String)]) -> Vec<Violation> {
    let mut sorted = decisions.to_vec();
    sorted.sort();
    let repeated = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    repeated
        .map(|pair| Violation {
            path: pair[1].1.clone(),
            line: 1,
            rule: "decisions",
            advice: format!("number {:04} is taken by {}: take the next free one", pair[0].0, pair[0].1),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<(usize, String)> {
        let file = TextFile { path: "docs/guides/a.md".to_owned(), text: text.to_owned() };
        let exists = |target: &Path| target == Path::new("docs/guides/../b.md");
        broken_links(&file, exists).into_iter().map(|violation| (violation.line, violation.advice)).collect()
    }

    #[test]
    fn relative_links_lead_to_files() {
        let found = broken("see [b](../b.md#part)\nand [c](c.md \"title\"), [d](../b.md)\n[e]: ../e.md");
        let expected = [(2, "c.md"), (3, "../e.md")];
        assert_eq!(
            found,
            expected.map(|(line, link)| (line, format!("{link} does not exist: fix the link")))
        );
    }

    #[test]
    fn links_elsewhere_and_code_are_left_alone() {
        assert_eq!(broken("[a](https://example.org/x) [b](#part) [c](mailto:a@example.org)"), []);
        assert_eq!(broken("`[a](b.md)`\n```\n[a](b.md)\n```"), []);
    }

    #[test]
    fn the_overview_stays_short() {
        let file = |lines| TextFile { path: ARCHITECTURE.to_owned(), text: "\n".repeat(lines) };
        assert_eq!(overlong_architecture(&file(199)), None);
        assert_eq!(overlong_architecture(&file(200)).unwrap().rule, "length");
    }

    #[test]
    fn every_decision_has_its_own_number() {
        let decisions: Vec<_> = ["0001-a.md", "0002-b.md", "0002-c.md"]
            .iter()
            .filter_map(|name| decision_number(&format!("{DECISIONS}{name}")))
            .collect();
        let repeated = repeated_decisions(&decisions);
        assert_eq!(repeated.len(), 1);
        assert_eq!(repeated[0].path, "docs/decisions/0002-c.md");
        assert_eq!(unnumbered_decision("docs/decisions/12-a.md").unwrap().rule, "decisions");
        assert_eq!(unnumbered_decision("docs/decisions/0012-a.md"), None);
        assert_eq!(unnumbered_decision("docs/guides/a.md"), None);
    }

    #[test]
    fn the_index_lists_every_decision_and_names_the_gaps() {
        let decisions = [(1, format!("{DECISIONS}0001-a.md")), (3, format!("{DECISIONS}0003-c.md"))];
        let advice = |text: &str| {
            let index = TextFile { path: DECISIONS_INDEX.to_owned(), text: text.to_owned() };
            let violations = unindexed_decisions(&index, &decisions);
            violations.into_iter().map(|violation| violation.advice).collect::<Vec<_>>()
        };
        let complete = "# Decisions\n- [0001](0001-a.md): A\n- 0002: never used.\n- [0003](0003-c.md): C\n";
        assert_eq!(advice(complete), Vec::<String>::new());
        assert_eq!(
            advice("- [0001](0001-a.md): A\n- [0003](0003-c.md): C\n"),
            ["0002 comes here: write why it is absent"]
        );
        assert_eq!(advice("- [0001](0001-a.md): A\n"), ["0003-c.md is not listed: add a line for it"]);
    }

    #[test]
    fn maps_name_files_that_exist() {
        let paths = ["crates/core/src/job.rs", "crates/sim/src/store_connection.rs"];
        let advice = |path: &str, text: &str| {
            let file = TextFile { path: path.to_owned(), text: text.to_owned() };
            absent_sources(&file, &paths).into_iter().map(|violation| violation.advice).collect::<Vec<_>>()
        };
        assert_eq!(advice(ARCHITECTURE, "`core/src/job.rs`, `*.rs` and `job.rs`"), Vec::<String>::new());
        let absent = ["store.rs does not exist: name the file that replaced it"];
        assert_eq!(advice(ARCHITECTURE, "in\n`store.rs`"), absent);
        assert_eq!(advice("docs/api.md", "`store.rs`"), Vec::<String>::new());
    }
}
