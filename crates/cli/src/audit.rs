//! `punctual audit`: lists and verifies the audit log.

use crate::dlq::filter::{FilterTime, moment, resolved};
use crate::job::which;
use crate::pages;
use clap::Subcommand;
use punctual_client::{AuditCheckBody, AuditEntryBody, AuditFilter, Client, Page};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, one_line, shortened, table, tell, time};
use serde::Deserialize;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Check that no entry was changed, removed or inserted; exits with 1 if one was
    Verify(VerifyArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    /// Only requests with this token, by id
    #[arg(long = "token-id", value_name = "TOKEN")]
    token_id: Option<String>,
    /// Only requests of this user, by id
    #[arg(long)]
    user: Option<String>,
    /// Only actions that begin with this, such as job.pause, or job. for all actions on jobs
    #[arg(long)]
    action: Option<String>,
    /// Only requests about exactly this, such as "queue mail", or the id or name of a job
    #[arg(long)]
    object: Option<String>,
    /// Only outcomes that begin with this: ok or refused
    #[arg(long)]
    outcome: Option<String>,
    /// Only from this time on: 2026-11-15T08:30:00Z, or 2h for the last two hours
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<FilterTime>,
    /// Only before this time, or longer ago than this
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<FilterTime>,
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = args::limit)]
    limit: usize,
    /// Continue where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
struct VerifyArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: AuditArgs) -> anyhow::Result<Exit> {
    match args.command {
        None => list(args.list).await,
        Some(AuditCommand::Verify(args)) => verify(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let mut filter = AuditFilter {
        token_id: args.token_id,
        user_id: args.user,
        action: args.action,
        object: args.object,
        outcome: args.outcome,
        from: resolved(&client, args.since).await?,
        until: resolved(&client, args.until).await?,
    };
    let mut page = matching(&client, &filter, args.limit, args.cursor).await?;
    let word = filter.object.as_deref().filter(|object| page.items.is_empty() && !object.contains(' '));
    if let Some(word) = word {
        match which::find(&client, word).await {
            Ok(job) => {
                filter.object = Some(format!("job {job}"));
                page = matching(&client, &filter, args.limit, None).await?;
            }
            Err(_) => tell(&format!(
                "note: {word} is no object and no job: an object has a kind and a name, such as \"queue mail\" or \"token ID\""
            )),
        }
    }
    args.output.print(&page, entries_table)?;
    pages::tell_more(args.output, page.next_cursor.as_deref());
    Ok(Exit::Done)
}

async fn matching(
    client: &Client,
    filter: &AuditFilter,
    limit: usize,
    cursor: Option<String>,
) -> anyhow::Result<Page<AuditEntryBody>> {
    let read =
        async |limit, cursor: Option<String>| client.audit(filter, Some(limit), cursor.as_deref()).await;
    Ok(pages::collect(limit, cursor, read).await?)
}

fn entries_table(page: &Page<AuditEntryBody>) -> String {
    if page.items.is_empty() {
        return "no entries".to_owned();
    }
    let rows = page.items.iter().map(|entry| {
        let number = entry.number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        vec![
            number,
            time(entry.at),
            shortened(if entry.name.is_empty() { &entry.token_id } else { &entry.name }, 30),
            entry.source.clone().unwrap_or_else(|| "-".to_owned()),
            entry.action.clone(),
            object(entry),
            one_line(&entry.outcome).into_owned(),
        ]
    });
    table(&["NUMBER", "AT", "WHO", "FROM", "ACTION", "OBJECT", "OUTCOME"], rows)
}

/// What the entry is about. A use of secrets is about an execution, and its details name the secrets.
fn object(entry: &AuditEntryBody) -> String {
    #[derive(Deserialize)]
    struct UsedSecrets {
        secrets: Vec<String>,
    }

    let object = shortened(&entry.object, 50);
    let used = entry.details.as_ref().filter(|_| entry.action == "secret.use");
    match used.map(|details| serde_json::from_str(details.get())) {
        Some(Ok(UsedSecrets { secrets })) => {
            format!("{object}: {}", shortened(&one_line(&secrets.join(", ")), 50))
        }
        _ => object,
    }
}

async fn verify(args: VerifyArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let (mut after, mut checked) = (0, 0);
    let last = loop {
        let step = client.verify_audit(after).await?;
        checked += step.checked;
        match step.next {
            Some(next) => after = next,
            None => break AuditCheckBody { checked, ..step },
        }
    };
    args.output.print(&last, verified)?;
    Ok(if last.broken.is_some() { Exit::Failed } else { Exit::Done })
}

fn verified(check: &AuditCheckBody) -> String {
    let AuditCheckBody { checked, deleted_until, last_number, last_hash, .. } = check;
    let unsealed = match check.unsealed {
        0 => String::new(),
        1 => "; the newest entry is not sealed yet".to_owned(),
        count => format!("; the {count} newest entries are not sealed yet"),
    };
    let found = match &check.broken {
        Some(broken) if broken.number == 0 => {
            format!("the audit log is not as it was written: {}", broken.problem)
        }
        Some(broken) => format!(
            "entry {} is not as it was written: {}; {checked} entries before it are unchanged",
            broken.number, broken.problem
        ),
        None if *deleted_until > 0 => format!(
            "{checked} entries are unchanged; entries up to {deleted_until} were deleted by retention; \
             the last entry is {last_number} with hash {last_hash}"
        ),
        None => {
            format!("{checked} entries are unchanged; the last entry is {last_number} with hash {last_hash}")
        }
    };
    found + &unsealed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_that_are_not_sealed_are_counted() {
        let check = |unsealed| AuditCheckBody {
            checked: 7,
            broken: None,
            next: None,
            deleted_until: 0,
            last_number: 7,
            last_hash: "5f1c".to_owned(),
            unsealed,
        };
        let sealed = "7 entries are unchanged; the last entry is 7 with hash 5f1c";
        assert_eq!(verified(&check(0)), sealed);
        assert_eq!(verified(&check(1)), format!("{sealed}; the newest entry is not sealed yet"));
        assert_eq!(verified(&check(3)), format!("{sealed}; the 3 newest entries are not sealed yet"));
    }

    #[test]
    fn a_use_of_secrets_shows_their_names() {
        let row = |action: &str, details: serde_json::Value| {
            let entry = json!({"entry_id": "e", "at": "2026-11-15T08:30:00Z", "token_id": "t", "name": "mail-1",
                "action": action, "object": "execution x.1.1", "outcome": "ok", "details": details});
            object(&serde_json::from_str(&entry.to_string()).unwrap())
        };
        let used = json!({"secrets": ["smtp-password", "api-key"], "job": "x"});
        assert_eq!(row("secret.use", used.clone()), "execution x.1.1: smtp-password, api-key");
        assert_eq!(row("job.submit", used), "execution x.1.1");
        assert_eq!(row("secret.use", json!({"jobs": 1})), "execution x.1.1");
        assert_eq!(row("secret.use", serde_json::Value::Null), "execution x.1.1");
    }
}
