//! The result of a check, and how it is shown.

use punctual_config::output::table;
use serde::Serialize;

/// The severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Good,
    /// It could not be checked, and need not be.
    Skipped,
    /// It works, but should be known.
    Warning,
    /// It does not work, or soon will not.
    Failed,
}

impl Severity {
    const fn sign(self) -> &'static str {
        match self {
            Severity::Good => "✓",
            Severity::Skipped => "·",
            Severity::Warning => "!",
            Severity::Failed => "✗",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Severity,
    /// The name of the check.
    pub check: &'static str,
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Finding { level: Severity::Good, check, found: found.into(), fix: None }
    }

    pub fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Finding { level: Severity::Skipped, check, found: found.into(), fix: None }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { level: Severity::Warning, check, found: found.into(), fix: Some(fix.into()) }
    }

    pub fn failed(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { level: Severity::Failed, check, found: found.into(), fix: Some(fix.into()) }
    }
}

/// All findings.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// Nothing failed; there may be warnings.
    pub ok: bool,
    pub findings: Vec<Finding>,
}

impl DoctorReport {
    pub fn new(findings: Vec<Finding>) -> Self {
        DoctorReport { ok: findings.iter().all(|finding| finding.level < Severity::Failed), findings }
    }

    /// A line for each finding, with its fix below it.
    pub fn table(&self) -> String {
        let rows = self.findings.iter().flat_map(|finding| {
            let line = vec![finding.level.sign().to_owned(), finding.check.to_owned(), finding.found.clone()];
            let fix = finding.fix.iter().map(|fix| vec![String::new(), String::new(), format!("→ {fix}")]);
            std::iter::once(line).chain(fix)
        });
        format!("{}\n\n{}", table(&["", "CHECK", "FOUND"], rows), self.summary())
    }

    fn summary(&self) -> String {
        let count = |level: Severity| self.findings.iter().filter(|finding| finding.level == level).count();
        match (count(Severity::Failed), count(Severity::Warning)) {
            (0, 0) => "no problems found".to_owned(),
            (failed, warnings) => format!("failures: {failed}, warnings: {warnings}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_not_failures() {
        let good = Finding::good("store", "whole");
        let warning = Finding::warning("user", "root", "use another");
        let failed = Finding::failed("disk", "full", "make room");
        assert!(DoctorReport::new(vec![good.clone(), warning.clone()]).ok);
        let report = DoctorReport::new(vec![good, warning, failed]);
        assert!(!report.ok);
        let lines: Vec<String> = report.table().lines().map(|line| line.trim().to_owned()).collect();
        assert!(
            lines[1].starts_with("✓") && lines[2].starts_with("!") && lines[3] == "→ use another",
            "{lines:?}"
        );
        assert_eq!(lines.last().unwrap(), "failures: 1, warnings: 1");
    }
}
