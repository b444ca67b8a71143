//! Results of executions, however large they are.

use crate::client::{Client, ClientError};
use punctual_core::ids::ExecutionId;
use reqwest::Method;
use std::time::Duration;

/// How long the download of a result may take.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A result that is being downloaded.
pub struct ResultDownload {
    response: reqwest::Response,
    client: Client,
}

impl Client {
    /// The result of an execution as JSON text, also one that is stored as a blob.
    pub async fn result(&self, id: ExecutionId) -> Result<ResultDownload, ClientError> {
        let request =
            self.request(Method::GET, &format!("/executions/{id}/result")).timeout(DOWNLOAD_TIMEOUT);
        Ok(ResultDownload { response: self.answered(request).await?, client: self.clone() })
    }
}

impl ResultDownload {
    /// The next part; `None` at the end. A result that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let part = self.response.chunk().await.map_err(|source| self.client.unreachable(source))?;
        Ok(part.map(|bytes| bytes.to_vec()))
    }
}
