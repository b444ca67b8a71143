//! Every operation of the API with every role: 403 exactly if the permission for it is missing.

use crate::compat;
use crate::server::Server;
use punctual_client::CreateToken;
use punctual_core::access::{Permission, Role};
use reqwest::{Method, StatusCode};
use serde_json::Value;

const JOB: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11";

/// A request that is right in form, about things that need not exist.
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
    /// `None` if any token will do.
    permission: Option<Permission>,
}

/// All operations that need a token, as the document describes them, about a job that need not exist.
pub async fn operations(server: &Server) -> Vec<Asked> {
    operations_about(server, JOB).await
}

/// The same about this job.
pub async fn operations_about(server: &Server, job: &str) -> Vec<Asked> {
    let (_, document) = server.get("/openapi.json").await;
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            if operation["security"].as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            let permission = operation["x-permission"].as_str();
            operations.push(Asked {
                method: method.to_uppercase().parse().expect("a method"),
                path: named(path, job),
                body: operation.pointer("/requestBody/content/application~1json/example").cloned(),
                permission: permission.map(|word| word.parse().expect("a permission")),
            });
        }
    }
    operations
}

/// The requests of the compatibility routes, which the document does not describe, about this job of this user.
pub fn compatible(job: &str, user: &str) -> Vec<Asked> {
    let requests = compat::access::requests(job, user).into_iter();
    requests
        .map(|request| Asked {
            body: request.body(),
            method: request.method,
            path: request.path,
            permission: None,
        })
        .collect()
}

fn named(path: &str, job: &str) -> String {
    path.replace("/jobs/{id}", &format!("/jobs/{job}"))
        .replace("/executions/{id}", &format!("/executions/{job}.1.1"))
        .replace("/worker/sessions/{id}", "/worker/sessions/7")
        .replace("{operation_id}", JOB)
        .replace("{queue}", "q")
        .replace(['{', '}'], "x")
}

async fn token(server: &Server, role: Role, permissions: Vec<Permission>) -> String {
    let name = format!("{role} and {}", permissions.len());
    let all_owners = Some(true);
    let new = CreateToken { name, role: Some(role), permissions, all_owners, ..CreateToken::default() };
    server.client().create_token(&new).await.expect("a token").secret.expect("a secret")
}

/// A token with every permission but this one.
async fn token_without(server: &Server, permission: Permission) -> String {
    let role = if permission == Permission::Work { Role::Viewer } else { Role::Worker };
    assert!(!role.permissions().has(permission));
    let others = Permission::ALL.iter().copied().filter(|other| *other != permission).collect();
    token(server, role, others).await
}

async fn status(server: &Server, asked: &Asked, token: &str) -> StatusCode {
    let request = server.anonymous(asked.method.clone(), &asked.path).bearer_auth(token);
    let request = match &asked.body {
        Some(body) => request.json(body),
        None => request,
    };
    // Only the head: a stream has no end.
    request.send().await.expect("an answer").status()
}

#[tokio::test]
async fn every_operation_is_refused_exactly_to_callers_without_its_permission() {
    // Requests drive the clock too.
    let server = Server::start_with(&["--clock", "manual"]);
    let operations = operations(&server).await;
    assert!(operations.len() > 60, "only {} operations", operations.len());
    let mut callers = Vec::new();
    for role in Role::ALL {
        callers.push((format!("role {role}"), role.permissions(), token(&server, *role, vec![]).await));
    }
    for permission in Permission::ALL {
        let others = Permission::ALL.iter().copied().filter(|other| other != permission).collect();
        callers.push((format!("all but {permission}"), others, token_without(&server, *permission).await));
    }
    for asked in &operations {
        for (who, permissions, token) in &callers {
            let lacks = asked.permission.is_some_and(|needed| !permissions.has(needed));
            let is_role = who.starts_with("role ");
            // Some requests need further permissions for a part of what they do, such as granting them.
            if !is_role && !lacks {
                continue;
            }
            let status = status(&server, asked, token).await;
            let Asked { method, path, .. } = asked;
            assert_eq!(status == StatusCode::FORBIDDEN, lacks, "{method} {path} for {who}: {status}");
            assert!(!status.is_server_error(), "{method} {path} for {who}: {status}");
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{method} {path} for {who}");
        }
    }
}
