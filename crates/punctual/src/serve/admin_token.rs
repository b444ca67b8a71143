//! The first token. It is written to the data directory, readable by its owner only; the store keeps its hash.

use crate::data_dir::DataDir;
use crate::exit::CliError;
use anyhow::Context;
use punctual_api::secret_sha256;
use punctual_core::ports::{Role, Store, Token};
use punctual_core::time::Timestamp;
use std::fmt::Write;

/// The public part of the admin token.
const ADMIN: &str = "admin";
const SECRET_BYTES: usize = 32;

/// Makes sure that there is an admin token: a new one on the first start, or when asked for.
///
/// The file is written before the store, so that a crash in between leaves a token that the next start still
/// accepts. A file that was taken away later stays away: whoever did that keeps the token elsewhere.
pub async fn ensure(
    store: &dyn Store,
    data_dir: &DataDir,
    now: Timestamp,
    replace: bool,
) -> anyhow::Result<()> {
    let kept = store.token(ADMIN).await.context("cannot read the admin token")?;
    if kept.is_some() && !replace {
        return Ok(());
    }
    let token = match data_dir.token()?.filter(|_| !replace) {
        Some(token) => token,
        None => {
            let token = format!("pt_{ADMIN}_{}", new_secret()?);
            data_dir.write_token(&token)?;
            token
        }
    };
    let secret = token.strip_prefix("pt_admin_").ok_or_else(|| {
        let file = data_dir.token_file();
        CliError::cannot_start(format!("{} does not hold an admin token: delete it", file.display()))
    })?;
    let token = Token {
        id: ADMIN.to_owned(),
        secret_sha256: secret_sha256(secret),
        role: Role::Admin,
        created_at: now,
    };
    store.put_token(token).await.context("cannot keep the admin token")
}

fn new_secret() -> anyhow::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).context("cannot read randomness")?;
    Ok(bytes.iter().fold(String::with_capacity(SECRET_BYTES * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
