//! The tables of routes and status words, compared with the documentation.

use super::phase::JobPhase;
use super::{camel, of_user, routes, single, snake, typed};
use punctual_client::ExecutionStatus;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/reference/compatibility.md");

const EXECUTION_STATUSES: [ExecutionStatus; 11] = [
    ExecutionStatus::Waiting,
    ExecutionStatus::Queued,
    ExecutionStatus::Running,
    ExecutionStatus::Succeeded,
    ExecutionStatus::Failed,
    ExecutionStatus::TimedOut,
    ExecutionStatus::Cancelled,
    ExecutionStatus::Lost,
    ExecutionStatus::Skipped,
    ExecutionStatus::Expired,
    ExecutionStatus::Snoozed,
];

/// The cells of the rows below a heading, without code marks.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading)).expect("the section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        row.trim_matches('|').split(" | ").map(|cell| cell.replace('`', "").trim().to_owned()).collect()
    })
    .collect()
}

#[test]
fn the_page_lists_every_route_with_its_permission() {
    let described: BTreeSet<(String, String)> =
        rows("Routes").into_iter().map(|cells| (cells[0].clone(), cells[1].clone())).collect();
    let routed: BTreeSet<(String, String)> = routes()
        .rules
        .into_iter()
        .map(|(request, case)| (request.to_owned(), case.permission().to_string()))
        .collect();
    assert_eq!(described, routed);
    assert_eq!(rows("Routes").len(), routes().rules.len(), "a request is listed twice");
}

#[test]
fn every_state_of_a_job_has_the_word_on_the_page() {
    let expected: Vec<Vec<String>> = JobPhase::ALL
        .into_iter()
        .map(|phase| {
            let words = [
                single::job_word(phase),
                camel::job_word(phase),
                snake::job_word(phase),
                typed::job_word(phase),
            ];
            words.map(str::to_owned).to_vec()
        })
        .collect();
    let described: Vec<Vec<String>> =
        rows("Status words of jobs").into_iter().map(|cells| cells[1..].to_vec()).collect();
    assert_eq!(described, expected);
}

#[test]
fn every_state_of_an_execution_has_the_word_on_the_page() {
    let expected: Vec<Vec<String>> = EXECUTION_STATUSES
        .into_iter()
        .map(|status| {
            let words = [
                status.as_str(),
                single::execution_word(status).unwrap_or("not listed"),
                snake::execution_word(status),
                of_user::execution_word(status),
            ];
            words.map(str::to_owned).to_vec()
        })
        .collect();
    assert_eq!(rows("Status words of executions"), expected);
}
