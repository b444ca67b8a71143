//! `punctual token`: creates, shows, changes, rotates and revokes tokens.

use crate::grant::{self, ScopeArgs};
use crate::list_args::ListArgs;
use clap::Subcommand;
use punctual_client::{Client, ClientError, CreateToken, Page, RotateToken, Span, TokenBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, optional_time, print_text, shortened, table, tell, time};
use punctual_core::access::Role;
use serde_json::{Map, Value, json};

#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a token and show its secret, once
    Create(CreateArgs),
    /// List all tokens, without their secrets
    List(ListArgs),
    /// Show a token, without its secret
    Show(TokenArgs),
    /// Change the name, role, scope, permissions or expiry of a token
    Update(Box<UpdateTokenArgs>),
    /// Give a token a new secret; the old one keeps working for a while
    Rotate(RotateArgs),
    /// Revoke tokens: they stop working, and workers that use them lose their sessions
    Revoke(RevokeArgs),
}

#[derive(clap::Args)]
pub struct CreateArgs {
    /// What it is for, such as the name of a service
    #[arg(value_name = "NAME")]
    name: String,
    /// What it may do: viewer, submitter, operator, admin or worker
    #[arg(long, value_name = "ROLE", value_parser = grant::role, required_unless_present = "user")]
    role: Option<Role>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// How long it works, such as 30d; by default until it is revoked
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    expires: Option<Span>,
    /// The id or email address of the user to whom it belongs: it may do what the user may
    #[arg(
        long,
        value_name = "USER",
        conflicts_with_all = ["role", "owner", "all_owners", "queue", "job_type", "permission"]
    )]
    user: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct TokenArgs {
    /// The id of the token, or its name if that is unique
    #[arg(value_name = "TOKEN", value_parser = args::path_name)]
    id: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct UpdateTokenArgs {
    /// The id of the token, or its name if that is unique
    #[arg(value_name = "TOKEN", value_parser = args::path_name)]
    id: String,
    /// What it is for
    #[arg(long)]
    name: Option<String>,
    /// What it may do: viewer, submitter, operator, admin or worker
    #[arg(long, value_name = "ROLE", value_parser = grant::role)]
    role: Option<Role>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// How long it works from now on, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    expires: Option<Span>,
    /// Reset this field to its default, such as expires, owner or queue; can be given more than once
    #[arg(long, value_name = "FIELD", value_parser = field)]
    unset: Vec<&'static str>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Flags whose fields can be reset.
const FIELDS: [(&str, &str); 6] = [
    ("expires", "expires_at"),
    ("owner", "owner_id"),
    ("all-owners", "all_owners"),
    ("queue", "queues"),
    ("job-type", "job_types"),
    ("permission", "permissions"),
];

fn field(text: &str) -> Result<&'static str, String> {
    grant::field_of(&FIELDS, text)
}

impl UpdateTokenArgs {
    fn patch(&self) -> Result<Map<String, Value>, CliError> {
        let own = [
            ("name", self.name.as_ref().map(|name| json!(name))),
            ("role", self.role.map(|role| json!(role))),
            ("expires_after", self.expires.map(|span| json!(span))),
        ];
        if self.expires.is_some() && self.unset.contains(&"expires_at") {
            return Err(grant::misunderstood("--unset expires conflicts with --expires".to_owned()));
        }
        grant::patch(own.into_iter().chain(self.scope.changes()), &self.unset)
    }
}

#[derive(clap::Args)]
pub struct RotateArgs {
    /// The id of the token, or its name if that is unique
    #[arg(value_name = "TOKEN", value_parser = args::path_name)]
    id: String,
    /// How long the old secret works; 0s ends it at once
    #[arg(long, value_name = "DURATION", value_parser = args::span, default_value = "1h")]
    overlap: Span,
    /// How long it works from now on, such as 90d; by default its expiry stays
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    expires: Option<Span>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RevokeArgs {
    /// The ids of the tokens, or their names if these are unique
    #[arg(value_name = "TOKEN", required = true, value_parser = args::path_name)]
    ids: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(command: TokenCommand) -> anyhow::Result<Exit> {
    match command {
        TokenCommand::Create(args) => create(args).await?,
        TokenCommand::List(args) => {
            let tokens = args.connect.client()?.tokens().await?;
            args.output.print(&tokens, tokens_table)?;
        }
        TokenCommand::Show(args) => {
            let client = args.connect.client()?;
            let token = by_name(&client, &args.id, async |id| client.token(id).await).await?;
            args.output.print(&token, described)?;
        }
        TokenCommand::Update(args) => {
            let patch = args.patch()?;
            let client = args.connect.client()?;
            let token = by_name(&client, &args.id, async |id| client.update_token(id, &patch).await).await?;
            args.output.print(&token, described)?;
        }
        TokenCommand::Rotate(args) => {
            let how =
                RotateToken { overlap: Some(args.overlap), expires_at: None, expires_after: args.expires };
            let client = args.connect.client()?;
            let token = by_name(&client, &args.id, async |id| client.rotate_token(id, &how).await).await?;
            args.output.print(&token, described)?;
            tell_once(args.output);
        }
        TokenCommand::Revoke(args) => {
            let client = args.connect.client()?;
            for named in &args.ids {
                let revoke = async |id: &str| client.revoke_token(id).await.map(|_| id.to_owned());
                let id = by_name(&client, named, revoke).await?;
                print_text(&format!("revoked token {id}"))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Acts on the token with this id or, if there is none, on the only one with this name.
async fn by_name<T>(
    client: &Client,
    named: &str,
    act: impl AsyncFn(&str) -> Result<T, ClientError>,
) -> anyhow::Result<T> {
    match act(named).await {
        Err(error) if error.is_not_found() => {
            let tokens = client.tokens().await?;
            Ok(act(&id_of(named, &tokens.items)?).await?)
        }
        answer => Ok(answer?),
    }
}

fn id_of(name: &str, tokens: &[TokenBody]) -> Result<String, CliError> {
    let named: Vec<&str> =
        tokens.iter().filter(|token| token.name == name).map(|token| token.token_id.as_str()).collect();
    match named.as_slice() {
        [] => Err(CliError::not_found(format!(
            "there is no token with the id or name {name}: `punctual token list` shows them"
        ))),
        [id] => Ok((*id).to_owned()),
        ids => Err(CliError::refused(format!(
            "{} tokens have the name {name}: pass the id of one: {}",
            ids.len(),
            ids.join(", ")
        ))),
    }
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let client = args.connect.client()?;
    let user_id = match args.user {
        Some(email) if email.contains('@') => Some(client.user(&email).await?.user_id),
        user => user,
    };
    let token = CreateToken {
        name: args.name,
        role: args.role,
        all_owners: args.scope.all_owners(),
        owner_id: args.scope.owner,
        queues: args.scope.queue,
        job_types: args.scope.job_type,
        permissions: args.scope.permission,
        expires_at: None,
        expires_after: args.expires,
        user_id,
    };
    let token = client.create_token(&token).await?;
    args.output.print(&token, described)?;
    tell_once(args.output);
    Ok(())
}

/// Programs that read the output know.
fn tell_once(output: OutputArgs) {
    if output.is_table() {
        tell("note: the secret is the whole token, and it is not shown again: store it now");
    }
}

fn described(token: &TokenBody) -> String {
    details([
        ("token", Some(token.token_id.clone())),
        ("secret", token.secret.clone()),
        ("name", Some(token.name.clone())),
        ("role", Some(token.role.clone())),
        ("owner", Some(grant::owner(token.owner_id.as_ref(), token.all_owners))),
        ("queues", grant::joined(&token.queues)),
        ("job types", grant::joined(&token.job_types)),
        ("permissions", grant::joined(&token.permissions)),
        ("user", token.user_id.clone()),
        ("created", Some(time(token.created_at))),
        ("expires", Some(expiry(token))),
        ("last used", token.last_used_at.map(time)),
        ("old secret until", token.old_secret_until.map(time)),
    ])
}

fn expiry(token: &TokenBody) -> String {
    token.expires_at.map_or_else(|| "never".to_owned(), time)
}

fn tokens_table(page: &Page<TokenBody>) -> String {
    let rows = page.items.iter().map(|token| {
        vec![
            token.token_id.clone(),
            shortened(&token.name, 40),
            if token.browser { format!("{} (browser)", token.role) } else { token.role.clone() },
            grant::owner(token.owner_id.as_ref(), token.all_owners),
            grant::limits(&token.queues, &token.job_types, &token.permissions),
            token.user_id.clone().unwrap_or_else(|| "-".to_owned()),
            time(token.created_at),
            expiry(token),
            optional_time(token.last_used_at),
        ]
    });
    table(&["TOKEN", "NAME", "ROLE", "OWNER", "LIMITS", "USER", "CREATED", "EXPIRES", "LAST USED"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct UpdateTokenLine {
        #[command(flatten)]
        update: UpdateTokenArgs,
    }

    fn patch(line: &str) -> Result<Value, String> {
        let line =
            UpdateTokenLine::try_parse_from(["update", "k3v8"].into_iter().chain(line.split_whitespace()));
        let patch = line.map_err(|error| error.to_string())?.update.patch();
        patch.map(Value::Object).map_err(|error| error.message)
    }

    #[test]
    fn only_what_is_named_is_changed() {
        for (line, expected) in [
            ("--name b --role viewer", json!({"name": "b", "role": "viewer"})),
            ("--expires 30d --queue a", json!({"expires_after": "30d", "queues": ["a"]})),
            ("--unset expires --unset owner", json!({"expires_at": null, "owner_id": null})),
        ] {
            assert_eq!(patch(line), Ok(expected), "{line}");
        }
        for (wrong, told) in [
            ("", "nothing to change"),
            ("--expires 1d --unset expires", "--unset expires conflicts"),
            ("--unset role", "must be one of expires, owner"),
        ] {
            let problem = patch(wrong).unwrap_err();
            assert!(problem.contains(told), "{problem}");
        }
    }
}
