//! `punctual login`, `logout` and `whoami`: stores a token for a server in a context, removes it, and shows whose it
//! is.

use crate::context::{ServerFiles, named_or_current, token_id};
use crate::grant;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use punctual_client::MeBody;
use punctual_config::connect::{ConnectArgs, client_of, read_token};
use punctual_config::contexts::{Contexts, context_name, name_of_server};
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, print_text, tell};
use serde::Serialize;
use std::io::{self, IsTerminal, Read};

/// Bytes of a token. JWTs are the longest.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

#[derive(clap::Args)]
pub struct LoginArgs {
    /// The server's address; by default that of the context
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    /// The context to store the token in; by default the server's context, or the current one
    #[arg(long, env = "PUNCTUAL_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    files: ServerFiles,
}

#[derive(clap::Args)]
pub struct LogoutArgs {
    /// The context whose token to remove; by default the current one
    #[arg(long, env = "PUNCTUAL_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

#[derive(clap::Args)]
pub struct WhoamiArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn login(args: LoginArgs) -> anyhow::Result<Exit> {
    let mut contexts = Contexts::read()?;
    let given = args.context.filter(|name| !name.is_empty());
    let name = match (given, &args.server) {
        (Some(name), _) => context_name(&name).map_err(|problem| CliError {
            exit: Exit::Misunderstood,
            message: format!("--context {problem}"),
        })?,
        (None, Some(server)) => {
            let known = contexts.iter().find(|(_, context)| context.server == *server);
            known.map_or_else(|| name_of_server(server), |(name, _)| name.to_owned())
        }
        (None, None) => named_or_current(&contexts, None).map_err(|_| CliError {
            exit: Exit::Misunderstood,
            message: "no server: pass --server, such as https://jobs.example.org:7070, or --context"
                .to_owned(),
        })?,
    };
    let mut context = args.files.context(String::new())?;
    context.server = match (args.server, contexts.find(&name)) {
        (Some(server), _) => server,
        (None, Some(known)) => known.server.clone(),
        (None, None) => return Err(contexts.get(&name).map(|_| ()).unwrap_err().into()),
    };
    // The certificates of a context stay unless it is for another server.
    if let Some(known) = contexts.find(&name).filter(|known| known.server == context.server) {
        context.tls_ca = context.tls_ca.or(known.tls_ca.clone());
        context.tls_client_cert = context.tls_client_cert.or(known.tls_client_cert.clone());
        context.tls_client_key = context.tls_client_key.or(known.tls_client_key.clone());
    }
    // The token is copied, so that the file can be deleted.
    let token = match context.token_file.take() {
        Some(file) => read_token(&file)?,
        None => asked_token(&context.server)?,
    };
    let me = client_of(&context, &token)?.me().await?;
    context.token = Some(token);
    let server = context.server.clone();
    contexts.put(&name, context);
    contexts.set_current(Some(&name));
    contexts.write()?;
    print_text(&format!(
        "logged in to {server} as {} ({}); the current context is now {name}",
        me.name, me.role
    ))?;
    Ok(Exit::Done)
}

pub fn logout(args: LogoutArgs) -> anyhow::Result<Exit> {
    let mut contexts = Contexts::read()?;
    let named = args.context.as_deref().filter(|name| !name.is_empty());
    if named.is_none() && contexts.current().is_none() {
        let message = "there is no current context: name the one to log out from with --context NAME";
        return Err(CliError::not_found(message).into());
    }
    let name = named_or_current(&contexts, named)?;
    let mut context = contexts.get(&name)?.clone();
    context.token_file = None;
    let Some(token) = context.token.take() else {
        return Err(CliError::not_found(format!("the context {name} has no stored token")).into());
    };
    let server = context.server.clone();
    contexts.put(&name, context);
    contexts.write()?;
    print_text(&format!("removed the token for {server} from the context {name}"))?;
    if let Some(id) = token_id(&token) {
        tell(&format!("note: the token still works elsewhere; `punctual token revoke {id}` ends it"));
    }
    Ok(Exit::Done)
}

/// The output of `whoami`.
#[derive(Serialize)]
struct WhoAmI {
    server: String,
    context: Option<String>,
    #[serde(flatten)]
    me: MeBody,
}

pub async fn whoami(args: WhoamiArgs) -> anyhow::Result<Exit> {
    let connection = args.connect.connection_within(&args.connect.surroundings()?)?;
    let (context, origin) = (connection.context.clone(), connection.token_origin.clone());
    let client = connection.client()?;
    let me = client.me().await?;
    let identity = WhoAmI { server: client.server().to_owned(), context, me };
    args.output.print(&identity, |identity| described(identity, origin))?;
    Ok(Exit::Done)
}

fn described(identity: &WhoAmI, origin: String) -> String {
    let me = &identity.me;
    details([
        ("server", Some(identity.server.clone())),
        ("context", identity.context.clone()),
        ("token", Some(me.token_id.clone())),
        ("token from", Some(origin)),
        ("name", Some(me.name.clone()).filter(|name| !name.is_empty())),
        ("user", me.user_id.clone()),
        ("role", Some(me.role.clone())),
        ("owner", Some(me.owner_id.clone())),
        ("scope", Some(grant::scope(me))),
        ("permissions", grant::joined(&me.permissions)),
    ])
}

/// The token from standard input. A terminal does not show it.
fn asked_token(server: &str) -> anyhow::Result<String> {
    let text = if io::stdin().is_terminal() {
        typed_unseen(&format!("token for {server}: "))?
    } else {
        let mut text = String::new();
        io::stdin().lock().take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
        text
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "no token: standard input must be a single line with a token".to_owned();
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    Ok(token.to_owned())
}

/// What is typed up to Enter. The terminal is restored in every case, also on Ctrl-C.
pub(crate) fn typed_unseen(prompt: &str) -> anyhow::Result<String> {
    enable_raw_mode()?;
    eprint!("{prompt}");
    let typed = read_line();
    disable_raw_mode()?;
    eprintln!();
    typed
}

/// Enter, or the line feed of a program that types: in raw mode that is Ctrl-J.
fn ends_line(code: KeyCode, modifiers: KeyModifiers) -> bool {
    code == KeyCode::Enter || (code == KeyCode::Char('j') && modifiers.contains(KeyModifiers::CONTROL))
}

fn read_line() -> anyhow::Result<String> {
    let mut line = String::new();
    loop {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event::read()? else {
            continue;
        };
        match code {
            _ if ends_line(code, modifiers) => return Ok(line),
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => {
                let message = "interrupted: nothing was stored".to_owned();
                return Err(CliError { exit: Exit::Failed, message }.into());
            }
            KeyCode::Char(letter) => line.push(letter),
            KeyCode::Backspace => {
                line.pop();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_feed_is_enter_and_a_letter_is_not() {
        assert!(ends_line(KeyCode::Enter, KeyModifiers::NONE));
        assert!(ends_line(KeyCode::Char('j'), KeyModifiers::CONTROL));
        assert!(!ends_line(KeyCode::Char('j'), KeyModifiers::NONE));
    }
}
