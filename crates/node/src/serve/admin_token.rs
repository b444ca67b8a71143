//! The admin token. It is written to the data directory, readable only by its owner; the store keeps its
//! hash.

use crate::store::OpenStore;
use anyhow::Context;
use punctual_api::{new_secret, secret_sha256};
use punctual_config::data_dir::DataDir;
use punctual_config::exit::CliError;
use punctual_config::exposure;
use punctual_core::access::Role;
use punctual_core::ports::{DirectoryChange, DirectoryOutcome, Store, Token};
use punctual_core::time::Timestamp;
use punctual_engine::{CURSOR_KEY, Engine, UseCase};
use serde_json::json;

/// The public part of the admin token, and its prefix.
const ADMIN: &str = "admin";
const PREFIX: &str = "pt_admin_";
/// The minimum number of characters of a handwritten token's secret: fewer could be guessed.
const SECRET_CHARS_MIN: usize = 32;
const SECRET_CHARS_MAX: usize = 200;

/// Which admin token is valid after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminToken {
    /// The same as before, or the first one.
    Usual,
    /// A new one in place of an earlier one, which no longer works.
    Replaced,
    /// One that another server of the same store has created. It is valid, but not known here.
    Elsewhere,
    /// None: it was revoked, and other tokens are in use.
    Revoked,
}

/// Makes sure that there is an admin token. Creates one on the first start, on request, or when its file is
/// missing: the store keeps only a hash, so a token without its file could not be used again. With a shared
/// store, another server may have the file: its token is kept unless a new one is requested. A token that was
/// revoked does not come back by itself.
///
/// The file is written last: a crash before that leaves no file, and the next start creates another token.
pub async fn ensure(
    open: &OpenStore,
    data_dir: &DataDir,
    engine: &Engine,
    replace: bool,
) -> anyhow::Result<AdminToken> {
    let (store, now) = (&*open.store, engine.now());
    let kept = match store.token(ADMIN).await {
        // It is replaced, even if it is malformed.
        Err(_) if replace => None,
        kept => kept.context("cannot read the admin token; `--new-admin-token` replaces it")?,
    };
    let is_kept = kept.is_some();
    if !is_kept && !replace && has_others(store).await? {
        return Ok(AdminToken::Revoked);
    }
    match data_dir.token()?.filter(|_| !replace) {
        Some(token) => {
            warn_if_exposed(data_dir);
            let secret_sha256 = secret_sha256(secret(&token, data_dir)?);
            match kept {
                Some(kept) if kept.secret_sha256 == secret_sha256 => {}
                Some(_) => tracing::warn!(
                    file = %data_dir.token_file().display(),
                    "the file does not contain the current admin token: restore it, or start with --new-admin-token"
                ),
                // Another server may have been faster.
                None if add(store, secret_sha256, now).await? => {}
                None => tracing::warn!(
                    file = %data_dir.token_file().display(),
                    "another server created an admin token at the same moment, and this file does not contain it: copy that one \
                     here, or start with --new-admin-token"
                ),
            }
            Ok(AdminToken::Usual)
        }
        None if is_kept && !replace && !open.is_embedded => Ok(AdminToken::Elsewhere),
        None if is_kept || replace => {
            let secret = new_secret().context("cannot read randomness")?;
            data_dir.remove_token()?;
            let reason = if replace { "--new-admin-token" } else { "the file of the token was missing" };
            let entry = engine.entry_at_start(UseCase::RotateToken, ADMIN, &json!({ "reason": reason }));
            let change = DirectoryChange::PutToken(admin(secret_sha256(&secret), now));
            store.change_directory(change, Some(entry)).await.context("cannot store the admin token")?;
            data_dir.write_token(&format!("{PREFIX}{secret}"))?;
            Ok(if is_kept { AdminToken::Replaced } else { AdminToken::Usual })
        }
        None => {
            let secret = new_secret().context("cannot read randomness")?;
            // Of several servers that start together on an empty store, one creates the token. The others
            // write no file: it would contain a token that is never valid.
            if !add(store, secret_sha256(&secret), now).await? {
                return Ok(AdminToken::Elsewhere);
            }
            data_dir.write_token(&format!("{PREFIX}{secret}"))?;
            Ok(AdminToken::Usual)
        }
    }
}

/// Whether the store has other tokens. Then it had an admin token, too: it takes one to create another.
async fn has_others(store: &dyn Store) -> anyhow::Result<bool> {
    let tokens = store.tokens(None, 3).await.context("cannot read the tokens")?.items;
    // The first process on a store may be a worker, which needs the key of the cluster.
    Ok(tokens.iter().any(|token| token.id != ADMIN && token.id != CURSOR_KEY))
}

/// The secret of a token that may have been written by hand.
fn secret<'a>(token: &'a str, data_dir: &DataDir) -> Result<&'a str, CliError> {
    let is_secret = |secret: &&str| {
        (SECRET_CHARS_MIN..=SECRET_CHARS_MAX).contains(&secret.len())
            && secret.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    token.strip_prefix(PREFIX).filter(is_secret).ok_or_else(|| {
        let file = data_dir.token_file();
        CliError::cannot_start(format!(
            "{} does not contain an admin token, which is {PREFIX} and {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} letters and \
             digits: delete the file, and the next start creates a new token",
            file.display()
        ))
    })
}

fn warn_if_exposed(data_dir: &DataDir) {
    if let Ok(Some(exposed)) = exposure(&data_dir.token_file()) {
        tracing::warn!("{exposed}");
    }
}

/// Stores the first token; returns whether this one is valid.
async fn add(store: &dyn Store, secret_sha256: [u8; 32], now: Timestamp) -> anyhow::Result<bool> {
    let change = DirectoryChange::AddToken(admin(secret_sha256, now));
    Ok(match store.change_directory(change, None).await.context("cannot store the admin token")? {
        DirectoryOutcome::Exists(kept) => kept.secret_sha256 == secret_sha256,
        _ => true,
    })
}

fn admin(secret_sha256: [u8; 32], created_at: Timestamp) -> Token {
    Token::new(ADMIN, secret_sha256, Role::Admin, created_at)
}
