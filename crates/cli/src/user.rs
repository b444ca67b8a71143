//! `punctual user`: adds, shows, changes and removes users.

use crate::grant::{self, ScopeArgs};
use crate::list_args::ListArgs;
use clap::Subcommand;
use punctual_client::{Client, CreateUser, Page, UserBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, print_text, shortened, table, tell, time};
use punctual_core::access::Role;
use serde_json::{Map, Value, json};

#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user
    Add(AddArgs),
    /// List all users
    List(ListArgs),
    /// Show a user
    Show(UserArgs),
    /// Change a user; what is not named stays as it is
    Update(UpdateArgs),
    /// Remove users and their tokens
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub struct AddArgs {
    /// The email address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// What the user may do: viewer, submitter, operator, admin or worker
    #[arg(long, value_name = "ROLE", value_parser = grant::role)]
    role: Role,
    #[command(flatten)]
    about: AboutArgs,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
struct AboutArgs {
    /// The name to show
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// How the user prefers to be notified, such as email or slack
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
}

#[derive(clap::Args)]
pub struct UserArgs {
    /// The id or email address of the user
    #[arg(value_name = "USER", value_parser = args::path_name)]
    user: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct UpdateArgs {
    /// The id or email address of the user
    #[arg(value_name = "USER", value_parser = args::path_name)]
    user: String,
    /// A new email address
    #[arg(long)]
    email: Option<String>,
    /// What the user may do: viewer, submitter, operator, admin or worker
    #[arg(long, value_name = "ROLE", value_parser = grant::role)]
    role: Option<Role>,
    #[command(flatten)]
    about: AboutArgs,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Reset this field to its default, such as owner, queue or permission; can be given more than once
    #[arg(long, value_name = "FIELD", value_parser = field)]
    unset: Vec<&'static str>,
    /// Do not let the user in any more; tokens of the user stop working
    #[arg(long, conflicts_with = "enable")]
    disable: bool,
    /// Let the user in again
    #[arg(long)]
    enable: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The ids or email addresses of the users
    #[arg(value_name = "USER", required = true, value_parser = args::path_name)]
    users: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Flags whose fields can be reset.
const FIELDS: [(&str, &str); 7] = [
    ("name", "display_name"),
    ("channel", "notification_channel"),
    ("owner", "owner_id"),
    ("all-owners", "all_owners"),
    ("queue", "queues"),
    ("job-type", "job_types"),
    ("permission", "permissions"),
];

fn field(text: &str) -> Result<&'static str, String> {
    grant::field_of(&FIELDS, text)
}

pub async fn run(command: UserCommand) -> anyhow::Result<Exit> {
    match command {
        UserCommand::Add(args) => {
            let user = CreateUser {
                email: args.email,
                display_name: args.about.name,
                role: args.role,
                all_owners: args.scope.all_owners(),
                owner_id: args.scope.owner,
                queues: args.scope.queue,
                job_types: args.scope.job_type,
                permissions: args.scope.permission,
                notification_channel: args.about.channel,
            };
            let client = args.connect.client()?;
            let user = client.add_user(&user).await?;
            args.output.print(&user, described)?;
            warn_of_channel(&client, user.notification_channel.as_deref()).await;
        }
        UserCommand::List(args) => {
            let users = args.connect.client()?.users().await?;
            args.output.print(&users, users_table)?;
        }
        UserCommand::Show(args) => {
            let user = args.connect.client()?.user(&args.user).await?;
            args.output.print(&user, described)?;
        }
        UserCommand::Update(args) => {
            let patch = args.patch()?;
            let client = args.connect.client()?;
            let user = client.update_user(&args.user, &patch).await?;
            args.output.print(&user, described)?;
            warn_of_channel(&client, args.about.channel.as_deref()).await;
        }
        UserCommand::Remove(args) => {
            let client = args.connect.client()?;
            for user in &args.users {
                client.remove_user(user).await?;
                print_text(&format!("removed user {user}"))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Warns about a channel that does not exist. It may be added later.
async fn warn_of_channel(client: &Client, channel: Option<&str>) {
    let Some(channel) = channel else { return };
    if client.channel(channel).await.is_err_and(|error| error.is_not_found()) {
        tell(&format!(
            "warning: there is no channel {channel}, so the user gets no notifications: `punctual channel list` shows the \
             channels, and `punctual channel set` adds one"
        ));
    }
}

impl UpdateArgs {
    fn patch(&self) -> Result<Map<String, Value>, CliError> {
        let disabled = (self.disable || self.enable).then_some(self.disable);
        let own = [
            ("email", self.email.as_ref().map(|email| json!(email))),
            ("display_name", self.about.name.as_ref().map(|name| json!(name))),
            ("role", self.role.map(|role| json!(role))),
            ("notification_channel", self.about.channel.as_ref().map(|channel| json!(channel))),
            ("disabled", disabled.map(Value::from)),
        ];
        grant::patch(own.into_iter().chain(self.scope.changes()), &self.unset)
    }
}

fn described(user: &UserBody) -> String {
    details([
        ("user", Some(user.user_id.clone())),
        ("email", Some(user.email.clone())),
        ("name", user.display_name.clone()),
        ("role", Some(user.role.clone())),
        ("owner", Some(grant::owner(user.owner_id.as_ref(), user.all_owners))),
        ("queues", grant::joined(&user.queues)),
        ("job types", grant::joined(&user.job_types)),
        ("permissions", grant::joined(&user.permissions)),
        ("channel", user.notification_channel.clone()),
        ("status", Some(status(user).to_owned())),
        ("created", Some(time(user.created_at))),
    ])
}

fn status(user: &UserBody) -> &'static str {
    if user.disabled { "DISABLED" } else { "ACTIVE" }
}

fn users_table(page: &Page<UserBody>) -> String {
    if page.items.is_empty() {
        return "there are no users; add one with `punctual user add`".to_owned();
    }
    let rows = page.items.iter().map(|user| {
        vec![
            user.user_id.clone(),
            user.email.clone(),
            user.display_name.as_deref().map_or_else(|| "-".to_owned(), |name| shortened(name, 40)),
            user.role.clone(),
            grant::owner(user.owner_id.as_ref(), user.all_owners),
            grant::limits(&user.queues, &user.job_types, &user.permissions),
            status(user).to_owned(),
        ]
    });
    table(&["USER", "EMAIL", "NAME", "ROLE", "OWNER", "LIMITS", "STATUS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        update: UpdateArgs,
    }

    fn patch(line: &str) -> Result<Value, String> {
        let line =
            Line::try_parse_from(["update", "ann@example.org"].into_iter().chain(line.split_whitespace()));
        let patch = line.map_err(|error| error.to_string())?.update.patch();
        patch.map(Value::Object).map_err(|error| error.message)
    }

    #[test]
    fn only_what_is_named_is_changed() {
        for (line, expected) in [
            ("--role viewer --enable", json!({"role": "viewer", "disabled": false})),
            ("--disable", json!({"disabled": true})),
            ("--queue a --queue b --all-owners", json!({"queues": ["a", "b"], "all_owners": true})),
            ("--unset owner --unset display_name", json!({"owner_id": null, "display_name": null})),
            ("--permission payload:read", json!({"permissions": ["payload:read"]})),
        ] {
            assert_eq!(patch(line), Ok(expected), "{line}");
        }
        for (wrong, told) in [
            ("", "nothing to change"),
            ("--owner a --unset owner", "--unset owner_id conflicts"),
            ("--unset role", "must be one of name, channel, owner"),
            ("--enable --disable", "cannot be used with"),
        ] {
            let problem = patch(wrong).unwrap_err();
            assert!(problem.contains(told), "{problem}");
        }
    }
}
