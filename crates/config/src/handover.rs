//! Keeps secrets out of the places where other processes can read them: the environment and the command line.
//!
//! Both stay in `/proc/PID` as long as the process runs, even if it removes a variable. So a server that was
//! started with a secret in one of them executes itself once more, as the same process, with the secret
//! variables removed and the secret parts of its arguments replaced. The new program reads the originals from
//! a pipe, which is empty afterwards.

use crate::layers::may_be_secret;
use crate::settings::{ServeSettings, Setting, SettingsTable};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The commands whose processes run for long.
const SERVERS: [&str; 4] = ["serve", "api", "scheduler", "worker"];
const PREFIX: &str = "PUNCTUAL_";
/// Parts of the names of variables, and of parameters of URLs, that may contain a secret. One too many does no harm.
const SECRET_NAMES: [&str; 4] = ["PASSWORD", "TOKEN", "SECRET", "KEY"];
/// Flags that contain a secret and are no settings.
const SECRET_FLAGS: [&str; 3] = ["--store-password", "--secrets-key", "--token"];
/// Names the process and its descriptor of the pipe. A child process that inherits it has another number.
pub(crate) const VARIABLE: &str = "PUNCTUAL_HANDOVER";
/// Bytes that fit into a pipe that has no reader yet.
const BYTES_MAX: usize = 64 * 1024;
/// What a secret in an argument is replaced with.
const REMOVED: &str = "***";
/// The first descriptor after standard input, output and error.
const FIRST_PRIVATE_FD: i32 = 3;

/// The variables that are no longer in the environment. Process-wide, as the environment is.
static VARIABLES: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// The arguments of this process, with the program first. Does not return if this process has to execute
/// itself; what it has then received is in [`variables`].
pub fn arguments() -> io::Result<Vec<OsString>> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(fd) = handed_over() {
        let Handover { variables, arguments } = Handover::read(fd)?;
        // Including the pipe itself, for the processes that this one starts.
        close_fds::set_fds_cloexec(FIRST_PRIVATE_FD, &[]);
        let _ = VARIABLES.set(variables);
        return Ok(arguments);
    }
    let is_server = arguments.get(1).is_some_and(|name| SERVERS.iter().any(|server| name == server));
    if !is_server {
        return Ok(arguments);
    }
    let (secret, rest): (Vec<_>, Vec<_>) =
        std::env::vars_os().partition(|(name, value)| is_secret(name, value));
    let shown = without_secrets(&arguments);
    if secret.is_empty() && shown == arguments {
        return Ok(arguments);
    }
    let text = |(name, value): (OsString, OsString)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    };
    let handover = Handover { variables: secret.into_iter().map(text).collect(), arguments };
    Err(handover.execute(shown, rest))
}

/// The variables of this process that belong to Punctual, whether they are in its environment or not.
pub fn variables() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    };
    let is_ours = |(name, _): &(String, String)| name.starts_with(PREFIX) && name != VARIABLE;
    let mut variables: BTreeMap<String, String> =
        std::env::vars_os().filter_map(text).filter(is_ours).collect();
    variables.extend(VARIABLES.get().cloned().unwrap_or_default());
    variables
}

/// Gives the arguments of a command line the variables that are not in the environment.
pub fn with_variables(command: clap::Command) -> clap::Command {
    match VARIABLES.get() {
        Some(variables) if !variables.is_empty() => with_defaults(command, variables),
        _ => command,
    }
}

fn with_defaults(command: clap::Command, variables: &'static BTreeMap<String, String>) -> clap::Command {
    let with_default = |argument: clap::Arg| {
        let name = argument.get_env().and_then(OsStr::to_str);
        match name.and_then(|name| variables.get(name)).filter(|value| !value.is_empty()) {
            Some(value) => argument.default_value(value.as_str()).hide_default_value(true),
            None => argument,
        }
    };
    command.mut_args(with_default).mut_subcommands(|inner| with_defaults(inner, variables))
}

/// The pipe, if this process has executed itself.
fn handed_over() -> Option<i32> {
    let named = std::env::var(VARIABLE).ok()?;
    let (process, fd) = named.split_once(':')?;
    if process != std::process::id().to_string() {
        return None;
    }
    fd.parse().ok()
}

/// Whether a variable may contain a secret: by its name, as a setting, or as a URL with a login.
fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
    let has_secret_name = SECRET_NAMES.iter().any(|part| name.contains(part)) && !name.ends_with("_FILE");
    let is_setting = || secret_settings().any(|setting| setting.variable() == name);
    let has_login = || without_login(&value).is_some();
    name.starts_with(PREFIX) && name != VARIABLE && (has_secret_name || is_setting() || has_login())
}

/// The settings whose values may be secret as a whole.
fn secret_settings() -> impl Iterator<Item = &'static Setting> {
    ServeSettings::settings().into_iter().filter(|setting| may_be_secret(setting.key))
}

/// A URL with a login, without it: a user and a password before the host, or parameters that may contain a secret.
/// `None` for any other text.
fn without_login(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (address, parameters) = match rest.split_once('?') {
        Some((address, parameters)) => (address, Some(parameters)),
        None => (rest, None),
    };
    let has_secret = |parameters: &&str| {
        let names = parameters.split('&').filter_map(|parameter| parameter.split_once('='));
        let mut names = names.map(|(name, _)| name.to_ascii_uppercase());
        names.any(|name| SECRET_NAMES.iter().any(|part| name.contains(part)))
    };
    // Up to the last @, because a password may contain one, and a ? as well.
    if let Some((_, host)) = rest.rsplit_once('@') {
        let host = host.split_once('?').map_or(host.to_owned(), |(host, parameters)| {
            format!("{host}?{}", if has_secret(&parameters) { REMOVED } else { parameters })
        });
        return Some(format!("{scheme}://{REMOVED}@{host}"));
    }
    parameters.filter(has_secret).map(|_| format!("{scheme}://{address}?{REMOVED}"))
}

/// The arguments with everything replaced that may be secret.
fn without_secrets(arguments: &[OsString]) -> Vec<OsString> {
    let settings = secret_settings().map(|setting| format!("--{}", setting.flag()));
    let flags: Vec<String> = SECRET_FLAGS.map(str::to_owned).into_iter().chain(settings).collect();
    let is_secret = |text: &str| flags.iter().any(|flag| flag == text);
    let mut is_value = false;
    let shown = |argument: &OsString| {
        let text = argument.to_string_lossy();
        if std::mem::take(&mut is_value) {
            return REMOVED.into();
        }
        is_value = is_secret(&text);
        let assigned = text.split_once('=').filter(|(flag, _)| is_secret(flag));
        if let Some((flag, _)) = assigned {
            return format!("{flag}={REMOVED}").into();
        }
        without_login(&text).map_or_else(|| argument.clone(), OsString::from)
    };
    arguments.iter().map(shown).collect()
}

/// What the program receives when it is executed again.
#[derive(Debug, PartialEq, Eq)]
struct Handover {
    variables: BTreeMap<String, String>,
    arguments: Vec<OsString>,
}

impl Handover {
    /// The number of variables, then names and values, then the arguments; each ends with a NUL, which none
    /// of them can contain.
    fn bytes(&self) -> Vec<u8> {
        let count = self.variables.len().to_string();
        let variables = self.variables.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        let arguments = self.arguments.iter().map(|argument| argument.as_bytes());
        let texts = std::iter::once(count.as_bytes()).chain(variables).chain(arguments);
        texts.flat_map(|text| text.iter().copied().chain([0])).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut texts = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let mut text = || String::from_utf8(texts.next()?.to_vec()).ok();
        let count: usize = text()?.parse().ok()?;
        let variables = (0..count).map(|_| Some((text()?, text()?))).collect::<Option<_>>()?;
        let arguments = texts.map(|bytes| OsString::from_vec(bytes.to_vec())).collect();
        Some(Handover { variables, arguments })
    }

    fn read(fd: i32) -> io::Result<Self> {
        let mut bytes = Vec::new();
        std::fs::File::open(format!("/proc/self/fd/{fd}"))?.read_to_end(&mut bytes)?;
        Handover::parse(&bytes).ok_or_else(|| io::Error::other("the pipe with the secrets is incomplete"))
    }

    /// Executes this program with these arguments and variables. Returns only if it cannot.
    fn execute(&self, shown: Vec<OsString>, variables: Vec<(OsString, OsString)>) -> io::Error {
        let bytes = self.bytes();
        if bytes.len() > BYTES_MAX {
            return io::Error::other(format!(
                "the arguments and the variables with secrets have more than {BYTES_MAX} bytes"
            ));
        }
        let open = || -> io::Result<_> {
            let (reader, mut writer) = io::pipe()?;
            writer.write_all(&bytes)?;
            rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty())?;
            Ok(reader)
        };
        let reader = match open() {
            Ok(reader) => reader,
            Err(error) => return error,
        };
        let mut shown = shown.into_iter();
        let name = shown.next().unwrap_or_default();
        // By its path, so that the process keeps its name.
        let program = std::env::current_exe().ok().filter(|path| path.exists());
        Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")))
            .arg0(name)
            .args(shown)
            .env_clear()
            .envs(variables)
            .env(VARIABLE, format!("{}:{}", std::process::id(), reader.as_raw_fd()))
            .exec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_by_name_and_in_urls() {
        let secret = |name: &str, value: &str| is_secret(name.as_ref(), value.as_ref());
        for (name, value) in [
            ("PUNCTUAL_STORE_PASSWORD", "x"),
            ("PUNCTUAL_TOKEN", "pt_admin_x"),
            ("PUNCTUAL_STORE", "postgres://me:x@host/db"),
            ("PUNCTUAL_COORDINATION", "redis://:x@host"),
            ("PUNCTUAL_STORE", "postgres://host/db?user=me&password=x"),
            ("PUNCTUAL_NOTIFY_HEARTBEAT_URL", "https://hc.example.org/ping/x"),
            ("PUNCTUAL_NOTIFY_COMMANDS", "pager=/usr/bin/page --key x"),
        ] {
            assert!(secret(name, value), "{name}");
        }
        for (name, value) in [
            ("PUNCTUAL_TOKEN_FILE", "/etc/punctual/token"),
            ("PUNCTUAL_NOTIFY_HEARTBEAT_URL_FILE", "/etc/punctual/heartbeat"),
            ("PUNCTUAL_STORE", "postgres://host/db?sslmode=require"),
            ("PUNCTUAL_SLOTS", "3"),
            ("OTHER_TOKEN", "x"),
        ] {
            assert!(!secret(name, value), "{name}");
        }
    }

    #[test]
    fn arguments_are_shown_without_secrets() {
        let arguments = |texts: &[&str]| texts.iter().map(OsString::from).collect::<Vec<_>>();
        let given = arguments(&[
            "punctual",
            "worker",
            "--token",
            "t1",
            "--store-password=p",
            "--store",
            "mysql://u:a@b@h:1/db?tls=true",
            "--store=postgres://u:p@h",
            "--store=postgres://h/db?user=u&password=p",
            "--broker=redis://u:p@h?x_key=k",
            "--notify-heartbeat-url",
            "https://hc.example.org/ping/p",
            "--notify-commands=pager=/usr/bin/page --key p",
            "--slots",
            "4",
        ]);
        let shown = [
            "punctual",
            "worker",
            "--token",
            "***",
            "--store-password=***",
            "--store",
            "mysql://***@h:1/db?tls=true",
            "--store=postgres://***@h",
            "--store=postgres://h/db?***",
            "--broker=redis://***@h?***",
            "--notify-heartbeat-url",
            "***",
            "--notify-commands=***",
            "--slots",
            "4",
        ];
        assert_eq!(without_secrets(&given), arguments(&shown));
        let harmless =
            arguments(&["punctual", "serve", "--store", "postgres://h/db", "--allowed-hosts", "a"]);
        assert_eq!(without_secrets(&harmless), harmless);
    }

    #[test]
    fn what_is_handed_over_arrives() {
        let variables = [("PUNCTUAL_TOKEN", ""), ("PUNCTUAL_STORE_PASSWORD", "a b\nc")];
        let handover = Handover {
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            arguments: vec!["punctual".into(), "".into(), OsString::from_vec(vec![0xff])],
        };
        assert_eq!(Handover::parse(&handover.bytes()), Some(handover));
        for broken in ["", "x\0", "1\0a\0"] {
            assert_eq!(Handover::parse(broken.as_bytes()), None);
        }
    }
}
