//! Crontabs of users and of the system: schedules, environment lines, `%` and the rules of Vixie cron about clock
//! changes.

use super::schedule::{SourceClock, SourceCron, SourceGap};
use super::{Import, ImportContext, ImportEntry, JobDraft, NO_TIMEOUT_SECS, SourceFile};
use punctual_core::recurrence::DstOverlap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub fn import(files: &[SourceFile], context: &ImportContext) -> Import {
    let mut import = Import::default();
    for file in files {
        let mut crontab = Crontab { context, zone: context.zone.clone(), env: BTreeMap::new() };
        let mut addresses = BTreeSet::new();
        for (index, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') || crontab.reads_variable(line) {
                continue;
            }
            let entry = ImportEntry::new(format!("{}:{}", file.name, index + 1), line);
            let entry = crontab.entry(line, entry);
            if entry.impossible.is_none() {
                addresses.extend(crontab.env.get("MAILTO").filter(|address| !address.is_empty()).cloned());
            }
            import.entries.push(entry);
        }
        if !addresses.is_empty() {
            import.notes.push(format!(
                "{}: cron mailed the output of its commands to {}; Punctual keeps it as the log of the run \
                 (punctual job logs)",
                file.name,
                addresses.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
    }
    import.notes.push(format!("times without a zone are in {}; --timezone chooses another", context.zone));
    import.notes.push(
        "cron starts commands in the home directory of their user with PATH=/usr/bin:/bin; Punctual uses the directory \
         and PATH of the worker unless the crontab sets HOME and PATH"
            .to_owned(),
    );
    import.notes.push(
        "as under cron, runs may overlap, failures are not retried and there is no time limit (at most 7 days): see \
         overlap_policy, max_retries and timeout_secs of the jobs"
            .to_owned(),
    );
    import
}

/// Common names of users, which are no programs.
const USERS: [&str; 13] = [
    "root", "nobody", "daemon", "www-data", "apache", "nginx", "postgres", "mysql", "redis", "ubuntu",
    "debian", "ec2-user", "deploy",
];

/// What the lines so far have set.
struct Crontab<'a> {
    context: &'a ImportContext,
    zone: String,
    env: BTreeMap<String, String>,
}

impl Crontab<'_> {
    /// Whether the line sets a variable; then it holds from here on.
    fn reads_variable(&mut self, line: &str) -> bool {
        let Some((name, value)) = line.split_once('=') else { return false };
        let name = name.trim().trim_matches(['"', '\'']);
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|one: char| one.is_ascii_digit())
        {
            return false;
        }
        let value = value.trim();
        let quoted = |mark: char| value.strip_prefix(mark).and_then(|value| value.strip_suffix(mark));
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
        match name {
            "CRON_TZ" => self.zone = value.to_owned(),
            name => drop(self.env.insert(name.to_owned(), value.to_owned())),
        }
        true
    }

    fn entry(&self, line: &str, mut entry: ImportEntry) -> ImportEntry {
        let Some((schedule, rest)) = split_schedule(line.trim_start_matches('-')) else {
            return entry.impossible("it is neither five fields and a command nor a variable");
        };
        if schedule.eq_ignore_ascii_case("@reboot") {
            let why = "@reboot has no meaning where many machines share the jobs: submit a job when a machine starts, \
                       such as from a systemd service";
            return entry.impossible(why);
        }
        let (user, command) = match self.context.has_users {
            false => (None, rest),
            true => match rest.split_once(char::is_whitespace) {
                Some((user, command)) => (Some(user), command.trim_start()),
                None => return entry.impossible("it has no command after its user"),
            },
        };
        if command.is_empty() {
            return entry.impossible("it has no command");
        }
        let (script, stdin) = split_input(command);
        let mut job = self.command(&script, stdin);
        if let Some(user) = user {
            entry.changed(format!(
                "it ran as the user {user}; Punctual runs commands as the user of the worker, or by queue as \
                 worker.run_as_by_queue says"
            ));
        }
        if let Some((word, rest)) = script.split_once(char::is_whitespace)
            && user.is_none()
            && USERS.contains(&word)
            && rest.trim_start().starts_with('/')
        {
            entry.changed(format!(
                "its command begins with {word}, as if that was a program: if it is a user, this is a crontab of the \
                 system, so import it with --system"
            ));
        }
        let (pattern, is_random) = without_random(schedule);
        if is_random {
            entry.changed(
                "cron chose a random time when it started; H chooses a fixed one by the name of the job",
            );
        }
        let clock = clock(&pattern);
        let source = SourceCron { pattern, zone: self.zone.clone(), clock };
        match source.apply_to(&mut job, self.context.now) {
            Ok(change) => entry.changes.extend(change),
            Err(error) => return entry.impossible(error),
        }
        job.insert("overlap_policy".to_owned(), json!("ALLOW"));
        entry.jobs.push(job);
        entry
    }

    fn command(&self, script: &str, stdin: Option<String>) -> JobDraft {
        let shell = self.env.get("SHELL").map_or("/bin/sh", String::as_str);
        let is_sh = matches!(shell, "/bin/sh" | "/usr/bin/sh" | "sh");
        let mut payload = match is_sh {
            true => json!({"script": script}),
            false => json!({"command": [shell, "-c", script]}),
        };
        let is_own =
            |name: &str| matches!(name, "SHELL" | "MAILTO" | "MAILFROM") || name.starts_with("PUNCTUAL_");
        let env: BTreeMap<_, _> = self.env.iter().filter(|(name, _)| !is_own(name)).collect();
        if !env.is_empty() {
            payload["env"] = json!(env);
        }
        if let Some(stdin) = stdin {
            payload["stdin"] = json!(stdin);
        }
        if let Some(home) = self.env.get("HOME").filter(|home| home.starts_with('/')) {
            payload["cwd"] = json!(home);
        }
        let fields = json!({
            "name": name_of(script),
            "job_type": if is_sh { "shell" } else { "process" },
            "payload": payload,
            "max_retries": 0,
            "timeout_secs": NO_TIMEOUT_SECS,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => JobDraft::new(),
        }
    }
}

/// The schedule of a line and what follows it.
fn split_schedule(line: &str) -> Option<(&str, &str)> {
    let fields = if line.starts_with('@') { 1 } else { 5 };
    let mut rest = line;
    for _ in 0..fields {
        let (_, after) = rest.split_once(char::is_whitespace)?;
        rest = after.trim_start();
    }
    Some((line[..line.len() - rest.len()].trim(), rest))
}

/// The command and its input: the first `%` ends the command, others are line breaks, `\%` is a percent sign.
fn split_input(command: &str) -> (String, Option<String>) {
    let mut parts = vec![String::new()];
    let mut letters = command.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_escaped = letter == '\\' && letters.peek() == Some(&'%');
        match (letter, parts.last_mut()) {
            ('%', _) => parts.push(String::new()),
            (_, Some(part)) if is_escaped => part.extend(letters.next()),
            (_, Some(part)) => part.push(letter),
            (_, None) => {}
        }
    }
    let script = parts.remove(0).trim_end().to_owned();
    let stdin = (!parts.is_empty()).then(|| parts.join("\n") + "\n");
    (script, stdin)
}

/// The pattern with `H` in place of the random ranges of some crons, and whether there are any.
fn without_random(schedule: &str) -> (String, bool) {
    let field = |field: &str| match field.split_once('~') {
        Some(("", "")) => "H".to_owned(),
        Some((low, high)) if !low.is_empty() && !high.is_empty() => format!("H({low}-{high})"),
        _ => field.to_owned(),
    };
    let fields: Vec<String> = schedule.split_whitespace().map(field).collect();
    (fields.join(" "), schedule.contains('~'))
}

/// Vixie cron and its successors follow the wall clock if the minute or the hour begins with `*`. Other entries
/// run once if clocks go back, and right after the change if they go forward.
fn clock(pattern: &str) -> SourceClock {
    let mut fields = pattern.split_whitespace();
    let has_wildcard = pattern == "@hourly" || fields.by_ref().take(2).any(|field| field.starts_with('*'));
    match has_wildcard {
        true => SourceClock::Known { gap: SourceGap::Skip, overlap: DstOverlap::Both },
        false => SourceClock::Known { gap: SourceGap::EachRightAfter, overlap: DstOverlap::First },
    }
}

/// A name from the program that a script mainly runs.
pub fn name_of(script: &str) -> String {
    const BEFORE_OTHERS: [&str; 17] = [
        "cd", "test", "[", "[[", "export", "set", "sleep", "umask", "if", "true", ":", "source", ".",
        "mkdir", "fi", "done", "}",
    ];
    const KEYWORDS: [&str; 5] = ["then", "else", "do", "{", "!"];
    const WRAPPERS: [&str; 17] = [
        "env", "nice", "ionice", "flock", "sudo", "timeout", "nohup", "exec", "time", "sh", "bash",
        "command", "chronic", "python3", "python", "php", "perl",
    ];
    let flat = script.replace("&&", ";").replace("||", ";").replace(['|', '\n'], ";");
    let program = |part: &str| {
        let mut words = part.split_whitespace().filter(|word| {
            let is_option = word.starts_with('-') || word.chars().all(|one| one.is_ascii_digit());
            !is_option && !word.contains('=') && !word.contains(['<', '>']) && !word.ends_with(".lock")
        });
        let mut best = None;
        for word in words.by_ref() {
            let word = word.trim_matches(['"', '\'', '(', ')', '`', '&']);
            let base = word.rsplit('/').next().unwrap_or_default();
            if best.is_none() && BEFORE_OTHERS.contains(&base) {
                return None;
            }
            if base.is_empty() || best.is_none() && KEYWORDS.contains(&base) {
                continue;
            }
            best = Some(base.to_owned());
            if !WRAPPERS.contains(&base) {
                break;
            }
        }
        // Some programs only wait, such as `perl -e 'sleep rand(60)'`.
        best.filter(|program| !BEFORE_OTHERS.contains(&program.as_str()))
    };
    flat.split(';').find_map(program).unwrap_or_else(|| "command".to_owned())
}
