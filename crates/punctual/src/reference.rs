//! `punctual reference`: the reference page of the command line, generated from its definition.

use crate::exit::{Exit, MEANINGS};
use crate::output::print_raw;
use clap::{Arg, ArgAction, Command};
use std::fmt::Write;

const OPENING: &str = "\
# Command line

Every command, argument and environment variable, as `punctual --help` tells them.

Flags count before environment variables, these before the [configuration file](configuration.md), and that before
defaults. Tables are for people; programs ask for `-o json` or `-o yaml`. Only the result goes to standard output;
progress, notes and errors go to standard error.

";

/// For maintainers of the page; invisible to readers.
const CLOSING: &str = "\
<!-- Made by `punctual reference > docs/reference/cli.md`; a test compares it with the definition of the command line. -->
";

pub fn run(command: Command) -> anyhow::Result<Exit> {
    print_raw(&page(command))?;
    Ok(Exit::Done)
}

fn page(command: Command) -> String {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut text = OPENING.to_owned();
    text += &exit_codes();
    text += &variables(&command);
    for sub in shown(&command) {
        section(&mut text, sub, &format!("punctual {}", sub.get_name()));
    }
    text + CLOSING
}

fn exit_codes() -> String {
    let mut text = "## Exit codes\n\n| code | meaning |\n|---|---|\n".to_owned();
    for (exit, meaning) in MEANINGS {
        let _ = writeln!(text, "| {} | {meaning} |", exit as u8);
    }
    text + "\n"
}

/// Every variable once, with its flag.
fn variables(command: &Command) -> String {
    let mut found = std::collections::BTreeMap::new();
    gather_variables(command, &mut found);
    let mut text = "## Environment variables\n\n| variable | stands for |\n|---|---|\n".to_owned();
    for (variable, flag) in found {
        let _ = writeln!(text, "| `{variable}` | `{flag}` |");
    }
    text + "\n"
}

fn gather_variables(command: &Command, found: &mut std::collections::BTreeMap<String, String>) {
    for arg in command.get_arguments() {
        if let Some(variable) = Help::of(arg).variable {
            found.entry(variable).or_insert_with(|| flag(arg));
        }
    }
    for sub in command.get_subcommands() {
        gather_variables(sub, found);
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// A command with its arguments, then its subcommands.
fn section(text: &mut String, command: &Command, name: &str) {
    let level = if name.matches(' ').count() > 1 { "###" } else { "##" };
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(text, "{level} `{name}`\n\n{about}.\n");
    if command.has_subcommands() {
        for sub in shown(command) {
            section(text, sub, &format!("{name} {}", sub.get_name()));
        }
        return;
    }
    let usage = command.clone().bin_name(name).render_usage().to_string();
    let _ = writeln!(text, "```\n{}\n```\n", usage.trim_start_matches("Usage: "));
    arguments(text, command);
    if let Some(after) = command.get_after_help() {
        let _ = writeln!(text, "```\n{after}\n```\n");
    }
}

/// The arguments, under the headings of the help.
fn arguments(text: &mut String, command: &Command) {
    let args: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version))
        .collect();
    let mut headings: Vec<Option<&str>> = vec![];
    for arg in &args {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        if let Some(heading) = heading {
            let _ = writeln!(text, "**{heading}**\n");
        }
        let _ = writeln!(text, "| argument | meaning |\n|---|---|");
        for arg in args.iter().filter(|arg| arg.get_help_heading() == heading) {
            let _ = writeln!(text, "| `{}` | {} |", cell(&flag(arg)), cell(&meaning(arg)));
        }
        text.push('\n');
    }
}

/// `-o, --output <FORMAT>`, or `<JOB>...` for a positional argument.
fn flag(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let takes_value = arg.get_action().takes_values();
    let value = arg.get_value_names().map_or_else(
        || arg.get_id().to_string().to_uppercase(),
        |names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    );
    match (names.is_empty(), takes_value) {
        (true, _) => format!("<{value}>{}", if is_list(arg) { "..." } else { "" }),
        (false, true) => format!("{} <{value}>", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

fn is_list(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

/// The help of an argument. Settings contain their variable and default in their text.
struct Help {
    text: String,
    variable: Option<String>,
    default: Option<String>,
}

impl Help {
    fn of(arg: &Arg) -> Help {
        let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let default = Some(defaults.join(", ")).filter(|default| !default.is_empty());
        let variable = arg.get_env().map(|variable| variable.to_string_lossy().into_owned());
        Help {
            default: default.filter(|_| arg.get_action().takes_values()).or(in_brackets(&text, "default")),
            variable: variable.or(in_brackets(&text, "env")),
            text: text.split(" [").next().unwrap_or_default().to_owned(),
        }
    }
}

/// What follows the word in brackets: `[default: 16]`.
fn in_brackets(text: &str, word: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("[{word}: "))?;
    Some(rest.split(']').next()?.to_owned())
}

fn meaning(arg: &Arg) -> String {
    let Help { mut text, variable, default } = Help::of(arg);
    let choices: Vec<String> =
        arg.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
    if !choices.is_empty() && arg.get_action().takes_values() {
        text += &format!(". One of {}", choices.join(", "));
    }
    if let Some(default) = default {
        text += &format!(". Default: `{default}`");
    }
    if let Some(variable) = variable {
        text += &format!(". Environment: `{variable}`");
    }
    text
}

/// A text escaped for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
