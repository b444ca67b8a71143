//! What lies in the data directory beside the database: how the command line finds the server and its token.

use crate::exit::{CliError, Exit};
use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, clap::Args)]
pub struct DataDir {
    /// Where the embedded database and the admin token are kept
    #[arg(long = "data-dir", env = "PUNCTUAL_DATA_DIR", default_value = DataDir::DEFAULT, value_name = "DIR")]
    path: PathBuf,
}

impl DataDir {
    pub const DEFAULT: &'static str = "./punctual-data";

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_default(&self) -> bool {
        self.path == Path::new(DataDir::DEFAULT)
    }

    pub fn token_file(&self) -> PathBuf {
        self.path.join("admin.token")
    }

    fn address_file(&self) -> PathBuf {
        self.path.join("server.address")
    }

    /// Creates the directory, closed to others, and finds out whether it can be written.
    pub fn prepare(&self) -> Result<(), CliError> {
        let unusable = |error: io::Error| {
            CliError::cannot_start(format!(
                "the data directory {} cannot be used: {error}; choose another with --data-dir",
                self.path.display()
            ))
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(unusable)?;
        tempfile::tempfile_in(&self.path).map(drop).map_err(unusable)
    }

    /// Refuses a directory that is not there: commands that only look must not create one.
    pub fn must_exist(&self) -> Result<(), CliError> {
        if self.path.is_dir() {
            return Ok(());
        }
        let message = format!("there is no data directory {}; name it with --data-dir", self.path.display());
        Err(CliError { exit: Exit::NotFound, message })
    }

    /// The admin token, if one is kept here.
    pub fn token(&self) -> anyhow::Result<Option<String>> {
        read_line(&self.token_file())
    }

    pub fn write_token(&self, token: &str) -> anyhow::Result<()> {
        write_private(&self.token_file(), token)
    }

    /// Where the server of this directory listens, if one runs or was killed.
    pub fn address(&self) -> anyhow::Result<Option<String>> {
        read_line(&self.address_file())
    }

    pub fn write_address(&self, address: &str) -> anyhow::Result<()> {
        write_private(&self.address_file(), address)
    }

    pub fn remove_address(&self) {
        if let Err(error) = fs::remove_file(self.address_file()) {
            tracing::debug!(%error, "the address file is gone already");
        }
    }
}

fn read_line(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes a small file that only its owner can read, whole or not at all.
fn write_private(path: &Path, line: &str) -> anyhow::Result<()> {
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&draft);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{line}")?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
