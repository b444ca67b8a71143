//! `punctual token`: creates, shows, rotates and revokes tokens.

use crate::grant::{self, ScopeArgs};
use clap::Subcommand;
use punctual_client::{CreateToken, Page, RotateToken, Span, TokenBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details, optional_time, print_text, shortened, table, tell, time};
use punctual_core::access::Role;

#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a token and show its secret, once
    Create(CreateArgs),
    /// List all tokens, without their secrets
    List(ListArgs),
    /// Show a token, without its secret
    Show(TokenArgs),
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
pub struct ListArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct TokenArgs {
    /// The id of the token
    #[arg(value_name = "TOKEN", value_parser = args::path_name)]
    id: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RotateArgs {
    /// The id of the token
    #[arg(value_name = "TOKEN", value_parser = args::path_name)]
    id: String,
    /// How long the old secret works; 0s ends it at once
    #[arg(long, value_name = "DURATION", value_parser = args::span, default_value = "1h")]
    overlap: Span,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RevokeArgs {
    /// The ids of the tokens
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
            let token = args.connect.client()?.token(&args.id).await?;
            args.output.print(&token, described)?;
        }
        TokenCommand::Rotate(args) => {
            let how = RotateToken { overlap: Some(args.overlap) };
            let token = args.connect.client()?.rotate_token(&args.id, &how).await?;
            args.output.print(&token, described)?;
            tell_once(args.output);
        }
        TokenCommand::Revoke(args) => {
            let client = args.connect.client()?;
            for id in &args.ids {
                client.revoke_token(id).await?;
                print_text(&format!("revoked token {id}"))?;
            }
        }
    }
    Ok(Exit::Done)
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
