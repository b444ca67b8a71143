//! The server's errors in the words of the command line: flags instead of the fields of a request.

use crate::job::fields::flag_name;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use punctual_client::{ClientError, Problem};
use punctual_config::output::{quoted, shortened};

/// Characters of a flag's value in an error.
const VALUE_CHARS_MAX: usize = 60;
/// The field, and its flag, for what a handler gets.
const PAYLOAD: &str = "payload";
/// Fields whose names are also English words. In a sentence they are fields only after one of [`LEADS`].
const WORDS: [&str; 2] = ["delay", "interval"];
const LEADS: [&str; 3] = ["give", "or", "with"];

/// Fields of tokens and users, with the flags of their commands.
const OF_ACCESS: [(&str, &str); 8] = [
    ("queues", "queue"),
    ("job_types", "job-type"),
    ("permissions", "permission"),
    ("expires_at", "expires"),
    ("expires_after", "expires"),
    ("user_id", "user"),
    ("display_name", "name"),
    ("notification_channel", "channel"),
];

/// The flags of a command.
#[derive(Default)]
pub struct CommandFlags(Vec<Flag>);

struct Flag {
    name: String,
    /// The values on the command line.
    values: Vec<String>,
}

impl CommandFlags {
    /// The flags of the subcommand that was given. There are none if a file has the fields.
    pub fn of(command: &Command, matches: &ArgMatches) -> Self {
        let (mut command, mut matches) = (command, matches);
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = command.find_subcommand(name) else { break };
            (command, matches) = (found, inner);
        }
        let flags = command.get_arguments().filter_map(|arg| {
            let name = arg.get_long()?.to_owned();
            let id = arg.get_id().as_str();
            let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
            let values = matches.get_raw(id).filter(|_| is_given).into_iter().flatten();
            Some(Flag { name, values: values.map(|value| value.to_string_lossy().into_owned()).collect() })
        });
        let flags = CommandFlags(flags.collect());
        let has_file = flags.find("file").is_some_and(|flag| !flag.values.is_empty());
        if has_file { CommandFlags::default() } else { flags }
    }

    /// The error with flags in place of their fields.
    pub fn name_in(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<ClientError>() {
            Ok(ClientError::Refused(problem)) => ClientError::Refused(Box::new(self.named(*problem))).into(),
            Ok(other) => other.into(),
            Err(error) => error,
        }
    }

    fn named(&self, mut problem: Problem) -> Problem {
        for error in &mut problem.errors {
            if let Some(flag) = self.with_value(&error.field, &error.detail) {
                error.field = flag;
            }
            error.detail = self.in_sentence(&error.detail);
        }
        problem
    }

    fn find(&self, name: &str) -> Option<&Flag> {
        self.0.iter().find(|flag| flag.name == name)
    }

    /// The flag of a field, or of the field that it is a part of.
    fn flag_of(&self, field: &str) -> Option<&Flag> {
        let outer = field.split('.').next().unwrap_or(field);
        let of_access = || OF_ACCESS.iter().find(|(known, _)| *known == field).map(|(_, flag)| *flag);
        self.find(&flag_name(field))
            .or_else(|| self.find(&flag_name(outer)))
            .or_else(|| of_access().and_then(|flag| self.find(flag)))
    }

    /// The flag of a field such as `tags[1]`, with its value unless the detail begins with it. A payload is too
    /// large for that, and its parts have no flags: there the flag has the path.
    fn with_value(&self, field: &str, detail: &str) -> Option<String> {
        if field.split(['.', '[']).next() == Some(PAYLOAD) {
            let Flag { name, .. } = self.find(PAYLOAD)?;
            return Some(if field == PAYLOAD { format!("--{name}") } else { format!("--{name}: {field}") });
        }
        let (path, index) = match field.strip_suffix(']').and_then(|field| field.rsplit_once('[')) {
            Some((path, index)) => (path, index.parse().unwrap_or(0)),
            None => (field, 0),
        };
        let Flag { name, values } = self.flag_of(path)?;
        let value = values.get(index).filter(|_| path != field || values.len() == 1);
        Some(match value {
            Some(value) if !value.is_empty() && detail.starts_with(value) => format!("--{name}"),
            Some(value) => format!("--{name} {}", quoted(&shortened(value, VALUE_CHARS_MAX))),
            None => format!("--{name}"),
        })
    }

    fn in_sentence(&self, sentence: &str) -> String {
        let mut before = "";
        let words = sentence.split(' ').map(|word| {
            let name = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let is_field = name.contains(['_', '.']) || (WORDS.contains(&name) && LEADS.contains(&before));
            before = word;
            match self.find(&flag_name(name)).filter(|_| is_field) {
                Some(flag) => word.replacen(name, &format!("--{}", flag.name), 1),
                None => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, Subcommand};
    use punctual_client::FieldError;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: Verb,
    }

    #[derive(Subcommand)]
    enum Verb {
        #[command(subcommand)]
        Job(crate::job::JobCommand),
    }

    fn said(line: &[&str], field: &str, detail: &str) -> String {
        let command = <Line as clap::CommandFactory>::command();
        let matches = command.clone().try_get_matches_from([&["punctual", "job"], line].concat()).unwrap();
        let error = FieldError { field: field.to_owned(), detail: detail.to_owned() };
        let problem = Problem { errors: vec![error], ..Problem::new(422, "invalid") };
        let error = ClientError::Refused(Box::new(problem)).into();
        CommandFlags::of(&command, &matches).name_in(error).to_string().replace("invalid\n  ", "")
    }

    #[test]
    fn errors_name_the_flag_its_value_and_other_flags() {
        let submit = ["submit", "x", "--tag", "a", "--tag", "", "--every", "1h", "--timeout=0s"];
        for (field, detail, told) in [
            ("timeout_secs", "must be more than 0", "--timeout 0s must be more than 0"),
            ("tags[1]", "must not be empty", "--tag '' must not be empty"),
            ("tags", "must be at most 1", "--tag must be at most 1"),
            ("retry.steps[3]", "must be short", "--retry-steps must be short"),
            ("max_runs", "give cron_expression or interval, too", "--max-runs give --cron or --every, too"),
            ("interval", "use an interval such as 5m", "--every 1h use an interval such as 5m"),
            (
                "jitter",
                "only applies to misfire_policy RUN_ALL",
                "--jitter only applies to --misfire-policy RUN_ALL",
            ),
            ("interval", "1h must be longer", "--every 1h must be longer"),
            ("payload.ms", "is 1.5", "--payload: payload.ms is 1.5"),
            ("name", "must not be empty", "name must not be empty"),
        ] {
            assert_eq!(said(&submit, field, detail), told);
        }
    }

    #[test]
    fn errors_in_a_payload_have_the_path_and_never_the_payload() {
        let submit = ["submit", "x", "--payload", r#"{"a": [{"$secret": "?", "b": "hunter2"}]}"#];
        for (field, told) in [
            ("payload", "--payload must be short"),
            ("payload[0]", "--payload: payload[0] must be short"),
            ("payload.a[0]", "--payload: payload.a[0] must be short"),
            ("payload.a.b[1]", "--payload: payload.a.b[1] must be short"),
        ] {
            assert_eq!(said(&submit, field, "must be short"), told);
        }
    }

    #[test]
    fn fields_of_a_file_keep_their_names() {
        let detail = "give cron_expression, too";
        assert_eq!(said(&["submit", "-f", "x.json"], "max_runs", detail), format!("max_runs {detail}"));
    }
}
