//! A router that records its paths, so that they can be compared with the OpenAPI document.

use crate::Api;
use crate::error::ApiError;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::MethodRouter;

pub struct Listed {
    router: Router<Api>,
    paths: Vec<String>,
}

impl Listed {
    pub fn new() -> Self {
        Listed { router: Router::new(), paths: vec![] }
    }

    pub fn route(mut self, path: &str, methods: MethodRouter<Api>) -> Self {
        self.paths.push(path.to_owned());
        Listed { router: self.router.route(path, methods), ..self }
    }

    pub fn nest(mut self, prefix: &str, inner: Listed) -> Self {
        self.paths.extend(inner.paths.iter().map(|path| format!("{prefix}{path}")));
        Listed { router: self.router.nest(prefix, inner.router), ..self }
    }

    /// Checks every request before its route gets it.
    pub fn guarded(self, check: fn(&Request) -> Result<(), ApiError>) -> Self {
        let checked = from_fn(move |request: Request, next: Next| async move {
            match check(&request) {
                Ok(()) => next.run(request).await,
                Err(error) => error.into_response(),
            }
        });
        Listed { router: self.router.layer(checked), ..self }
    }

    /// Adds the paths of another one unchanged.
    pub fn join(mut self, other: Listed) -> Self {
        self.paths.extend(other.paths);
        Listed { router: self.router.merge(other.router), ..self }
    }

    pub fn into_router(self) -> Router<Api> {
        self.router
    }

    #[cfg(test)]
    pub fn into_paths(self) -> Vec<String> {
        self.paths
    }
}
