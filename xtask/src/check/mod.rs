//! Rules that are checked automatically, so that reviews need not. Each rule is a function from the files of
//! the repository to its violations, in the module of its topic.

mod calls;
mod docs;
mod edges;
mod files;
mod phrases;
mod source;
mod types;

use crate::test::cargo;
use anyhow::{Context, Result, ensure};
use source::RustSource;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Prints every violation, one per line.
pub fn run(root: &Path) -> Result<ExitCode> {
    let violations = violations(root)?;
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("all rules passed");
        return Ok(ExitCode::SUCCESS);
    }
    println!("violations: {}", violations.len());
    Ok(ExitCode::FAILURE)
}

/// A position that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    /// From 1.
    line: usize,
    rule: &'static str,
    advice: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// A text file of the repository, its path relative to the root and with forward slashes.
struct TextFile {
    path: String,
    text: String,
}

fn violations(root: &Path) -> Result<Vec<Violation>> {
    let mut files = Vec::new();
    read_tree(root, root, &mut files)?;
    let metadata = cargo_metadata(root)?;
    let mut violations = edges::check(&metadata)?;
    let (mut decisions, mut types) = (Vec::new(), Vec::new());
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for file in &files {
        violations.extend(phrases::check(file));
        if file.path.ends_with(".rs") {
            let source = RustSource::new(&file.path, &file.text);
            violations.extend(calls::check(&source));
            violations.extend(files::check(&source));
            types.extend(types::declarations(&source));
        } else {
            violations.extend(docs::check(root, file));
            violations.extend(docs::absent_sources(file, &paths));
            decisions.extend(docs::decision_number(&file.path));
        }
    }
    violations.extend(docs::repeated_decisions(&decisions));
    let index = files.iter().find(|file| file.path == docs::DECISIONS_INDEX);
    violations.extend(index.iter().flat_map(|index| docs::unindexed_decisions(index, &decisions)));
    violations.extend(types::repeated(&types));
    violations.sort();
    Ok(violations)
}

/// Directories without handwritten files.
const NOT_OURS: [&str; 4] = [".git", "target", "node_modules", "punctual-data"];

fn read_tree(root: &Path, directory: &Path, files: &mut Vec<TextFile>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            if !NOT_OURS.iter().any(|skipped| name == *skipped) {
                read_tree(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let relative = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            files.push(TextFile { path: relative, text });
        }
    }
    Ok(())
}

fn cargo_metadata(root: &Path) -> Result<String> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root);
    let output = command.output().context("start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_every_rule() {
        let violations = violations(&crate::root()).unwrap();
        let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
        assert!(violations.is_empty(), "{}", lines.join("\n"));
    }

    #[test]
    fn a_violation_has_a_position_a_rule_and_advice() {
        let violation =
            Violation { path: "a/b.rs".to_owned(), line: 3, rule: "length", advice: "split it".to_owned() };
        assert_eq!(violation.to_string(), "a/b.rs:3: length: split it");
    }
}
