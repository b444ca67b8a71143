//! `punctual context`: the servers that this user works with, and which of them commands use.

use clap::Subcommand;
use punctual_config::contexts::{Contexts, ServerContext, context_name};
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, print_text, table};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum ContextCommand {
    /// Add a context: a name for a server, and how to connect to it
    Add(AddArgs),
    /// Make a context the current one, which commands use by default
    Use(UseArgs),
    /// List all contexts
    List(ListArgs),
    /// Show a context, without its token
    Show(ShowArgs),
    /// Remove contexts, with their tokens
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub struct AddArgs {
    /// A name for the context
    #[arg(value_name = "NAME", value_parser = context_name)]
    name: String,
    /// The server's address
    #[arg(long, value_name = "ADDRESS")]
    server: String,
    #[command(flatten)]
    files: ServerFiles,
}

/// The files that belong to a server.
#[derive(clap::Args)]
pub struct ServerFiles {
    /// A file with the API token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A file with CA certificates (PEM) to trust instead of the well-known ones
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// A file with this client's certificate and its chain (PEM), for a server that demands one
    #[arg(long, value_name = "FILE", requires = "tls_client_key")]
    pub tls_client_cert: Option<PathBuf>,
    /// A file with the private key (PEM) of --tls-client-cert
    #[arg(long, value_name = "FILE", requires = "tls_client_cert")]
    pub tls_client_key: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct UseArgs {
    /// The name of the context
    #[arg(value_name = "NAME", required_unless_present = "none")]
    name: Option<String>,
    /// Use none: commands find the server by the data directory again
    #[arg(long, conflicts_with = "name")]
    none: bool,
}

#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    /// The name of the context; by default the current one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The names of the contexts
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// A context as it is shown: never with its token.
#[derive(Serialize)]
struct ContextView {
    name: String,
    server: String,
    current: bool,
    /// The public part of the stored token.
    token_id: Option<String>,
    has_token: bool,
    token_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_client_cert: Option<PathBuf>,
    tls_client_key: Option<PathBuf>,
}

pub fn run(command: ContextCommand) -> anyhow::Result<Exit> {
    match command {
        ContextCommand::Add(args) => add(args)?,
        ContextCommand::Use(args) => make_current(args.name.as_deref())?,
        ContextCommand::List(args) => {
            let contexts = Contexts::read()?;
            let shown: Vec<ContextView> =
                contexts.iter().map(|(name, _)| shown(&contexts, name)).collect::<Result<_, _>>()?;
            args.output.print(&shown, |shown| contexts_table(shown))?;
        }
        ContextCommand::Show(args) => {
            let contexts = Contexts::read()?;
            let name = named_or_current(&contexts, args.name.as_deref())?;
            args.output.print(&shown(&contexts, &name)?, |shown| described(shown, contexts.path()))?;
        }
        ContextCommand::Remove(args) => {
            let mut contexts = Contexts::read()?;
            for name in &args.names {
                contexts.get(name)?;
                contexts.remove(name);
            }
            contexts.write()?;
            print_text(&format!("removed {}", args.names.join(", ")))?;
        }
    }
    Ok(Exit::Done)
}

fn add(args: AddArgs) -> anyhow::Result<()> {
    let mut contexts = Contexts::read()?;
    if contexts.find(&args.name).is_some() {
        let name = &args.name;
        return Err(CliError::refused(format!(
            "there is a context {name} already: remove it first, with `punctual context remove {name}`"
        ))
        .into());
    }
    let is_first = contexts.iter().next().is_none();
    contexts.put(&args.name, args.files.context(args.server)?);
    contexts.write()?;
    print_text(&format!("added context {} to {}", args.name, contexts.path().display()))?;
    if is_first {
        print_text(&format!("make it the current one with `punctual context use {}`", args.name))?;
    }
    Ok(())
}

impl ServerFiles {
    /// A context for this server. Files are found from every directory.
    pub fn context(self, server: String) -> anyhow::Result<ServerContext> {
        Ok(ServerContext {
            server,
            token: None,
            token_file: readable("--token-file", self.token_file)?,
            tls_ca: readable("--tls-ca", self.tls_ca)?,
            tls_client_cert: readable("--tls-client-cert", self.tls_client_cert)?,
            tls_client_key: readable("--tls-client-key", self.tls_client_key)?,
        })
    }
}

/// The absolute path of a file that can be read.
fn readable(flag: &str, file: Option<PathBuf>) -> Result<Option<PathBuf>, CliError> {
    let Some(file) = file else { return Ok(None) };
    let opened = std::fs::File::open(&file).and_then(|_| std::path::absolute(&file));
    opened.map(Some).map_err(|error| CliError {
        exit: Exit::Misunderstood,
        message: format!("{flag} {}: {error}", file.display()),
    })
}

fn make_current(name: Option<&str>) -> anyhow::Result<()> {
    let mut contexts = Contexts::read()?;
    let told = match name {
        Some(name) => format!("commands now use {}", contexts.get(name)?.server),
        None => "commands now use the server of the data directory".to_owned(),
    };
    contexts.set_current(name);
    contexts.write()?;
    print_text(&told)
}

/// The name of a context that exists: this one, or the current one.
pub fn named_or_current(contexts: &Contexts, name: Option<&str>) -> Result<String, CliError> {
    let Some(name) = name.filter(|name| !name.is_empty()).or(contexts.current()) else {
        let message = "there is no current context: name one, or choose one with `punctual context use`";
        return Err(CliError::not_found(message));
    };
    contexts.get(name).map(|_| name.to_owned())
}

/// The public part of a token.
pub fn token_id(token: &str) -> Option<&str> {
    token.strip_prefix("pt_")?.split('_').next()
}

fn shown(contexts: &Contexts, name: &str) -> Result<ContextView, CliError> {
    let context = contexts.get(name)?.clone();
    Ok(ContextView {
        name: name.to_owned(),
        server: context.server,
        current: contexts.current() == Some(name),
        token_id: context.token.as_deref().and_then(token_id).map(str::to_owned),
        has_token: context.token.is_some() || context.token_file.is_some(),
        token_file: context.token_file,
        tls_ca: context.tls_ca,
        tls_client_cert: context.tls_client_cert,
        tls_client_key: context.tls_client_key,
    })
}

fn token_of(shown: &ContextView) -> String {
    match (&shown.token_id, &shown.token_file) {
        (Some(id), _) => id.clone(),
        (None, Some(file)) => format!("in {}", file.display()),
        (None, None) if shown.has_token => "stored".to_owned(),
        (None, None) => "none".to_owned(),
    }
}

fn contexts_table(shown: &[ContextView]) -> String {
    if shown.is_empty() {
        return "there are no contexts; add one with `punctual context add` or `punctual login`".to_owned();
    }
    let rows = shown.iter().map(|shown| {
        let current = if shown.current { "*" } else { "" };
        vec![current.to_owned(), shown.name.clone(), shown.server.clone(), token_of(shown)]
    });
    table(&["CURRENT", "NAME", "SERVER", "TOKEN"], rows)
}

fn described(shown: &ContextView, file: &Path) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    details([
        ("name", Some(shown.name.clone())),
        ("server", Some(shown.server.clone())),
        ("current", Some(if shown.current { "yes" } else { "no" }.to_owned())),
        ("token", Some(token_of(shown))),
        ("CA certificates", path(&shown.tls_ca)),
        ("client certificate", path(&shown.tls_client_cert)),
        ("client key", path(&shown.tls_client_key)),
        ("stored in", Some(file.display().to_string())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_part_of_a_token_is_shown() {
        let mut contexts = Contexts::default();
        let context = |token: &str| ServerContext {
            server: "127.0.0.1:1".to_owned(),
            token: Some(token.to_owned()),
            ..ServerContext::default()
        };
        contexts.put("a", context("pt_abc_hunter2"));
        contexts.put("b", context("header.hunter2.signature"));
        for (name, token) in [("a", "abc"), ("b", "stored")] {
            let shown = shown(&contexts, name).unwrap();
            assert_eq!(token_of(&shown), token);
            let said = format!(
                "{}{}{}",
                serde_json::to_string(&shown).unwrap(),
                described(&shown, Path::new("/f")),
                contexts_table(&[shown])
            );
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
