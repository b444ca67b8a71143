//! What the operator allows jobs to do: run commands here, and connect to targets beyond the public internet.

use crate::value::{ListItem, one_of, word, words};
use punctual_client::SetChannel;
use punctual_core::notify::ChannelSecret;
use punctual_core::time::Timestamp;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A way to run commands that the operator may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Allowed {
    /// Programs with arguments
    Process,
    /// Scripts through `sh -c`
    Shell,
}

impl ListItem for Allowed {
    fn kind_of_list() -> String {
        format!("a list of {}", words::<Allowed>(" and "))
    }

    fn placeholder() -> String {
        words::<Allowed>("|")
    }

    fn read(text: &str) -> Result<Self, String> {
        one_of(text)
    }

    fn written(&self) -> String {
        word(self)
    }
}

/// A network or host that http jobs may connect to, as written. A build without http jobs accepts any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNetwork(pub String);

impl ListItem for AllowedNetwork {
    fn kind_of_list() -> String {
        "a list of networks and hosts, such as [\"10.0.0.0/8\", \"internal.example:8080\"]".to_owned()
    }

    fn placeholder() -> String {
        "NETWORK|HOST".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse::<punctual_worker::http::Allow>().map_err(|error| error.to_string())?;
        Ok(AllowedNetwork(text.to_owned()))
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}

/// A channel of notifications that runs a program, as NAME=PROGRAM ARGUMENT….
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandChannel {
    pub name: String,
    pub command: Vec<String>,
}

impl CommandChannel {
    /// The name and the program, with the number of its arguments: they may be secret.
    pub fn shown(&self) -> String {
        let (name, program) = (&self.name, self.command.first().map_or("", String::as_str));
        match self.command.len().saturating_sub(1) {
            0 => format!("{name}={program}"),
            1 => format!("{name}={program} (1 argument)"),
            arguments => format!("{name}={program} ({arguments} arguments)"),
        }
    }
}

impl ListItem for CommandChannel {
    fn kind_of_list() -> String {
        "a list of channels with their programs, such as [\"pager=/usr/local/bin/page --urgent\"]".to_owned()
    }

    fn placeholder() -> String {
        "NAME=PROGRAM".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let (name, command) =
            text.split_once('=').ok_or("must be a name and a program, such as pager=/usr/local/bin/page")?;
        let (name, command) =
            (name.trim(), command.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        if let Some(problem) = punctual_core::names::path_name_problem(name) {
            return Err(format!("the name of the channel {problem}"));
        }
        if command.is_empty() {
            return Err("must have a program after the name, such as pager=/usr/local/bin/page".to_owned());
        }
        Ok(CommandChannel { name: name.to_owned(), command })
    }

    fn written(&self) -> String {
        format!("{}={}", self.name, self.command.join(" "))
    }
}

/// A channel of notifications, as a table of the configuration file. Secret values are in files, or references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredChannel {
    pub name: String,
    pub channel: SetChannel,
    /// The files with values of fields.
    pub files: BTreeMap<String, PathBuf>,
}

/// Ends the key with the file of a field.
const IN_FILE: &str = "_file";

impl ListItem for ConfiguredChannel {
    fn kind_of_list() -> String {
        "tables [[notify.channels]] in the configuration file, each with name, type and the fields of the channel".to_owned()
    }

    fn placeholder() -> String {
        "TABLE".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let Ok(Json::Object(mut fields)) = serde_json::from_str(text) else {
            return Err(format!("must be {}", Self::kind_of_list()));
        };
        let mut files = BTreeMap::new();
        for (key, value) in std::mem::take(&mut fields) {
            match (key.strip_suffix(IN_FILE), value) {
                (Some(field), Json::String(path)) => {
                    drop(files.insert(field.to_owned(), PathBuf::from(path)))
                }
                (Some(_), _) => return Err(format!("must have the path of a file as {key}")),
                (None, value) => drop(fields.insert(key, value)),
            }
        }
        let mut channel: SetChannel = serde_json::from_value(Json::Object(fields))
            .map_err(|error| format!("must be right: {error}"))?;
        let name = channel.name.take().ok_or("must have a name")?;
        let described = channel.clone().channel(Timestamp::EPOCH);
        let secrets = described.secrets();
        if let Some(unknown) = files.keys().find(|file| secrets.iter().all(|(field, _)| field != file)) {
            return Err(format!("must not have {unknown}{IN_FILE} in {name}: {unknown} is not secret"));
        }
        for (field, value) in secrets {
            let is_secret = matches!(value, Some(ChannelSecret::Plain(_))) && described.is_hidden(field);
            if is_secret {
                return Err(format!(
                    "must not have the secret {field} of {name}: write it to a file, and set {field}{IN_FILE} to its path"
                ));
            }
        }
        let problems = described.problems(&name);
        match problems.into_iter().find(|problem| !files.contains_key(&problem.field)) {
            Some(problem) => Err(format!("must be right: {} of {name} {}", problem.field, problem.fix)),
            None => Ok(ConfiguredChannel { name, channel, files }),
        }
    }

    fn written(&self) -> String {
        let mut fields = serde_json::to_value(&self.channel).unwrap_or_default();
        fields["name"] = self.name.as_str().into();
        for (field, file) in &self.files {
            fields[format!("{field}{IN_FILE}")] = file.to_string_lossy().into();
        }
        fields.to_string()
    }

    fn seen_from(mut self, directory: &Path) -> Self {
        self.files.values_mut().for_each(|file| *file = directory.join(&*file));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shown_without_its_arguments() {
        let shown = |text: &str| CommandChannel::read(text).unwrap().shown();
        assert_eq!(shown("pager=/bin/page"), "pager=/bin/page");
        assert_eq!(shown("pager=/bin/page hunter2"), "pager=/bin/page (1 argument)");
        assert_eq!(shown("pager=/bin/page --token hunter2"), "pager=/bin/page (2 arguments)");
    }

    #[test]
    fn a_configured_channel_has_its_secrets_in_files() {
        let read = |text: &str| ConfiguredChannel::read(text).map(|one| one.seen_from(Path::new("/etc")));
        let chat = read(r#"{"name": "chat", "type": "slack", "url_file": "slack-url"}"#).unwrap();
        assert_eq!(chat.files["url"], Path::new("/etc/slack-url"));
        assert_eq!(read(&chat.written()), Ok(chat));
        for (text, error) in [
            ("chat", "must be tables [[notify.channels]]"),
            (r#"{"type": "slack"}"#, "must have a name"),
            (r#"{"name": "a", "type": "slack"}"#, "must be right: url of a is needed"),
            (
                r#"{"name": "a", "type": "slack", "url": "https://x.example/"}"#,
                "must not have the secret url of a",
            ),
            (r#"{"name": "a", "type": "email", "host_file": "x"}"#, "must not have host_file"),
            (r#"{"name": "a", "type": "command"}"#, "must be right: command of a is needed"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.starts_with(error), "{text}: {told}");
        }
    }
}
