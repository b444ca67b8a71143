//! What lies in the data directory beside the database: how the command line finds the server and its token.

use crate::exit::CliError;
use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What every data directory that was ever served holds.
const DATABASE_FILE: &str = "punctual.db";

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

    /// Refuses a directory without a database: commands that only look must not create one.
    pub fn must_hold_database(&self) -> Result<(), CliError> {
        if self.path.join(DATABASE_FILE).is_file() {
            return Ok(());
        }
        let dir = self.path.display();
        Err(CliError::not_found(format!(
            "there is no database in {dir}; name its data directory with --data-dir"
        )))
    }

    /// The admin token, if one is kept here.
    pub fn token(&self) -> anyhow::Result<Option<String>> {
        Ok(read_line(&self.token_file())?.filter(|token| !token.is_empty()))
    }

    /// Takes the admin token away, so that a start that breaks off before it has written another leaves none
    /// rather than a wrong one.
    pub fn remove_token(&self) -> anyhow::Result<()> {
        let file = self.token_file();
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", file.display()))
            }
            _ => Ok(()),
        }
    }

    pub fn write_token(&self, token: &str) -> anyhow::Result<()> {
        write_private(&self.token_file(), token)
    }

    /// Where the server of this directory listens, or listened last: a command must not show its token to
    /// whatever else has the default port.
    pub fn address(&self) -> anyhow::Result<Option<String>> {
        read_line(&self.address_file())
    }

    pub fn write_address(&self, address: &str) -> anyhow::Result<()> {
        write_private(&self.address_file(), address)
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
