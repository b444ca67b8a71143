//! Tokens and users.

use super::super::operation::{Operation, Title};
use super::{ACCESS, NO_PARAMETERS, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::text;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![
        list_tokens(),
        create_token(),
        show_token(),
        patch_token(),
        rotate_token(),
        revoke_token(),
        list_users(),
        add_user(),
        show_user(),
        patch_user(),
        remove_user(),
    ]
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: ACCESS, summary }
}

const OUT_OF_RANGE: &str = "A parameter is unknown or out of range.";
const NO_KEY: &str = "The body cannot be read, or the request has an `Idempotency-Key`: responses with secrets are \
                      never stored, so this route accepts none.";

fn on_tokens(method: Method, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/tokens"), title)
}

fn on_token(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/tokens/{{token_id}}{rest}"), title)
        .in_path("token_id", text().about("The id of the token.").example("k3v8x0q2m7ab"))
        .fails(404, "There is no such token.")
}

fn list_tokens() -> Operation {
    let operation = on_tokens(Method::GET, title("listTokens", "List tokens"))
        .needs(UseCase::ReadTokens)
        .about(
            "By id, without their secrets. `admin` is the token that the first start of the server created.",
        )
        .fails(400, OUT_OF_RANGE);
    paged_by_most(operation).answers(200, "One page.", "TokenPage")
}

fn create_token() -> Operation {
    on_tokens(Method::POST, title("createToken", "Create a token"))
        .needs(UseCase::CreateToken)
        .about(
            "Only this response has the secret: the server keeps its hash. No token can grant a permission that \
             it lacks itself.",
        )
        .takes(
            "CreateToken",
            json!({"name": "deploy", "role": "submitter", "owner_id": "team-mail", "expires_after": "90d"}),
        )
        .answers(201, "The token, with its secret.", "Token")
        .with_header(201, "Location")
        .fails(400, NO_KEY)
        .fails(409, "There are too many tokens.")
}

fn show_token() -> Operation {
    on_token(Method::GET, "", title("getToken", "Get a token"))
        .needs(UseCase::ReadTokens)
        .about("Without its secret.")
        .answers(200, "The token.", "Token")
        .fails(400, NO_PARAMETERS)
}

fn patch_token() -> Operation {
    on_token(Method::PATCH, "", title("changeToken", "Change a token"))
        .needs(UseCase::UpdateToken)
        .about(
            "A JSON merge patch (RFC 7396). Its id, secret and user stay. It applies at once on the server that answers, \
             within 5 seconds on others. If it may do something else from then on, the sessions of workers that it \
             opened end.",
        )
        .takes_as(
            &["application/json", "application/merge-patch+json"],
            "PatchToken",
            json!({"role": "viewer", "expires_after": "30d"}),
        )
        .answers(200, "The token.", "Token")
        .fails(409, "It is the last token that can manage tokens and users; or other requests keep changing it.")
}

fn rotate_token() -> Operation {
    on_token(Method::POST, "/rotate", title("rotateToken", "Rotate a token"))
        .needs(UseCase::RotateToken)
        .about(
            "Gives it a new secret and keeps its id. The old secret works for the `overlap`, so that services can \
             be switched over one by one. Only this response has the new secret. Without a new expiry, it keeps the one that \
             it has.",
        )
        .may_take("RotateToken", json!({"overlap": "1h"}))
        .answers(200, "The token, with its new secret.", "Token")
        .fails(400, NO_KEY)
        .fails(409, "Other requests keep changing the token.")
}

fn revoke_token() -> Operation {
    on_token(Method::DELETE, "", title("revokeToken", "Revoke a token"))
        .needs(UseCase::RevokeToken)
        .about(
            "It stops working: at once on the server that answers, within 5 seconds on others. The sessions of \
             workers that it opened end, and what they run is retried as if the workers had died.",
        )
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "The token is gone.")
        .fails(409, "It is the last token that can manage tokens and users; or its workers keep opening sessions.")
}

fn on_users(method: Method, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/users"), title)
}

fn on_user(method: Method, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/users/{{user_id}}"), title)
        .in_path(
            "user_id",
            text().about("The id or the email address of the user.").example("ann@example.org"),
        )
        .fails(404, "There is no such user.")
}

const TAKEN: &str = "Another user has the email address, or there are too many users.";

fn list_users() -> Operation {
    let operation = on_users(Method::GET, title("listUsers", "List users"))
        .needs(UseCase::ReadUsers)
        .about("By id.")
        .fails(400, OUT_OF_RANGE);
    paged_by_most(operation).answers(200, "One page.", "UserPage")
}

fn add_user() -> Operation {
    on_users(Method::POST, title("addUser", "Add a user"))
        .needs(UseCase::AddUser)
        .about(
            "The user can log in with this email address where the server has an OIDC provider, and can have tokens.",
        )
        .takes(
            "CreateUser",
            json!({"email": "ann@example.org", "role": "operator", "display_name": "Ann Example"}),
        )
        .answers(201, "The user.", "User")
        .with_header(201, "Location")
        .fails(409, TAKEN)
}

fn show_user() -> Operation {
    on_user(Method::GET, title("getUser", "Get a user"))
        .needs(UseCase::ReadUsers)
        .about("By id or email address.")
        .answers(200, "The user.", "User")
        .fails(400, NO_PARAMETERS)
}

fn patch_user() -> Operation {
    on_user(Method::PATCH, title("changeUser", "Change a user"))
        .needs(UseCase::UpdateUser)
        .about(
            "A JSON merge patch (RFC 7396). It applies to the user's tokens too: at once on the server that answers, \
             within 5 seconds on others.",
        )
        .takes_as(
            &["application/json", "application/merge-patch+json"],
            "PatchUser",
            json!({"role": "viewer", "disabled": false}),
        )
        .answers(200, "The user.", "User")
        .fails(409, TAKEN)
}

fn remove_user() -> Operation {
    on_user(Method::DELETE, title("removeUser", "Remove a user"))
        .needs(UseCase::RemoveUser)
        .about("Removes the user and all tokens that belong to it. Jobs of the user's owner stay.")
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "The user is gone.")
        .fails(409, "Workers with the user's tokens keep opening sessions.")
}
