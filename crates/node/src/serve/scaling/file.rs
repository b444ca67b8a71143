//! The file of scale hooks: read at the start, and rejected as a whole if anything in it is invalid.

use punctual_client::Span;
use punctual_config::exit::CliError;
use punctual_config::{exposure, foreign_hand};
use punctual_core::names::name_problem;
use punctual_core::scaling::{Threshold, Trigger};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SUSTAINED_DEFAULT: Duration = Duration::from_secs(60);
const COOL_DOWN_DEFAULT: Duration = Duration::from_secs(300);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The maximum of any duration in the file.
const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Hooks in one file.
const HOOKS_MAX: usize = 100;

/// A hook: its queue, its thresholds, and its target.
#[derive(Debug)]
pub struct Hook {
    pub name: String,
    /// All queues together if absent.
    pub queue: Option<String>,
    pub trigger: Trigger,
    pub timeout: Duration,
    pub target: HookTarget,
}

#[derive(Debug)]
pub enum HookTarget {
    /// Program and arguments; no shell is involved.
    Command(Vec<String>),
    Web(Box<super::web::WebHook>),
}

impl Hook {
    /// All hooks of a file; none without a file. Logs how many there are, and warns if other users could
    /// write to the file.
    pub fn read_all(path: Option<&Path>) -> Result<Vec<Hook>, CliError> {
        let Some(path) = path else { return Ok(vec![]) };
        let wrong = |what: String| CliError::cannot_start(format!("{}: {what}", path.display()));
        let unreadable =
            |error: std::io::Error| wrong(format!("cannot read the file of scale hooks: {error}"));
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            // Reading a pipe, for example, would block.
            return Err(wrong("not a file: pass a TOML file with scale hooks".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let hooks = parse(&text).map_err(wrong)?;
        tracing::info!(hooks = hooks.len(), file = %path.display(), "scale hooks were loaded");
        let mut warnings: Vec<String> = foreign_hand(path).map_err(unreadable)?.into_iter().collect();
        if hooks.iter().any(Hook::has_secret) {
            warnings.extend(exposure(path).map_err(unreadable)?);
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(hooks)
    }

    /// Whether it contains a secret.
    fn has_secret(&self) -> bool {
        match &self.target {
            HookTarget::Command(_) => false,
            HookTarget::Web(hook) => hook.has_login(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HooksFile {
    #[serde(default)]
    hook: Vec<WrittenHook>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHook {
    name: String,
    queue: Option<String>,
    depth_above: Option<u64>,
    depth_below: Option<u64>,
    wait_above: Option<Span>,
    wait_below: Option<Span>,
    #[serde(rename = "for")]
    sustained: Option<Span>,
    cool_down: Option<Span>,
    timeout: Option<Span>,
    command: Option<Vec<String>>,
    url: Option<String>,
    ca: Option<PathBuf>,
}

fn parse(text: &str) -> Result<Vec<Hook>, String> {
    let written: HooksFile = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    if written.hook.len() > HOOKS_MAX {
        return Err(format!("at most {HOOKS_MAX} hooks are allowed, not {}", written.hook.len()));
    }
    let mut names = BTreeSet::new();
    let hook = |written: WrittenHook| {
        let name = written.name.clone();
        let about = |problem| format!("hook {name:?}: {problem}");
        if !names.insert(name.clone()) {
            return Err(about("the name is used more than once".to_owned()));
        }
        read(written).map_err(about)
    };
    written.hook.into_iter().map(hook).collect()
}

fn read(written: WrittenHook) -> Result<Hook, String> {
    for (field, text) in [("name", Some(&written.name)), ("queue", written.queue.as_ref())] {
        if let Some(fix) = text.and_then(|text| name_problem(text)) {
            return Err(format!("{field} {fix}"));
        }
    }
    let thresholds = [
        written.depth_above.map(Threshold::DepthAbove),
        written.depth_below.map(Threshold::DepthBelow),
        written.wait_above.map(|wait| Threshold::WaitAbove(wait.get())),
        written.wait_below.map(|wait| Threshold::WaitBelow(wait.get())),
    ];
    let mut thresholds = thresholds.into_iter().flatten();
    let (Some(threshold), None) = (thresholds.next(), thresholds.next()) else {
        return Err("must have one of depth_above, depth_below, wait_above and wait_below".to_owned());
    };
    possible(threshold)?;
    if written.ca.is_some() && written.url.is_none() {
        return Err("ca needs a url".to_owned());
    }
    let target = match (written.command, written.url) {
        (Some(command), None) if command.first().is_some_and(|program| !program.is_empty()) => {
            // No program can be started with such an argument.
            if let Some(at) = command.iter().position(|word| word.contains('\0')) {
                return Err(format!("command has a NUL character in word {}: remove it", at + 1));
            }
            HookTarget::Command(command)
        }
        (None, Some(url)) => web(&url, written.ca.as_deref())?,
        (Some(_), None) => return Err("command must name a program, as a list of words".to_owned()),
        _ => return Err("must have either command or url".to_owned()),
    };
    let sustained = time("for", written.sustained, SUSTAINED_DEFAULT)?;
    let cool_down = time("cool_down", written.cool_down, COOL_DOWN_DEFAULT)?;
    let timeout = time("timeout", written.timeout, TIMEOUT_DEFAULT)?;
    let trigger = Trigger { threshold, sustained, cool_down };
    Ok(Hook { name: written.name, queue: written.queue, trigger, timeout, target })
}

/// Rejects thresholds that no queue can reach.
fn possible(threshold: Threshold) -> Result<(), String> {
    match threshold {
        Threshold::DepthBelow(0) => {
            Err("depth_below must be at least 1; use 1 for an empty queue".to_owned())
        }
        Threshold::WaitBelow(Duration::ZERO) => {
            Err("wait_below must be longer than 0s; use 1ms for a queue in which nothing waits".to_owned())
        }
        _ => Ok(()),
    }
}

fn web(url: &str, ca: Option<&Path>) -> Result<HookTarget, String> {
    super::web::WebHook::new(url, ca).map(|hook| HookTarget::Web(Box::new(hook)))
}

fn time(field: &str, written: Option<Span>, default: Duration) -> Result<Duration, String> {
    let time = written.map_or(default, Span::get);
    if time > TIME_MAX { Err(format!("{field} must be at most {}", Span::from(TIME_MAX))) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_hooks_is_read() {
        let hooks = parse(
            r#"
            [[hook]]
            name = "more"
            queue = "images"
            depth_above = 1000
            for = "30s"
            cool_down = "2m"
            timeout = "5s"
            command = ["/usr/local/bin/scale", "up"]

            [[hook]]
            name = "fewer"
            wait_below = "1s"
            url = "https://scaler.example.org/down"
            "#,
        )
        .unwrap();
        let more = &hooks[0];
        assert_eq!((more.name.as_str(), more.queue.as_deref()), ("more", Some("images")));
        let expected = Trigger {
            threshold: Threshold::DepthAbove(1_000),
            sustained: Duration::from_secs(30),
            cool_down: Duration::from_secs(120),
        };
        assert_eq!((more.trigger, more.timeout), (expected, Duration::from_secs(5)));
        assert!(
            matches!(&more.target, HookTarget::Command(words) if *words == ["/usr/local/bin/scale", "up"]),
            "{more:?}"
        );
        assert_eq!(hooks[1].trigger.threshold, Threshold::WaitBelow(Duration::from_secs(1)));
        assert_eq!((hooks[1].trigger.cool_down, hooks[1].timeout), (COOL_DOWN_DEFAULT, TIMEOUT_DEFAULT));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_with_the_name_of_the_hook() {
        for (lines, told) in [
            ("depth_above = 1", "hook \"x\": must have either command or url"),
            ("command = [\"a\"]", "hook \"x\": must have one of depth_above"),
            (
                "depth_above = 1\nwait_above = \"1s\"\ncommand = [\"a\"]",
                "hook \"x\": must have one of depth_above",
            ),
            ("depth_above = 1\ncommand = [\"a\"]\nca = \"b\"", "hook \"x\": ca needs a url"),
            ("depth_above = 1\ncommand = []", "hook \"x\": command must name a program"),
            ("depth_above = 1\ncommand = [\"\"]", "hook \"x\": command must name a program"),
            (
                "depth_above = 1\ncommand = [\"a\", \"b\\u0000c\"]",
                "hook \"x\": command has a NUL character in word 2",
            ),
            ("depth_below = 0\ncommand = [\"a\"]", "hook \"x\": depth_below must be at least 1"),
            ("wait_below = \"0s\"\ncommand = [\"a\"]", "hook \"x\": wait_below must be longer than 0s"),
            ("depth_above = 1\nurl = \"ftp://a\"", "hook \"x\": url must begin with http"),
            ("depth_above = 1\ncommand = [\"a\"]\nfor = \"25h\"", "hook \"x\": for must be at most"),
            ("depth_above = 1\ncommand = [\"a\"]\nqueue = \"\"", "hook \"x\": queue "),
        ] {
            let problem = parse(&format!("[[hook]]\nname = \"x\"\n{lines}")).unwrap_err();
            assert!(problem.starts_with(told), "{lines}: {problem}");
        }
        let twice = "[[hook]]\nname = \"x\"\ndepth_above = 1\ncommand = [\"a\"]\n".repeat(2);
        assert_eq!(parse(&twice).unwrap_err(), "hook \"x\": the name is used more than once");
        assert!(parse("[[hook]]\nname = \"x\"\ncomand = [\"a\"]").unwrap_err().contains("comand"));
    }
}
