//! Contexts: named servers with their tokens, in a private file of the user.

use crate::data_dir::write_private;
use crate::exit::{CliError, Exit};
use crate::output::tell;
use crate::page::toml;
use crate::secret_file::exposure;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "punctual";
const FILE: &str = "contexts.toml";
const NAME_CHARS_MAX: usize = 100;
const HEADING: &str =
    "# Servers and tokens of `punctual context` and `punctual login`. Keep this file private.";

/// A server, how to connect to it, and a token for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerContext {
    pub server: String,
    pub token: Option<String>,
    /// A file with the token, in place of `token`.
    pub token_file: Option<PathBuf>,
    pub tls_ca: Option<PathBuf>,
    pub tls_client_cert: Option<PathBuf>,
    pub tls_client_key: Option<PathBuf>,
}

/// All contexts of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contexts {
    path: PathBuf,
    stored: Stored,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The context that commands use if nothing else names a server.
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ServerContext>,
}

impl Contexts {
    /// The contexts of the user who runs this process; none if there is no file.
    pub fn read() -> Result<Self, CliError> {
        match path_in(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME")) {
            Some(path) => Contexts::read_from(path),
            None => Ok(Contexts::default()),
        }
    }

    fn read_from(path: PathBuf) -> Result<Self, CliError> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Contexts { path, stored: Stored::default() });
            }
            Err(error) => return Err(damaged(&path, &error)),
        };
        if let Ok(Some(exposed)) = exposure(&path) {
            tell(&format!("warning: {exposed}"));
        }
        // Only the message and the place: the error also quotes the line, which may hold a token.
        let stored = toml::from_str(&text).map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            damaged(&path, &format!("line {line}: {}", error.message()))
        })?;
        Ok(Contexts { path, stored })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the context that commands use by themselves.
    pub fn current(&self) -> Option<&str> {
        self.stored.current.as_deref()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &ServerContext)> {
        self.stored.contexts.iter().map(|(name, context)| (name.as_str(), context))
    }

    pub fn find(&self, name: &str) -> Option<&ServerContext> {
        self.stored.contexts.get(name)
    }

    /// The context with this name, or why there is none.
    pub fn get(&self, name: &str) -> Result<&ServerContext, CliError> {
        self.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.iter().map(|(name, _)| name).collect();
            let known = match known.is_empty() {
                true => "there are none: add one with `punctual context add` or `punctual login`".to_owned(),
                false => format!("known are {}", known.join(", ")),
            };
            CliError::not_found(format!("there is no context {name} in {}; {known}", self.path.display()))
        })
    }

    pub fn put(&mut self, name: &str, context: ServerContext) {
        self.stored.contexts.insert(name.to_owned(), context);
    }

    pub fn remove(&mut self, name: &str) {
        self.stored.contexts.remove(name);
        if self.current() == Some(name) {
            self.stored.current = None;
        }
    }

    pub fn set_current(&mut self, name: Option<&str>) {
        self.stored.current = name.map(str::to_owned);
    }

    /// Replaces the file. Its directory is created if it is missing.
    pub fn write(&self) -> anyhow::Result<()> {
        let Some(directory) = self.path.parent() else {
            let message = "there is no place for contexts: set HOME or XDG_CONFIG_HOME to a directory";
            return Err(CliError { exit: Exit::Failed, message: message.to_owned() }.into());
        };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| damaged(directory, &error))?;
        write_private(&self.path, &self.text())
    }

    fn text(&self) -> String {
        let quoted = |text: &str| toml(&Json::from(text));
        let mut text = format!("{HEADING}\n");
        if let Some(current) = self.current() {
            text += &format!("current = {}\n", quoted(current));
        }
        for (name, context) in self.iter() {
            text += &format!("\n[contexts.{}]\nserver = {}\n", quoted(name), quoted(&context.server));
            let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
            for (key, value) in [
                ("token", context.token.clone()),
                ("token_file", path(&context.token_file)),
                ("tls_ca", path(&context.tls_ca)),
                ("tls_client_cert", path(&context.tls_client_cert)),
                ("tls_client_key", path(&context.tls_client_key)),
            ] {
                if let Some(value) = value {
                    text += &format!("{key} = {}\n", quoted(&value));
                }
            }
        }
        text
    }
}

fn damaged(path: &Path, problem: &dyn std::fmt::Display) -> CliError {
    let message = format!(
        "the contexts in {} cannot be used: {problem}; fix or delete the file, or name the server with --server or \
         --data-dir",
        path.display()
    );
    CliError { exit: Exit::Misunderstood, message }
}

/// The file for these variables. As the XDG specification says, a relative path counts as unset.
fn path_in(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(config_home).or_else(|| absolute(home).map(|home| home.join(".config")));
    Some(base?.join(DIRECTORY).join(FILE))
}

/// The name of a context.
pub fn context_name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
    if !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!("must have 1 to {NAME_CHARS_MAX} letters, digits or -_.:"))
}

/// A name for the context of a server, from its address.
pub fn name_of_server(server: &str) -> String {
    let address = server.split_once("://").map_or(server, |(_, rest)| rest);
    let address = address.split('/').next().unwrap_or_default();
    let letters = address.chars().filter(|letter| context_name(&letter.to_string()).is_ok());
    let name: String = letters.take(NAME_CHARS_MAX).collect();
    if name.is_empty() { "server".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn contexts_are_read_as_they_were_written_by_nobody_else() {
        let home = tempfile::tempdir().unwrap();
        let path = path_in(Some(home.path().join("config").into()), None).unwrap();
        let mut contexts = Contexts::read_from(path.clone()).unwrap();
        assert_eq!((contexts.iter().count(), contexts.current()), (0, None));
        let context = ServerContext {
            server: "https://jobs.example.org".to_owned(),
            token: Some("pt_a_\"quoted\"".to_owned()),
            tls_ca: Some(PathBuf::from("/etc/a b/ca.pem")),
            ..ServerContext::default()
        };
        contexts.put("jobs.example.org:7070", context.clone());
        contexts.put("b", ServerContext { server: "127.0.0.1:1".to_owned(), ..ServerContext::default() });
        contexts.set_current(Some("b"));
        contexts.write().unwrap();
        contexts.write().unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        let mut read = Contexts::read_from(path).unwrap();
        assert_eq!(read, contexts);
        assert_eq!(read.get("jobs.example.org:7070").unwrap(), &context);
        read.remove("b");
        assert_eq!((read.current(), read.iter().count()), (None, 1));
        let told = read.get("c").unwrap_err().message;
        assert!(told.contains("no context c") && told.ends_with("known are jobs.example.org:7070"), "{told}");
    }

    #[test]
    fn a_damaged_file_is_told_by_line_and_without_its_secrets() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bad in [
            "current = 'a'\n[contexts.a]\nserver = 'x'\ntoken = 'pt_a_hunter2",
            "\n\n[contexts.a]\ntoken = 'pt_a_hunter2'\n",
            "[contexts.a]\nserver = 'x'\ntocken = 'pt_a_hunter2'\n",
        ] {
            fs::write(file.path(), bad).unwrap();
            let told = Contexts::read_from(file.path().to_owned()).unwrap_err();
            assert_eq!(told.exit, Exit::Misunderstood);
            assert!(told.message.contains("cannot be used: line "), "{}", told.message);
            assert!(!told.message.contains("hunter2"), "{}", told.message);
        }
    }

    #[test]
    fn the_file_is_in_the_users_configuration() {
        let path = |config: &str, home: &str| path_in(Some(config.into()), Some(home.into()));
        assert_eq!(path("/c", "/h"), Some(PathBuf::from("/c/punctual/contexts.toml")));
        for unset in ["", "relative"] {
            assert_eq!(path(unset, "/h"), Some(PathBuf::from("/h/.config/punctual/contexts.toml")));
        }
        assert_eq!(path_in(None, None), None);
    }

    #[test]
    fn names_follow_from_addresses() {
        for (server, name) in [
            ("https://jobs.example.org", "jobs.example.org"),
            ("http://127.0.0.1:7070/", "127.0.0.1:7070"),
            ("[::1]:7070", "::1:7070"),
            ("http://", "server"),
        ] {
            assert_eq!(name_of_server(server), name);
            assert!(context_name(name).is_ok());
        }
        for bad in ["", "a b", "a/b", &"x".repeat(101)] {
            assert!(context_name(bad).is_err(), "{bad}");
        }
    }
}
