//! `punctual.toml`: its keys and values with their line numbers, checked against the tables of settings.

use crate::layers::ConfigProblem;
use crate::settings::{self, Setting};
use crate::suggest::did_you_mean;
use crate::trust::Ownership;
use crate::value::Raw;
use rustix::fs::{Mode, OFlags};
use serde_json::Value as Json;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file that is read from the working directory if it exists.
pub const USUAL_FILE: &str = "punctual.toml";
/// The file name for "no file".
const NO_FILE: &str = "/dev/null";
/// Bytes of a configuration file: enough for every setting with pages of comments. A larger file is something
/// else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A valid configuration file.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    pub path: PathBuf,
    entries: Vec<Entry>,
}

/// One key with its value.
#[derive(Debug, Clone)]
pub struct Entry {
    key: String,
    pub raw: Raw,
    pub line: usize,
}

impl ConfigFile {
    /// Reads and checks a file. Reports all errors at once.
    pub fn read(path: &Path) -> Result<Self, Vec<ConfigProblem>> {
        ConfigFile::read_if(path, |_| None)
    }

    /// The same for a file that was found without being named. It decides which server gets which token, so another user must
    /// not have written it.
    pub fn read_trusted(path: &Path) -> Result<Self, Vec<ConfigProblem>> {
        ConfigFile::read_if(path, |metadata| Ownership::of(metadata).wrong_for_configuration())
    }

    fn read_if(
        path: &Path,
        distrust: impl Fn(&Metadata) -> Option<String>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let problem = |message: String| vec![ConfigProblem::new(path.display(), message)];
        let unreadable = |error: io::Error| problem(format!("cannot read the configuration file: {error}"));
        let text = match open(path).map_err(unreadable)? {
            None => String::new(),
            Some((file, metadata)) => {
                if let Some(why) = distrust(&metadata) {
                    let file = path.display();
                    return Err(problem(format!(
                        "not used, because {why}: change its owner and mode, or pass it with --config {file} if you trust it"
                    )));
                }
                read_text(file).map_err(unreadable)?
            }
        };
        ConfigFile::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, Vec<ConfigProblem>> {
        let lines = LineNumbers { path, text };
        let table = DeTable::parse(text).map_err(|error| {
            let place = error.span().map_or_else(|| path.display().to_string(), |span| lines.place(&span));
            vec![ConfigProblem::new(place, format!("not TOML: {}", error.message()))]
        })?;
        let mut entries = Vec::new();
        let mut problems = Vec::new();
        gather("", table.get_ref(), &lines, &mut entries, &mut problems);
        entries.sort_by_key(|entry| entry.line);
        let file = ConfigFile { path: path.to_owned(), entries };
        problems.extend(file.problems());
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() { Ok(file) } else { Err(problems) }
    }

    pub fn entry(&self, setting: &Setting) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == setting.key)
    }

    /// The base of relative paths in this file, so that the file means the same for the server and for every
    /// command.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    pub fn place(&self, entry: &Entry) -> String {
        format!("{}:{}", self.path.display(), entry.line)
    }

    fn problems(&self) -> Vec<ConfigProblem> {
        let settings = settings::all();
        let wrong = |entry: &Entry| {
            let message = match settings.iter().find(|setting| setting.key == entry.key) {
                None => unknown(&entry.key),
                Some(setting) => {
                    let wrong = (setting.check)(&entry.raw, self.directory()).err()?;
                    format!("{} {wrong}", entry.key)
                }
            };
            Some(ConfigProblem { line: entry.line, ..ConfigProblem::new(self.place(entry), message) })
        };
        self.entries.iter().filter_map(wrong).collect()
    }
}

/// Opens a file. Other kinds of files may never end, or block forever; only `/dev/null` is accepted, as the usual
/// name for "no file".
fn open(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    if path == Path::new(NO_FILE) {
        return Ok(None);
    }
    // Opening a pipe must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(Some((file, metadata)))
}

fn read_text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Line numbers of positions in a file.
struct LineNumbers<'a> {
    path: &'a Path,
    text: &'a str,
}

impl LineNumbers<'_> {
    /// From 1.
    fn number(&self, span: &Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    fn place(&self, span: &Range<usize>) -> String {
        format!("{}:{}", self.path.display(), self.number(span))
    }
}

/// Collects the keys of a table and of its known subtables.
fn gather(
    prefix: &str,
    table: &DeTable<'_>,
    lines: &LineNumbers<'_>,
    entries: &mut Vec<Entry>,
    problems: &mut Vec<ConfigProblem>,
) {
    for (name, value) in table {
        let line = lines.number(&name.span());
        let key = format!("{prefix}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if is_table(&key) => {
                gather(&format!("{key}."), inner, lines, entries, problems)
            }
            DeValue::Table(_) => {
                let message = unknown_table(&key);
                problems
                    .push(ConfigProblem { line, ..ConfigProblem::new(lines.place(&name.span()), message) });
            }
            _ => entries.push(Entry { key, raw: raw(value), line }),
        }
    }
}

fn is_table(name: &str) -> bool {
    settings::all().iter().any(|setting| setting.table() == name)
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.to_string()),
        // Times may be written with or without quotes.
        DeValue::Datetime(time) => Raw::Text(time.to_string()),
        DeValue::Integer(number) => {
            let read = i128::from_str_radix(number.as_str(), number.radix());
            Raw::Number(read.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        DeValue::Array(items) => {
            // A setting that takes tables reads each as JSON.
            let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::Table(_) => json(item.get_ref()).map(|table| table.to_string()),
                value => value.as_str().map(str::to_owned),
            };
            match items.iter().map(text).collect() {
                Some(texts) => Raw::List(texts),
                None => Raw::Other("a list with values that are not strings".to_owned()),
            }
        }
        DeValue::Float(number) => Raw::Number(number.to_string()),
        DeValue::Boolean(value) => Raw::Other(value.to_string()),
        DeValue::Table(_) => Raw::Other("a table".to_owned()),
    }
}

/// The value as JSON; `None` for numbers with a fraction, which no setting has.
fn json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => Json::from(text.to_string()),
        DeValue::Datetime(time) => Json::from(time.to_string()),
        DeValue::Integer(number) => Json::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?),
        DeValue::Boolean(value) => Json::from(*value),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect::<Option<Json>>()?,
        DeValue::Table(table) => {
            let members = table.iter();
            let members =
                members.map(|(name, value)| Some((name.get_ref().to_string(), json(value.get_ref())?)));
            Json::Object(members.collect::<Option<_>>()?)
        }
        DeValue::Float(_) => return None,
    })
}

/// The error for a key that is not a setting.
fn unknown(key: &str) -> String {
    let settings = settings::all();
    let known: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
    let name = key.rsplit('.').next().unwrap_or(key);
    // Also suggested when the table is missing or wrong.
    let in_file = settings.iter().find(|setting| setting.name() == format!("{name}_file"));
    if let Some(setting) = in_file {
        let key = setting.key;
        return format!(
            "secrets are not allowed here: write it to a separate file, and set {key} to its path"
        );
    }
    if is_table(key) {
        return format!("{key} is a table: write [{key}] on a line of its own, and its settings below");
    }
    let displaced = settings.iter().find(|setting| setting.key != key && setting.name() == name);
    match displaced {
        Some(setting) if setting.table().is_empty() => {
            format!("{key} is not a setting, but {name} is: move it before the first [table]")
        }
        Some(setting) => {
            format!("{key} is not a setting, but {} is: move it below [{}]", setting.key, setting.table())
        }
        None => format!("{key} is not a setting{}", offered(key, known)),
    }
}

fn unknown_table(name: &str) -> String {
    if settings::all().iter().any(|setting| setting.key == name) {
        return format!("{name} is a setting, not a table: write {name} = …");
    }
    let settings = settings::all();
    let tables = settings.iter().map(|setting| setting.table()).filter(|table| !table.is_empty());
    format!("[{name}] is not a table of settings{}", offered(name, tables))
}

fn offered<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let question = did_you_mean(name, known);
    if question.is_empty() { "; `punctual config template` shows all of them".to_owned() } else { question }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn problems(text: &str) -> Vec<String> {
        match ConfigFile::parse(Path::new("punctual.toml"), text) {
            Ok(_) => vec![],
            Err(problems) => problems.iter().map(ConfigProblem::to_string).collect(),
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_used_only_if_it_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        assert!(ConfigFile::read_trusted(path).is_ok());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(ConfigFile::read(path).is_ok());
        let told = ConfigFile::read_trusted(path).unwrap_err()[0].to_string();
        assert!(
            told.starts_with(&format!("{}: not used, because users other than", path.display())),
            "{told}"
        );
        assert!(told.contains("(mode 0666)") && told.contains("--config"), "{told}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_all_at_once() {
        let text = "slots = 4\nslotz = 4\n\nprefetch = \"many\"\nlisten = 7070\n[log]\nlevel = \"loud\"\n";
        let told = problems(text);
        assert_eq!(told.len(), 4, "{told:#?}");
        assert_eq!(told[0], "punctual.toml:2: slotz is not a setting; did you mean slots?");
        assert_eq!(told[1], "punctual.toml:4: prefetch must be a number from 0 to 10000, but is \"many\"");
        assert_eq!(
            told[2],
            "punctual.toml:5: listen must be an address with a port, such as 127.0.0.1:7070 or [::1]:7070, \
             but is the number 7070"
        );
        assert!(told[3].starts_with("punctual.toml:7: log.level must be one of off, error"), "{}", told[3]);
    }

    #[test]
    fn types_are_told_apart() {
        for (text, found) in [
            ("slots = \"4\"", "\"4\""),
            ("slots = 4.5", "the number 4.5"),
            ("slots = true", "true"),
            ("slots = [4]", "a list with values that are not strings"),
            ("slots = -1", "the number -1"),
            ("drain_grace = 30", "the number 30"),
            ("drain_grace = \"8d\"", "\"8d\""),
            ("queues = \"mail\"", "\"mail\""),
            ("listen = [\"127.0.0.1:7070\"]", "a list"),
        ] {
            let told = problems(text);
            assert!(told.len() == 1 && told[0].ends_with(&format!("but is {found}")), "{text}: {told:?}");
        }
        assert_eq!(problems("slots = 0x10\ndrain_grace = \"PT1M\"\nqueues = [\"mail\"]"), [""; 0]);
        assert_eq!(problems("clock = \"manual\"\nclock_start = 2026-03-29T03:00:00Z"), [""; 0]);
    }

    #[test]
    fn lists_are_told_with_the_item_that_is_wrong() {
        for (text, told) in [
            ("allow = [\"shell\", \"bash\"]", "allow must be process or shell, but has \"bash\""),
            ("queues = [\"mail\", \"\"]", "queues must be the name of a queue, but has \"\""),
            ("allow = \"shell\"", "allow must be a list of process and shell, but is \"shell\""),
        ] {
            assert_eq!(problems(text), [format!("punctual.toml:1: {told}")]);
        }
        let told = problems("[http]\nallow = [\"10.0.0.0/8\", \"10.0.0.0/99\"]");
        let is_right = |told: &[String]| {
            told.len() == 1
                && told[0].contains(": http.allow must be")
                && told[0].ends_with("but has \"10.0.0.0/99\"")
        };
        assert!(is_right(&told), "{told:?}");
    }

    #[test]
    fn a_nul_in_a_path_is_refused() {
        let told = problems("data_dir = \"a\\u0000b\"");
        assert_eq!(
            told,
            ["punctual.toml:1: data_dir must be a path without a NUL character, but is \"a\\0b\""]
        );
    }

    #[test]
    fn credentials_in_an_address_are_refused_and_not_repeated() {
        for address in
            ["http://me:hunter2@host:7070", "me:hunter2@host", "host:7070?token=hunter2", "host#hunter2"]
        {
            let told = problems(&format!("[client]\nserver = \"{address}\""));
            assert!(
                told[0].contains("client.server must be") && told[0].contains("client.token_file"),
                "{told:?}"
            );
            assert!(!told[0].contains("hunter2"), "{told:?}");
        }
    }

    #[test]
    fn keys_in_the_wrong_place_are_told_where_they_belong() {
        for (text, told) in [
            (
                "[log]\nslots = 4",
                "log.slots is not a setting, but slots is: move it before the first [table]",
            ),
            ("level = \"info\"", "level is not a setting, but log.level is: move it below [log]"),
            (
                "[logs]\nlevel = \"info\"",
                "logs.level is not a setting, but log.level is: move it below [log]",
            ),
            ("[stores]\npool = 4", "[stores] is not a table of settings; did you mean store?"),
            ("[slots]", "slots is a setting, not a table: write slots = …"),
            ("log = \"info\"", "log is a table: write [log] on a line of its own, and its settings below"),
            ("colour = 1", "colour is not a setting; `punctual config template` shows all of them"),
        ] {
            assert!(problems(text)[0].ends_with(told), "{text}: {:?}", problems(text));
        }
    }

    #[test]
    fn a_secret_is_refused_and_not_repeated() {
        for text in [
            "[client]\ntoken = \"pt_admin_x\"",
            "token = \"pt_admin_x\"",
            "[http]\nsigning_key = \"pt_admin_x\"",
        ] {
            let told = problems(text);
            assert!(told[0].contains("secrets are not allowed here"), "{told:?}");
            assert!(!told[0].contains("pt_admin_x"), "{told:?}");
        }
    }

    #[test]
    fn what_is_not_toml_is_told_with_its_line() {
        let told = problems("slots = 4\nqueues = [\n");
        assert!(told[0].starts_with("punctual.toml:") && told[0].contains("not TOML: "), "{told:?}");
        assert!(problems("slots = 4\nslots = 5")[0].starts_with("punctual.toml:2: not TOML: duplicate key"));
    }
}
