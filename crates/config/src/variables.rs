//! Detects unknown variables with our prefix: a misspelled one must not go unnoticed.

use crate::{handover, settings};
use std::collections::BTreeSet;

const PREFIX: &str = "PUNCTUAL_";

/// The prefix of the variables by which Punctual's own tests find their databases.
const OF_TESTS: &str = "PUNCTUAL_TEST_";

/// How similar two names must be for a suggestion, from 0 to 1.
const SIMILARITY_MIN: f64 = 0.8;

/// Variables that a command gets when a job runs it, besides those in the command-line definition.
const OF_JOBS: [&str; 7] = [
    "PUNCTUAL_JOB_ID",
    "PUNCTUAL_EXECUTION_ID",
    "PUNCTUAL_IDEMPOTENCY_KEY",
    "PUNCTUAL_ATTEMPT",
    "PUNCTUAL_SCHEDULED_TIME",
    "PUNCTUAL_DEADLINE",
    "PUNCTUAL_NOTES",
];

/// A sentence for each unknown variable of this process.
pub fn unknown_variables(command_line: &clap::Command) -> Vec<String> {
    let is_ours = |name: &String| !name.starts_with(OF_TESTS);
    let names: Vec<String> = handover::variables().into_keys().filter(is_ours).collect();
    // Most processes have none, and need not build the list of known ones.
    if names.is_empty() { vec![] } else { unknown(names, &known(command_line)) }
}

fn known(command_line: &clap::Command) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = settings::all().iter().map(|setting| setting.variable()).collect();
    known.extend(OF_JOBS.map(str::to_owned));
    known.insert(crate::output::TIMES_VARIABLE.to_owned());
    add_of_arguments(command_line, &mut known);
    known
}

fn add_of_arguments(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(|argument| argument.get_env());
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for inner in command.get_subcommands() {
        add_of_arguments(inner, known);
    }
}

fn unknown(names: Vec<String>, known: &BTreeSet<String>) -> Vec<String> {
    let told = |name: String| match closest(&name, known) {
        Some(meant) => format!("{name} is not a variable of Punctual; did you mean {meant}?"),
        None => format!("{name} is not a variable of Punctual and has no effect"),
    };
    names.into_iter().filter(|name| !known.contains(name)).map(told).collect()
}

/// The known name that was probably meant. The common prefix would make all names similar, so it is left out.
fn closest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a String> {
    let bare = |name: &str| name.trim_start_matches(PREFIX).to_owned();
    let likeness = |candidate: &String| strsim::jaro_winkler(&bare(name), &bare(candidate));
    let likeliest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    likeliest.filter(|candidate| likeness(candidate) >= SIMILARITY_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn misspelled_variables_are_told_with_what_was_meant() {
        let known = known(&Command::new("punctual").arg(Arg::new("output").env("PUNCTUAL_OUTPUT")));
        let names = [
            "PUNCTUAL_SLOT",
            "PUNCTUAL_SLOTS",
            "PUNCTUAL_JOB_ID",
            "PUNCTUAL_NOTES",
            "PUNCTUAL_OUTPUT",
            "PUNCTUAL_XYZ",
        ];
        assert_eq!(
            unknown(names.map(str::to_owned).to_vec(), &known),
            [
                "PUNCTUAL_SLOT is not a variable of Punctual; did you mean PUNCTUAL_SLOTS?",
                "PUNCTUAL_XYZ is not a variable of Punctual and has no effect",
            ]
        );
    }
}
