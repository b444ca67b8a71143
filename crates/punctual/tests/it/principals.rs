//! Principals for tests: tokens with a role and a scope, and requests with them.

use crate::server::{Server, answer};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A token of a server.
pub struct Principal<'a> {
    server: &'a Server,
    pub id: String,
    pub secret: String,
}

impl<'a> Principal<'a> {
    /// Creates a token; `fields` are those of `POST /tokens`.
    pub async fn create(server: &'a Server, fields: Value) -> Self {
        let (status, body) = server.post("/api/v1/tokens", &fields.to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        let text = |field: &str| body[field].as_str().expect("a text").to_owned();
        Principal { server, id: text("token_id"), secret: text("secret") }
    }

    /// A token that was created before the server was started again.
    pub fn known(server: &'a Server, secret: &str) -> Self {
        Principal { server, id: String::new(), secret: secret.to_owned() }
    }

    /// A submitter that owns its jobs.
    pub async fn submitter(server: &'a Server, owner: &str) -> Self {
        Principal::create(server, json!({"name": owner, "role": "submitter", "owner_id": owner})).await
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.server.anonymous(method, path).bearer_auth(&self.secret)
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.request(method, path).json(body)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.send(Method::POST, path, body).await
    }

    /// Submits a job that must be accepted, and returns its id.
    pub async fn submit(&self, job: Value) -> String {
        let (status, body) = self.post("/api/v1/jobs", &job).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["job_id"].as_str().expect("an id").to_owned()
    }

    pub async fn revoke(&self) {
        let path = format!("/api/v1/tokens/{}", self.id);
        let (status, body) = answer(self.server.request(Method::DELETE, &path)).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
}
