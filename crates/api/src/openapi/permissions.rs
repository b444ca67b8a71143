//! Which permission each operation needs: a test that none is without, and the reference page.

use super::operation::Operation;
use super::paths;
use punctual_core::access::{Permission, Role};
use punctual_engine::UseCase;
use std::fmt::Write;

/// Operations for which any valid token will do. They show nothing but the caller and public facts.
const FOR_ANY_TOKEN: [&str; 3] = ["getClock", "getIndex", "getMe"];

const OPENING: &str = "\
# Permissions

A token or user has a [role](#roles), which is a set of permissions, and may have further permissions. Its scope is independent of
them: it limits to which owner, queues and job types the permissions apply. See the guide
[Users and access](../guides/users-and-access.md).

";

const CLOSING: &str = "\
<!-- Generated: `UPDATE_DOCS=1 cargo nextest run -p punctual-api permissions` writes it from the table in
crates/engine/src/use_cases/table.rs; a test compares the two. -->
";

fn page() -> String {
    let mut text = OPENING.to_owned();
    roles(&mut text);
    use_cases(&mut text);
    text + CLOSING
}

fn roles(text: &mut String) {
    let roles = Role::ALL;
    let heads: Vec<&str> = roles.iter().map(|role| role.word()).collect();
    let _ = writeln!(text, "## Roles\n\n| permission | allows to | {} |", heads.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(roles.len()));
    for permission in Permission::ALL {
        let marks = roles.iter().map(|role| if role.permissions().has(*permission) { "yes" } else { "" });
        let marks: Vec<&str> = marks.collect();
        let _ = writeln!(text, "| `{permission}` | {} | {} |", meaning(*permission), marks.join(" | "));
    }
    text.push_str(
        "\nWithout an owner of its own, a submitter reaches only the jobs of the owner that is named like itself; the other roles \
         reach the\njobs of all owners.\n\n",
    );
}

fn meaning(permission: Permission) -> &'static str {
    match permission {
        Permission::JobsRead => "see jobs, executions, events and dead letters, without the data of jobs",
        Permission::PayloadRead => {
            "see the data of jobs: payloads, results, checkpoints and logs; includes `jobs:read`"
        }
        Permission::JobsWrite => "submit, change and control jobs; includes `jobs:read`",
        Permission::ServerRead => "see queues, workers, nodes, statistics and metrics",
        Permission::QueuesWrite => "pause queues and set their limits",
        Permission::WorkersWrite => "pause and drain workers",
        Permission::ClockWrite => "drive the clock of a server with a manual clock",
        Permission::AccessRead => "see tokens and users",
        Permission::AccessWrite => "create, change and remove tokens and users",
        Permission::AuditRead => "read the audit log and the settings of the server",
        Permission::SecretsRead => "see the names and rules of secrets",
        Permission::SecretsWrite => "set, remove and re-encrypt secrets",
        Permission::NotificationsRead => {
            "see channels, rules, silences, alerts and deliveries, without secrets"
        }
        Permission::NotificationsWrite => {
            "set channels, rules and silences, acknowledge alerts, and send messages again"
        }
        Permission::Work => "open worker sessions and run jobs",
    }
}

fn use_cases(text: &mut String) {
    text.push_str(
        "## Requests\n\nA request without its permission changes and reads nothing, and is answered with 403. A request that cannot \
         be\nunderstood is answered with 400 or 422 before that, whatever the token may do. *Whole server* means that a token or user \
         with\na limited scope is refused too.\n\n| use case | permission | whole server | requests |\n|---|---|---|---|\n",
    );
    let operations = paths::all();
    for case in UseCase::ALL {
        let requests = operations.iter().filter(|operation| operation.case == Some(*case));
        let requests: Vec<String> = requests.map(request).collect();
        let whole = if case.is_server_wide() { "yes" } else { "" };
        let (name, permission) = (case.name(), case.permission());
        let _ = writeln!(text, "| {name} | `{permission}` | {whole} | {} |", requests.join("<br>"));
    }
    let unlisted = operations.iter().filter(|operation| operation.case.is_none() && !operation.is_public());
    let unlisted: Vec<String> = unlisted.map(request).collect();
    let public: Vec<String> =
        operations.iter().filter(|operation| operation.is_public()).map(request).collect();
    let _ = writeln!(text, "\nAny valid token may send: {}.\n", unlisted.join(", "));
    let _ = writeln!(
        text,
        "These need no token: {}. The pages for logging in need none, either: `GET /login`,\n`POST /login`, `GET /login/oidc`, \
         `GET /login/callback` and `POST /logout`. Neither do the files of the\ndashboard below `/ui`, and \
         `GET /acknowledge` and `POST /acknowledge`: the signed link of a message acknowledges its alert, and nothing else.\n",
        public.join(", ")
    );
}

fn request(operation: &Operation) -> String {
    format!("`{} {}`", operation.method, operation.path)
}

#[test]
fn every_operation_names_its_use_case() {
    for operation in paths::all().iter().filter(|operation| !operation.is_public()) {
        let id = operation.id();
        assert_eq!(
            operation.case.is_none(),
            FOR_ANY_TOKEN.contains(&id),
            "{id}: say which permission it needs, with `.needs(UseCase::…)`"
        );
    }
    for operation in paths::all().iter().filter(|operation| operation.is_public()) {
        assert_eq!(operation.case, None, "{} needs a permission and no token", operation.id());
    }
}

#[test]
fn every_use_case_has_an_operation() {
    let operations = paths::all();
    for case in UseCase::ALL {
        assert!(operations.iter().any(|operation| operation.case == Some(*case)), "{} has none", case.name());
    }
}

#[test]
fn the_permissions_page_is_that_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/permissions.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    // Not with `assert_eq`, which would print both.
    assert!(
        committed == page(),
        "docs/reference/permissions.md is outdated: `UPDATE_DOCS=1 cargo nextest run -p punctual-api permissions`"
    );
}
