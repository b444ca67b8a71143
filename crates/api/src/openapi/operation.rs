//! Operations: one method of one path, its parameters and all its responses.

use axum::http::Method;
use punctual_client::schema::Schema;
use punctual_engine::UseCase;
use serde_json::{Map, Value, json};

/// The responses that any operation may have, by status: the name of the shared description.
const SHARED: [(u16, &str); 10] = [
    (400, "BadRequest"),
    (401, "Unauthorized"),
    (403, "Forbidden"),
    (408, "RequestTimeout"),
    (413, "PayloadTooLarge"),
    (414, "UriTooLong"),
    (415, "UnsupportedMediaType"),
    (422, "UnprocessableContent"),
    (429, "TooManyRequests"),
    (503, "ServiceUnavailable"),
];

/// The headers that responses to a user or token with a rate limit have.
pub const RATE_HEADERS: [&str; 3] = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];

pub struct Operation {
    pub path: String,
    pub method: Method,
    /// What it does, which decides about the permission that it needs.
    pub case: Option<UseCase>,
    said: Map<String, Value>,
    parameters: Vec<Value>,
    answers: Map<String, Value>,
}

/// The name of an operation: its id, its tag, and its summary.
pub struct Title {
    pub id: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
}

impl Operation {
    /// An operation that needs a token.
    pub fn new(method: Method, path: impl Into<String>, title: Title) -> Self {
        Operation::public(method, path, title)
            .said("security", json!([{"token": []}]))
            .shares(&[401, 429, 503])
    }

    /// Names what it does. The engine checks the permission for it.
    pub fn needs(self, case: UseCase) -> Self {
        Operation { case: Some(case), ..self.said("x-permission", case.permission().word()).shares(&[403]) }
    }

    /// The name of the operation, as in [`Title`].
    #[cfg(test)]
    pub fn id(&self) -> &str {
        self.said["operationId"].as_str().unwrap_or_default()
    }

    #[cfg(test)]
    pub fn is_public(&self) -> bool {
        self.said["security"] == json!([])
    }

    /// An operation that needs no token.
    pub fn public(method: Method, path: impl Into<String>, title: Title) -> Self {
        let operation = Operation {
            path: path.into(),
            method,
            case: None,
            said: Map::new(),
            parameters: vec![],
            answers: Map::new(),
        };
        operation
            .said("operationId", title.id)
            .said("tags", vec![title.tag])
            .said("summary", title.summary)
            .said("security", json!([]))
    }

    fn said(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.said.insert(keyword.to_owned(), value.into());
        self
    }

    pub fn about(self, text: &str) -> Self {
        self.said("description", text)
    }

    pub fn in_path(self, name: &str, schema: Schema) -> Self {
        self.parameter("path", name, schema)
    }

    pub fn in_query(self, name: &str, schema: Schema) -> Self {
        self.parameter("query", name, schema).shares(&[400, 414])
    }

    pub fn in_header(self, name: &str, schema: Schema) -> Self {
        self.parameter("header", name, schema).shares(&[400])
    }

    fn parameter(mut self, place: &str, name: &str, schema: Schema) -> Self {
        let mut schema = schema.value();
        let about = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        self.parameters.push(json!({
            "name": name, "in": place, "required": place == "path", "description": about, "schema": schema,
        }));
        self
    }

    /// Requires a body of this schema.
    pub fn takes(self, schema: &str, example: Value) -> Self {
        self.takes_as(&["application/json"], schema, example)
    }

    /// Requires a body of this schema, with any of these content types.
    pub fn takes_as(self, kinds: &[&str], schema: &str, example: Value) -> Self {
        let media = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}, "example": example});
        let content: Map<String, Value> =
            kinds.iter().map(|kind| ((*kind).to_owned(), media.clone())).collect();
        self.said("requestBody", json!({"required": true, "content": content})).reads_a_body()
    }

    /// Requires a body of any JSON.
    pub fn takes_any(self, example: Value) -> Self {
        let media = json!({"schema": {}, "example": example});
        self.said("requestBody", json!({"required": true, "content": {"application/json": media}}))
            .reads_a_body()
    }

    /// Accepts an optional body of this schema.
    pub fn may_take(self, schema: &str, example: Value) -> Self {
        let media = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}, "example": example});
        let body = json!({"required": false, "content": {"application/json": media}});
        self.said("requestBody", body).reads_a_body()
    }

    fn reads_a_body(self) -> Self {
        self.shares(&[400, 408, 413, 415, 422, 429])
    }

    /// Responds with a body of this schema.
    pub fn answers(self, status: u16, about: &str, schema: &str) -> Self {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        self.answers_as(status, about, "application/json", schema)
    }

    pub fn answers_as(mut self, status: u16, about: &str, kind: &str, schema: Value) -> Self {
        let answer = json!({"description": about, "content": {kind: {"schema": schema}}});
        self.answers.insert(status.to_string(), answer);
        self
    }

    /// Adds another content type to a response that was described before.
    pub fn also_answers(mut self, status: u16, kind: &str, schema: &str) -> Self {
        let answer = self.answers.get_mut(&status.to_string()).expect("the answer was described before");
        answer["content"][kind] = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
        self
    }

    /// Marks the 200, described before, as possibly a stream of server-sent events. Clients must not wait for
    /// its end; `x-stream` says so.
    pub fn streams(mut self, about: &str) -> Self {
        let answer = self.answers.get_mut("200").expect("the answer was described before");
        answer["content"]["text/event-stream"] = json!({"schema": {"type": "string", "description": about}});
        self.said("x-stream", true)
    }

    pub fn answers_nothing(mut self, status: u16, about: &str) -> Self {
        self.answers.insert(status.to_string(), json!({"description": about}));
        self
    }

    /// Adds a header to a response that was described before.
    pub fn with_header(mut self, status: u16, header: &str) -> Self {
        let answer = self.answers.get_mut(&status.to_string()).expect("the answer was described before");
        answer["headers"][header] = json!({"$ref": format!("#/components/headers/{header}")});
        self
    }

    /// Adds the headers of rate limits to a response that was described before.
    pub fn with_rate_headers(self, status: u16) -> Self {
        RATE_HEADERS.into_iter().fold(self, |operation, name| operation.with_header(status, name))
    }

    /// Adds an error response specific to this operation.
    pub fn fails(self, status: u16, about: &str) -> Self {
        let schema = json!({"$ref": "#/components/schemas/Problem"});
        self.answers_as(status, about, "application/problem+json", schema)
    }

    fn shares(mut self, statuses: &[u16]) -> Self {
        for (status, name) in SHARED.iter().filter(|(status, _)| statuses.contains(status)) {
            let shared = json!({"$ref": format!("#/components/responses/{name}")});
            self.answers.entry(status.to_string()).or_insert(shared);
        }
        self
    }

    pub fn value(self) -> Value {
        let mut said = self.said;
        if let (Some(case), Some(Value::String(about))) = (self.case, said.get_mut("description")) {
            *about += &format!(" Needs the permission `{}`", case.permission());
            *about += if case.is_server_wide() { " for the whole server." } else { "." };
        }
        if !self.parameters.is_empty() {
            said.insert("parameters".to_owned(), self.parameters.into());
        }
        said.insert("responses".to_owned(), self.answers.into());
        said.into()
    }
}

/// The shared response descriptions, by name.
pub fn shared_answers() -> Value {
    let retry_after = json!({"Retry-After": {"$ref": "#/components/headers/Retry-After"}});
    let mut limited = retry_after.clone();
    for name in RATE_HEADERS {
        limited[name] = json!({"$ref": format!("#/components/headers/{name}")});
    }
    let challenge = json!({"WWW-Authenticate": {"$ref": "#/components/headers/WWW-Authenticate"}});
    let about = |status: u16| match status {
        400 => {
            "The request cannot be read: a body that is not JSON, not UTF-8 or nested too deeply, a parameter that \
                is unknown or out of bounds, or a malformed header."
        }
        401 => "The token is missing, unknown or expired.",
        403 => "The token lacks the permission for this, or its scope does not allow it.",
        408 => "The body came too slowly. The connection is closed.",
        413 => "The body is too large.",
        414 => "Path and query are too long.",
        415 => "The body is not `application/json`.",
        422 => "The body is JSON, but not what this route expects: `errors` names the fields.",
        429 => {
            "The user or token has reached its rate limit, too many requests without a valid token came from its address, \
             or the server is overloaded: the request was not processed."
        }
        _ => "The store cannot be reached, or the server is stopping.",
    };
    let answers: Map<String, Value> = SHARED
        .iter()
        .map(|(status, name)| {
            let mut answer = json!({
                "description": about(*status),
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            });
            match status {
                401 => answer["headers"] = challenge.clone(),
                429 => answer["headers"] = limited.clone(),
                503 => answer["headers"] = retry_after.clone(),
                _ => {}
            }
            ((*name).to_owned(), answer)
        })
        .collect();
    answers.into()
}

/// The response headers, by name.
pub fn shared_headers() -> Value {
    json!({
        "Allow": {"description": "The methods that are allowed here.", "required": true,
            "schema": {"type": "string"}, "example": "GET,HEAD"},
        "ETag": {"description": "The version of the job, for `If-Match`.", "required": true,
            "schema": {"type": "string", "pattern": "^\"[0-9]+\"$"}, "example": "\"3\""},
        "Location": {"description": "The URL of the resource.", "required": true,
            "schema": {"type": "string", "format": "uri-reference"}},
        "RateLimit-Limit": {"description": "How many requests the user or token may send at once. Absent if there is no limit.",
            "schema": {"type": "integer", "minimum": 1}, "example": 100_000},
        "RateLimit-Remaining": {"description": "How many of them it may send now.",
            "schema": {"type": "integer", "minimum": 0}, "example": 99_999},
        "RateLimit-Reset": {"description": "Seconds until it may send all of them again.",
            "schema": {"type": "integer", "minimum": 0}, "example": 1},
        "Retry-After": {"description": "Seconds after which to retry.", "required": true,
            "schema": {"type": "integer", "minimum": 0}, "example": 1},
        "Idempotent-Replayed": {"description": "This response was already given to the same request with the same \
                `Idempotency-Key`: nothing was done again.",
            "schema": {"type": "string", "enum": ["true"]}},
        "WWW-Authenticate": {"description": "How to authenticate.", "required": true,
            "schema": {"type": "string", "enum": ["Bearer"]}},
    })
}
