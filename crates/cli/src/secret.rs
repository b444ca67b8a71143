//! `punctual secret`: sets, lists, removes and re-encrypts secrets. Values come from a file, standard input or a hidden
//! prompt, never from an argument, which every user of the machine could see.

use crate::grant;
use crate::list_args::ListArgs;
use crate::login::typed_unseen;
use anyhow::Context;
use clap::Subcommand;
use punctual_client::{Page, RotateSecrets, RotatedSecrets, SecretBody, SetSecret};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, print_text, table, tell, time};
use punctual_core::limits;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum SecretCommand {
    /// Set the value of a secret, from a file, standard input or a hidden prompt; rules without a flag stay
    Set(SetArgs),
    /// List secrets, without their values
    List(ListArgs),
    /// Show a secret, without its value
    Show(ShowArgs),
    /// Remove secrets that no unfinished job and no channel uses
    Remove(RemoveArgs),
    /// Encrypt all secrets with the current key, so that older keys can be removed
    Rotate(ListArgs),
}

#[derive(clap::Args)]
pub struct SetArgs {
    /// The name of the secret, for references such as {"$secret": "NAME"} in payloads
    #[arg(value_name = "NAME", value_parser = args::path_name)]
    name: String,
    /// Refused: a value is never an argument
    #[arg(value_name = "VALUE", hide = true)]
    values: Vec<String>,
    /// Read the value from this file; one line break at its end is left out
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Let jobs of this owner use it, or of owners like team-*; a new secret is for jobs of your own owner. Can be given
    /// more than once
    #[arg(long, value_name = "PATTERN")]
    owner: Vec<String>,
    /// Let only jobs in this queue use it, or in queues like mail-*; '*' for all. Can be given more than once
    #[arg(long, value_name = "PATTERN")]
    queue: Vec<String>,
    /// Let only jobs of this type use it, or of types like send-*; '*' for all. Can be given more than once
    #[arg(long, value_name = "PATTERN")]
    job_type: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    /// The name of the secret
    #[arg(value_name = "NAME", value_parser = args::path_name)]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The names of the secrets
    #[arg(value_name = "NAME", required = true, value_parser = args::path_name)]
    names: Vec<String>,
    /// Remove them although jobs or channels use them; the jobs fail
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(command: SecretCommand) -> anyhow::Result<Exit> {
    match command {
        SecretCommand::Set(args) => {
            refuse_values(&args.values)?;
            let client = args.connect.client()?;
            let value = value(&args.name, args.from_file.as_deref())?;
            let note = redaction_note(&value);
            // Without a flag, the rule of an existing secret stays.
            let [owners, queues, job_types] = [args.owner, args.queue, args.job_type]
                .map(|list| Some(list).filter(|list| !list.is_empty()));
            let secret = SetSecret { value, owners, queues, job_types };
            let secret = client.set_secret(&args.name, &secret).await?;
            args.output.print(&secret, described)?;
            if let Some(note) = note {
                tell(&note);
            }
        }
        SecretCommand::List(args) => {
            let secrets = args.connect.client()?.secrets().await?;
            args.output.print(&secrets, secrets_table)?;
        }
        SecretCommand::Show(args) => {
            let secret = args.connect.client()?.secret(&args.name).await?;
            args.output.print(&secret, described)?;
        }
        SecretCommand::Remove(args) => {
            let client = args.connect.client()?;
            for name in &args.names {
                match args.force {
                    true => client.remove_secret_in_use(name).await?,
                    false => client.remove_secret(name).await?,
                }
                print_text(&format!("removed secret {name}"))?;
            }
        }
        SecretCommand::Rotate(args) => return rotate(args).await,
    }
    Ok(Exit::Done)
}

/// All steps of a rotation. Fails if a secret or payload is left with an older key.
async fn rotate(args: ListArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let mut all: Option<RotatedSecrets> = None;
    loop {
        let after = all.as_ref().and_then(|all| all.next.clone());
        let mut step = client.rotate_secrets(&RotateSecrets { after }).await?;
        if let Some(before) = all.take() {
            step.rotated += before.rotated;
            step.payloads += before.payloads;
            step.unreadable.splice(0..0, before.unreadable);
        }
        let is_last = step.next.is_none();
        all = Some(step);
        if is_last {
            break;
        }
    }
    let Some(all) = all else { return Ok(Exit::Done) };
    args.output.print(&all, |all| {
        let payloads =
            if all.payloads == 0 { String::new() } else { format!(" and {} payloads", all.payloads) };
        format!("encrypted {} secrets{payloads} with the key {}", all.rotated, all.key_id)
    })?;
    for problem in &all.unreadable {
        tell(&format!("error: {problem}"));
    }
    Ok(if all.unreadable.is_empty() { Exit::Done } else { Exit::Failed })
}

/// The values are not repeated.
fn refuse_values(values: &[String]) -> Result<(), CliError> {
    if values.is_empty() {
        return Ok(());
    }
    Err(misunderstood(
        "a value is never an argument, because other users of this machine could see it: leave it out to be asked \
         for it, write it to standard input, or pass --from-file FILE"
            .to_owned(),
    ))
}

fn misunderstood(message: String) -> CliError {
    CliError { exit: Exit::Misunderstood, message }
}

fn value(name: &str, file: Option<&Path>) -> anyhow::Result<String> {
    let bytes = match file {
        Some(file) => {
            let open = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            read(open).with_context(|| format!("cannot read {}", file.display()))?
        }
        None if io::stdin().is_terminal() => typed_unseen(&format!("value of {name}: "))?.into_bytes(),
        None => read(io::stdin().lock()).context("cannot read the value from standard input")?,
    };
    Ok(value_of(&bytes)?)
}

/// Reads so much more than a value may have that [`value_of`] can tell.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limits::SECRET_VALUE_BYTES_MAX as u64 + 3).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The value without the line break at its end.
fn value_of(bytes: &[u8]) -> Result<String, CliError> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let value = line.strip_suffix(b"\r").unwrap_or(line);
    if value.is_empty() {
        let message = "no value: pass --from-file, or write the value to standard input";
        return Err(misunderstood(message.to_owned()));
    }
    // The rest of it may be unread, so its size is not known.
    if value.len() > limits::SECRET_VALUE_BYTES_MAX {
        let most = limits::SECRET_VALUE_BYTES_MAX;
        return Err(misunderstood(format!("the value has more than {most} bytes, which is the limit")));
    }
    let text = std::str::from_utf8(value).map_err(|_| {
        misunderstood("the value is not UTF-8 text: encode it in Base64, and decode it in the job".to_owned())
    })?;
    Ok(text.to_owned())
}

fn redaction_note(value: &str) -> Option<String> {
    let least = limits::SECRET_REDACTED_CHARS_MIN;
    (value.chars().count() < least).then(|| {
        format!("note: the value has fewer than {least} characters, so it is not removed from the output of handlers")
    })
}

fn described(secret: &SecretBody) -> String {
    let key = if secret.readable {
        secret.key_id.clone()
    } else {
        format!("{} (the server does not have it)", secret.key_id)
    };
    details([
        ("secret", Some(secret.name.clone())),
        ("version", Some(secret.version.to_string())),
        ("owners", grant::joined(&secret.owners)),
        ("queues", grant::joined(&secret.queues)),
        ("job types", grant::joined(&secret.job_types)),
        ("key", Some(key)),
        ("set", Some(time(secret.set_at))),
        ("set by", Some(secret.set_by.clone())),
        ("created", Some(time(secret.created_at))),
    ])
}

fn secrets_table(page: &Page<SecretBody>) -> String {
    if page.items.is_empty() {
        return "no secrets".to_owned();
    }
    let all_if_none = |names: &[String]| grant::joined(names).unwrap_or_else(|| "all".to_owned());
    let rows = page.items.iter().map(|secret| {
        let key =
            if secret.readable { secret.key_id.clone() } else { format!("{} (missing)", secret.key_id) };
        vec![
            secret.name.clone(),
            secret.version.to_string(),
            all_if_none(&secret.owners),
            all_if_none(&secret.queues),
            all_if_none(&secret.job_types),
            key,
            time(secret.set_at),
            secret.set_by.clone(),
        ]
    });
    table(&["SECRET", "VERSION", "OWNERS", "QUEUES", "JOB TYPES", "KEY", "SET", "SET BY"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let error = value_of(bytes).unwrap_err();
        assert_eq!(error.exit, Exit::Misunderstood);
        error.message
    }

    #[test]
    fn a_value_is_text_without_its_last_line_break() {
        for (given, value) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a b ", " a b "), ("ä\n", "ä")]
        {
            assert_eq!(value_of(given.as_bytes()).unwrap(), value, "{given:?}");
        }
        for nothing in ["", "\n", "\r\n"] {
            assert!(refusal(nothing.as_bytes()).starts_with("no value"), "{nothing:?}");
        }
        assert!(refusal(&[0xff, 0xfe, 0]).contains("encode it in Base64"));
    }

    #[test]
    fn of_a_value_that_is_too_long_only_the_limit_is_told() {
        let most = limits::SECRET_VALUE_BYTES_MAX;
        let given = |bytes: usize| read(io::repeat(b'x').take(bytes as u64)).unwrap();
        assert_eq!(value_of(&given(most)).unwrap().len(), most);
        assert_eq!(value_of(&[given(most), b"\r\n".to_vec()].concat()).unwrap().len(), most);
        for bytes in [most + 1, 40_000] {
            assert!(refusal(&given(bytes)).contains("more than 32768 bytes"), "{bytes}");
        }
        // The limit may divide a letter.
        assert!(refusal(&read("ä".repeat(most).as_bytes()).unwrap()).contains("more than 32768 bytes"));
    }

    #[test]
    fn a_short_value_is_noted_and_a_value_in_an_argument_is_refused_unseen() {
        assert!(redaction_note("12345").is_some_and(|note| !note.contains("12345")));
        assert_eq!(redaction_note("123456"), None);
        assert!(refuse_values(&[]).is_ok());
        let error = refuse_values(&["hunter2".to_owned()]).unwrap_err();
        assert!(error.message.contains("never an argument") && !error.message.contains("hunter2"));
    }
}
