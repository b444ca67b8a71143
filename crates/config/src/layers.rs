//! The precedence of values: flags, then variables, then the file, then defaults.

use crate::allowed::CommandChannel;
use crate::exit::{CliError, Exit};
use crate::file::{ConfigFile, USUAL_FILE};
use crate::handover;
use crate::settings::{Default, Setting, SettingsTable};
use crate::value::{self, ListItem, Raw, Value};
use punctual_client::{SettingBody, SettingsBody};
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// A problem in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file with its line, the variable, or the flag.
    pub place: String,
    /// For sorting within a file.
    pub line: usize,
    pub message: String,
}

impl ConfigProblem {
    pub fn new(place: impl fmt::Display, message: String) -> Self {
        ConfigProblem { place: place.to_string(), line: 0, message }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// All problems as one error.
pub fn refusal(problems: &[ConfigProblem]) -> CliError {
    let message = match problems {
        [only] => only.to_string(),
        several => {
            let lines: Vec<String> = several.iter().map(|problem| format!("\n  {problem}")).collect();
            format!("invalid configuration:{}", lines.concat())
        }
    };
    CliError { exit: Exit::Misunderstood, message }
}

/// Which configuration file to read.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigFlag {
    /// The configuration file; by default ./punctual.toml if it exists
    #[arg(long, env = "PUNCTUAL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFlag {
    pub fn naming(file: PathBuf) -> Self {
        ConfigFlag { config: Some(file) }
    }

    /// Reads the given file, or the default one if it exists.
    pub fn read(&self) -> Result<Option<ConfigFile>, Vec<ConfigProblem>> {
        let usual = Path::new(USUAL_FILE);
        match self.named() {
            Some(named) => ConfigFile::read(named).map(Some),
            None if usual.exists() => ConfigFile::read_trusted(usual).map(Some),
            None => Ok(None),
        }
    }

    /// The file that was explicitly given. An empty variable counts as not given.
    pub fn named(&self) -> Option<&Path> {
        self.config.as_deref().filter(|file| !file.as_os_str().is_empty())
    }
}

/// The flags of a table that were given.
#[derive(Debug, Clone)]
pub struct Flags<T> {
    given: BTreeMap<&'static str, Raw>,
    table: PhantomData<T>,
}

impl<T> std::default::Default for Flags<T> {
    fn default() -> Self {
        Flags { given: BTreeMap::new(), table: PhantomData }
    }
}

impl<T> Flags<T> {
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Whether the flag of this setting was given.
    pub fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }
}

impl<T: SettingsTable> Flags<T> {
    /// The same values as variables, for another process. Other users of the machine can read its arguments, but not these.
    pub fn variables(&self) -> Vec<(String, String)> {
        let given = |setting: &'static Setting| match self.given.get(setting.key)? {
            Raw::Words(words) => Some((setting.variable(), words.join(","))),
            _ => None,
        };
        T::settings().into_iter().filter_map(given).collect()
    }
}

impl<T: SettingsTable> clap::Args for Flags<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        T::settings().into_iter().fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<T: SettingsTable> clap::FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &'static Setting| {
            let words = matches.get_many::<String>(setting.key)?;
            Some((setting.key, Raw::Words(words.cloned().collect())))
        };
        Ok(Flags { given: T::settings().into_iter().filter_map(given).collect(), table: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.given.append(&mut Self::from_arg_matches(matches)?.given);
        Ok(())
    }
}

fn flag(setting: &'static Setting) -> clap::Arg {
    let default = match setting.default {
        Default::Is("") | Default::Unset { .. } => String::new(),
        Default::Is(text) => format!(" [default: {text}]"),
    };
    let flag = clap::Arg::new(setting.key)
        .long(setting.flag())
        .value_name((setting.placeholder)())
        .action(clap::ArgAction::Append)
        .help(format!("{} [env: {}]{default}", setting.about, setting.variable()));
    if setting.is_switch {
        return flag.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    flag
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum Source {
    Flag { flag: String },
    Variable { variable: String },
    File { file: PathBuf, line: usize },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag { flag } => f.write_str(flag),
            Source::Variable { variable } => f.write_str(variable),
            Source::File { file, line } => write!(f, "{}:{line}", file.display()),
            Source::Default => f.write_str("default"),
        }
    }
}

/// The environment of a command: its variables and its configuration file.
#[derive(Debug)]
pub struct Surroundings {
    pub variables: BTreeMap<String, String>,
    pub file: Option<ConfigFile>,
}

impl Surroundings {
    /// Reads the variables of this process, and the configuration file if there is one.
    pub fn find(config: &ConfigFlag) -> Result<Self, CliError> {
        let file = config.read().map_err(|problems| refusal(&problems))?;
        Ok(Surroundings { file, ..Surroundings::without_file() })
    }

    pub fn without_file() -> Self {
        Surroundings { variables: handover::variables(), file: None }
    }

    /// Without the variables of this process, which another terminal does not have.
    pub fn file_only(&self) -> Surroundings {
        Surroundings { variables: BTreeMap::new(), file: self.file.clone() }
    }

    pub fn read<T: SettingsTable>(&self, flags: &Flags<T>) -> Result<T, CliError> {
        let mut layers = Layers { flags: &flags.given, surroundings: self, problems: Vec::new() };
        let settings = T::read(&mut layers);
        if layers.problems.is_empty() { Ok(settings) } else { Err(refusal(&layers.problems)) }
    }

    /// The origin of a setting's value, for errors about the thing it names.
    pub fn origin<T: SettingsTable>(&self, flags: &Flags<T>, key: &str) -> String {
        let layers = Layers { flags: &flags.given, surroundings: self, problems: Vec::new() };
        let setting = T::settings().into_iter().find(|setting| setting.key == key);
        match setting.map(|setting| layers.find(setting).1) {
            Some(source @ Source::File { .. }) => format!("{source}: {key}"),
            Some(source @ (Source::Flag { .. } | Source::Variable { .. })) => source.to_string(),
            Some(Source::Default) | None => key.to_owned(),
        }
    }

    /// The files with secrets that the settings of a table name.
    pub fn secret_files<T: SettingsTable>(&self, flags: &Flags<T>) -> Vec<PathBuf> {
        let sources = self.sources(flags).into_iter();
        let named = sources.filter(|(setting, ..)| names_secret_file(setting.key));
        named.filter_map(|(_, value, _)| std::path::absolute(value.as_str()?).ok()).collect()
    }

    /// Every setting of a table with its value and origin; `read` reports invalid ones.
    pub fn sources<T: SettingsTable>(&self, flags: &Flags<T>) -> Vec<(&'static Setting, Json, Source)> {
        let layers = Layers { flags: &flags.given, surroundings: self, problems: Vec::new() };
        let found = |setting: &'static Setting| {
            let (raw, source) = layers.find(setting);
            let value = raw.and_then(|raw| (setting.check)(&raw, layers.directory(&source)).ok());
            (setting, value.unwrap_or(Json::Null), source)
        };
        T::settings().into_iter().map(found).collect()
    }
}

impl Surroundings {
    /// Settings as the API shows them. Values that may be secret are left out, and so are arguments of programs;
    /// passwords in URLs are not in values.
    pub fn report(&self, sources: Vec<(&'static Setting, Json, Source)>) -> SettingsBody {
        let shown = |(setting, value, source): (&'static Setting, Json, Source)| {
            let hidden = setting.key == HEARTBEAT_URL && !value.is_null();
            let from = match &source {
                Source::Flag { .. } => "flag",
                Source::Variable { .. } => "variable",
                Source::File { .. } => "file",
                Source::Default => "default",
            };
            SettingBody {
                key: setting.key.to_owned(),
                value: match setting.key {
                    _ if hidden => Json::Null,
                    COMMANDS => without_arguments(&value),
                    _ => value,
                },
                hidden,
                from: from.to_owned(),
                origin: (source != Source::Default).then(|| source.to_string()),
                about: setting.about.to_owned(),
            }
        };
        let file = self.file.as_ref().map(|file| file.path.display().to_string());
        SettingsBody { file, items: sources.into_iter().map(shown).collect() }
    }
}

/// The setting with programs and their arguments.
const COMMANDS: &str = "notify.commands";

/// Programs with the number of their arguments, which may be secret.
fn without_arguments(commands: &Json) -> Json {
    let commands = commands.as_array().into_iter().flatten().filter_map(Json::as_str);
    commands.filter_map(|text| CommandChannel::read(text).ok()).map(|channel| channel.shown()).collect()
}

/// A caller who knows the address of a heartbeat can send one.
const HEARTBEAT_URL: &str = "notify.heartbeat_url";

/// Whether the value of a setting may be or contain a secret that is no login in a URL.
pub fn may_be_secret(key: &str) -> bool {
    [HEARTBEAT_URL, COMMANDS].contains(&key)
}

/// Whether a setting names a file that only the server needs to read.
fn names_secret_file(key: &str) -> bool {
    key.ends_with("_key") || (key.ends_with("_file") && !key.ends_with("ca_file"))
}

/// The layers for one table, from highest to lowest precedence, and the problems found.
pub struct Layers<'a> {
    flags: &'a BTreeMap<&'static str, Raw>,
    surroundings: &'a Surroundings,
    problems: Vec<ConfigProblem>,
}

impl Layers<'_> {
    /// The value of a setting. If it is invalid, records a problem and uses the default.
    pub fn value<T: Value>(&mut self, setting: &'static Setting) -> T {
        let (raw, source) = self.find(setting);
        let Some(raw) = raw else { return T::unset().expect("a setting without a default can be unset") };
        match value::read::<T>(&raw) {
            Ok(value) => value.seen_from(self.directory(&source)),
            Err(wrong) => {
                self.problems.push(ConfigProblem::new(&source, wrong));
                T::unset().unwrap_or_else(|| T::read(&default(setting)).expect("a default can be read"))
            }
        }
    }

    fn find(&self, setting: &'static Setting) -> (Option<Raw>, Source) {
        if let Some(raw) = self.flags.get(setting.key) {
            return (Some(raw.clone()), Source::Flag { flag: format!("--{}", setting.flag()) });
        }
        let variable = setting.variable();
        // An empty variable counts as unset: that is how a unit or a compose file removes one.
        if let Some(text) = self.surroundings.variables.get(&variable).filter(|text| !text.is_empty()) {
            return (Some(Raw::word(text)), Source::Variable { variable });
        }
        let file = self.surroundings.file.as_ref();
        if let Some((file, entry)) = file.and_then(|file| Some((file, file.entry(setting)?))) {
            let source = Source::File { file: file.path.clone(), line: entry.line };
            return (Some(entry.raw.clone()), source);
        }
        let is_set = matches!(setting.default, Default::Is(_));
        (is_set.then(|| default(setting)), Source::Default)
    }

    /// The base of relative paths: the directory of their file, or the working directory.
    fn directory(&self, source: &Source) -> &Path {
        match (source, &self.surroundings.file) {
            (Source::File { .. }, Some(file)) => file.directory(),
            _ => Path::new(""),
        }
    }
}

fn default(setting: &Setting) -> Raw {
    match setting.default {
        Default::Is(text) => Raw::word(text),
        Default::Unset { .. } => Raw::Words(vec![]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{DataPlace, ServeSettings};

    fn surroundings(variables: &[(&str, &str)], file: &str) -> Surroundings {
        Surroundings {
            variables: variables
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
            file: Some(ConfigFile::parse(Path::new("/etc/punctual/punctual.toml"), file).unwrap()),
        }
    }

    fn flags<T>(key: &'static str, words: &[&str]) -> Flags<T> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Flags { given: BTreeMap::from([(key, Raw::Words(words))]), table: PhantomData }
    }

    #[test]
    fn flags_count_before_variables_before_the_file_before_defaults() {
        let both = surroundings(&[("PUNCTUAL_SLOTS", "3")], "slots = 2");
        let file = surroundings(&[("PUNCTUAL_SLOTS", "")], "slots = 2");
        let nothing = surroundings(&[], "");
        let slots = |around: &Surroundings, flags: &Flags<ServeSettings>| {
            around.read(flags).unwrap().worker.slots.0.min()
        };
        assert_eq!(slots(&both, &flags("slots", &["4"])), 4);
        assert_eq!(slots(&both, &Flags::default()), 3);
        assert_eq!(slots(&file, &Flags::default()), 2);
        assert_eq!(slots(&nothing, &Flags::default()), 16);
    }

    #[test]
    fn lists_come_from_commas_repeated_flags_and_arrays() {
        let queues = |around: &Surroundings, flags: &Flags<ServeSettings>| {
            let queues = around.read(flags).unwrap().worker.queues;
            queues.into_iter().map(|queue| queue.0).collect::<Vec<_>>().join("+")
        };
        let file = surroundings(&[], "queues = [\"a\", \"b\"]");
        assert_eq!(queues(&file, &Flags::default()), "a+b");
        assert_eq!(queues(&file, &flags("queues", &["c,d", "e,"])), "c+d+e");
        assert_eq!(queues(&file, &flags("queues", &[""])), "");
        assert_eq!(queues(&surroundings(&[("PUNCTUAL_QUEUES", "f, g")], ""), &Flags::default()), "f+g");
    }

    #[test]
    fn paths_of_a_file_are_relative_to_it() {
        let place = |around: &Surroundings, flags: &Flags<DataPlace>| around.read(flags).unwrap().data_dir;
        let file = surroundings(&[], "data_dir = \"data\"");
        assert_eq!(place(&file, &Flags::default()), Path::new("/etc/punctual/data"));
        assert_eq!(place(&file, &flags("data_dir", &["data"])), Path::new("data"));
        assert_eq!(place(&surroundings(&[], ""), &Flags::default()), Path::new("./punctual-data"));
    }

    #[test]
    fn a_wrong_value_is_told_with_where_it_comes_from() {
        let around = surroundings(&[("PUNCTUAL_SLOTS", "many"), ("PUNCTUAL_LEASE", "1")], "");
        let told = around.read(&flags::<ServeSettings>("prefetch", &["-1"])).unwrap_err();
        assert_eq!(told.exit, Exit::Misunderstood);
        assert_eq!(
            told.message,
            "invalid configuration:\n  \
             PUNCTUAL_SLOTS: must be a number from 1 to 10000, or a minimum and a maximum, such as \"4..64\", but is \"many\"\n  \
             --prefetch: must be a number from 0 to 10000, but is \"-1\"\n  \
             PUNCTUAL_LEASE: must be a duration from 500ms to 10m, such as 30s, 5m or PT1M, but is \"1\""
        );
    }

    #[test]
    fn files_with_secrets_are_known_by_their_keys() {
        let file = "tls_key = \"server.key\"\n[http]\nsigning_key_file = \"/k\"\nca_file = \"/ca\"";
        let around = surroundings(&[("PUNCTUAL_STORE_PASSWORD_FILE", "/p")], file);
        let files = around.secret_files(&Flags::<ServeSettings>::default());
        assert_eq!(files, ["/etc/punctual/server.key", "/k", "/p"].map(PathBuf::from));
    }

    /// Logins in addresses, arguments of programs, and addresses that are secrets themselves.
    #[test]
    fn the_report_has_no_secret_of_any_setting() {
        let schemes =
            ["postgres", "mysql", "redis", "rediss", "etcd", "zookeeper", "nats", "amqp", "http", "https"];
        let logins = [
            "ann:hunter2@h:1/d",
            ":hunter2@h:1/d",
            "h:1/d?password=hunter2",
            "h:1/d?user=ann&password=hunter2",
        ];
        let holds_address = |setting: &&&Setting| {
            let name = setting.key.rsplit('.').next().unwrap_or_default();
            name.ends_with("url") || ["issuer", "replica", "commands"].contains(&name)
        };
        let all = ServeSettings::settings();
        let mut shown = BTreeMap::new();
        for setting in all.iter().filter(holds_address) {
            let addresses =
                schemes.iter().flat_map(|scheme| logins.map(|login| format!("{scheme}://{login}")));
            let texts: Vec<String> = match setting.key {
                COMMANDS => vec!["pager=/bin/page --key hunter2".to_owned()],
                _ => addresses.collect(),
            };
            for text in texts {
                let around = surroundings(&[(&setting.variable(), &text)], "");
                let report = around.report(around.sources(&Flags::<ServeSettings>::default()));
                let report = serde_json::to_string(&report).unwrap();
                assert!(!report.contains("hunter2"), "{} = {text}: {report}", setting.key);
                let item = around.sources(&Flags::<ServeSettings>::default()).into_iter();
                let is_taken =
                    item.filter(|(one, ..)| one.key == setting.key).any(|(_, value, _)| !value.is_null());
                *shown.entry(setting.key).or_insert(0) += usize::from(is_taken);
            }
        }
        // The others refuse addresses with a login.
        let taken: Vec<&str> = shown.iter().filter(|(_, count)| **count > 0).map(|(key, _)| *key).collect();
        assert_eq!(
            taken,
            [
                "broker.url",
                "coordination.url",
                "events.url",
                "intake.url",
                "notify.commands",
                "notify.heartbeat_url",
                "store.replica",
                "store.url"
            ]
        );
    }

    #[test]
    fn every_value_knows_its_source() {
        let around = surroundings(&[("PUNCTUAL_PREFETCH", "3")], "\nlease = \"9s\"");
        let sources = around.sources(&flags::<ServeSettings>("slots", &["4"]));
        let shown = |key: &str| {
            let (_, value, source) = sources.iter().find(|(setting, ..)| setting.key == key).unwrap();
            format!("{value} from {source}")
        };
        assert_eq!(shown("slots"), "4 from --slots");
        assert_eq!(shown("prefetch"), "3 from PUNCTUAL_PREFETCH");
        assert_eq!(shown("lease"), "\"9s\" from /etc/punctual/punctual.toml:2");
        assert_eq!(shown("listen"), "\"127.0.0.1:7070\" from default");
        assert_eq!(shown("clock_start"), "null from default");
        let given = flags::<ServeSettings>("slots", &["4"]);
        let origins = ["slots", "prefetch", "lease"].map(|key| around.origin(&given, key));
        assert_eq!(origins, ["--slots", "PUNCTUAL_PREFETCH", "/etc/punctual/punctual.toml:2: lease"]);
    }
}
