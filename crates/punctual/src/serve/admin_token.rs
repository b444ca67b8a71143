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

/// Which admin token counts after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminToken {
    /// The one that counted before, or the first one.
    Usual,
    /// A new one in place of an earlier one, which no longer works.
    Replaced,
}

/// Makes sure that there is an admin token: a new one on the first start, when asked for, or when its file is
/// gone. The store keeps only a hash, so a token whose file is gone could not be used from here again.
///
/// The file is written last: a crash before that leaves no file, and the next start makes another token.
pub async fn ensure(
    store: &dyn Store,
    data_dir: &DataDir,
    now: Timestamp,
    replace: bool,
) -> anyhow::Result<AdminToken> {
    let kept = store.token(ADMIN).await.context("cannot read the admin token")?.is_some();
    match data_dir.token()?.filter(|_| !replace) {
        Some(_) if kept => return Ok(AdminToken::Usual),
        Some(token) => keep(store, data_dir, now, &token).await?,
        None => {
            let token = format!("pt_{ADMIN}_{}", new_secret()?);
            data_dir.remove_token()?;
            keep(store, data_dir, now, &token).await?;
            data_dir.write_token(&token)?;
        }
    }
    Ok(if kept { AdminToken::Replaced } else { AdminToken::Usual })
}

async fn keep(store: &dyn Store, data_dir: &DataDir, now: Timestamp, token: &str) -> anyhow::Result<()> {
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
