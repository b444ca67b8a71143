//! The files of the data directory besides the database: how the command line finds the server and its token.

use crate::exit::CliError;
use crate::layers::Source;
use crate::output::quoted;
use crate::{ConfigFlag, DataPlace, Flags, Surroundings};
use anyhow::Context;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Every data directory in which a server has run contains it.
pub const DATABASE_FILE: &str = "punctual.db";

/// Which data directory is meant, and which configuration file may say so.
#[derive(Debug, Clone, clap::Args)]
pub struct DataDirArgs {
    #[command(flatten)]
    place: Flags<DataPlace>,
    #[command(flatten)]
    config: ConfigFlag,
}

impl DataDirArgs {
    pub fn surroundings(&self) -> Result<Surroundings, CliError> {
        Surroundings::find(&self.config)
    }

    /// Whether a flag, a variable or the file names it.
    pub fn is_named(&self, around: &Surroundings) -> bool {
        around.sources(&self.place).iter().any(|(.., source)| *source != Source::Default)
    }

    /// The data directory, according to flags, variables and the file.
    pub fn within(&self, around: &Surroundings) -> Result<DataDir, CliError> {
        let path = around.read(&self.place)?.data_dir;
        let found_anyway = match self.config.named() {
            Some(_) => None,
            None => around.file_only().read(&Flags::<DataPlace>::default()).ok(),
        };
        let option = match (found_anyway, self.config.named()) {
            (Some(place), _) if place.data_dir == path => String::new(),
            (_, Some(config)) if self.place.is_empty() => {
                format!(" --config {}", quoted(&config.to_string_lossy()))
            }
            _ => format!(" --data-dir {}", quoted(&path.to_string_lossy())),
        };
        Ok(DataDir { path, option })
    }
}

#[derive(Debug, Clone)]
pub struct DataDir {
    path: PathBuf,
    option: String,
}

impl DataDir {
    /// With a leading space: the option that a command in the same working directory needs to find this
    /// directory.
    pub fn option(&self) -> &str {
        &self.option
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn token_file(&self) -> PathBuf {
        self.path.join("admin.token")
    }

    fn address_file(&self) -> PathBuf {
        self.path.join("server.address")
    }

    /// Creates the directory, with access for its owner only, and checks whether it can be written. A full
    /// disk does not prevent the start: the store still has its data.
    pub fn prepare(&self) -> Result<(), CliError> {
        prepare(&self.path).map_err(|error| {
            CliError::cannot_start(format!(
                "the data directory {} cannot be used: {error}; choose another with --data-dir",
                self.path.display()
            ))
        })
    }

    /// Refuses to start with a new database where a server has run before and its database is missing. A
    /// token alone may exist before the first start.
    pub fn must_not_have_lost_database(&self) -> Result<(), CliError> {
        let [database, address] = [self.path.join(DATABASE_FILE), self.address_file()];
        let is_gone = |file: &Path| matches!(file.try_exists(), Ok(false));
        if !is_gone(&database) || is_gone(&address) {
            return Ok(());
        }
        let (dir, file) = (self.path.display(), address.display());
        Err(CliError::cannot_start(format!(
            "there is no {DATABASE_FILE} in {dir}, although a server has run there ({file}): restore {DATABASE_FILE} and \
             logs.db from a backup, or move all files out of the directory to start with an empty database"
        )))
    }

    /// The admin token, if there is one.
    pub fn token(&self) -> anyhow::Result<Option<String>> {
        Ok(read_line(&self.token_file())?.filter(|token| !token.is_empty()))
    }

    /// Removes the admin token, so that a start that fails before it has written another one leaves none
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

    /// The current or last address of this directory's server: a command must not send its token to another
    /// program on the default port.
    pub fn address(&self) -> anyhow::Result<Option<String>> {
        read_line(&self.address_file())
    }

    /// Publishes this server's address for commands, unless another live server in this directory has already
    /// done so. When that one has ended, this one takes its place.
    pub fn announce(&self, address: &str) -> anyhow::Result<Announced> {
        let lock =
            fs::OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join("server.lock"));
        match lock.map(|lock| (lock.try_lock(), lock)) {
            Ok((Err(TryLockError::WouldBlock), lock)) => {
                self.announce_after_other(lock, address)?;
                Ok(Announced::Later)
            }
            Ok((Ok(()), lock)) => {
                hold_until_the_end(lock);
                self.write_address(address).map(|()| Announced::Now)
            }
            // Where locks do not work, commands use the server that came last.
            Ok((Err(TryLockError::Error(_)), _)) | Err(_) => {
                self.write_address(address).map(|()| Announced::Now)
            }
        }
    }

    /// In a thread, because a lock can only be waited for by blocking.
    fn announce_after_other(&self, lock: File, address: &str) -> anyhow::Result<()> {
        let (data_dir, address) = (self.clone(), address.to_owned());
        let wait = move || {
            while let Err(error) = lock.lock() {
                if error.kind() != io::ErrorKind::Interrupted {
                    return;
                }
            }
            hold_until_the_end(lock);
            if let Err(error) = data_dir.write_address(&address) {
                tracing::warn!("{error:#}: commands find this server only with --server {address}");
            }
        };
        thread::Builder::new().name("address".to_owned()).spawn(wait).context("cannot wait for a lock")?;
        Ok(())
    }

    /// Writes the server's address for commands. If that fails, removes an earlier address: commands must not
    /// connect to whatever listens there now.
    fn write_address(&self, address: &str) -> anyhow::Result<()> {
        if self.address().is_ok_and(|known| known.as_deref() == Some(address)) {
            return Ok(());
        }
        let file = self.address_file();
        write_private(&file, address).inspect_err(|_| {
            let _ = fs::remove_file(&file);
        })
    }
}

/// When commands can find this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    Now,
    /// When the server that they use now has ended.
    Later,
}

/// The kernel releases it when the process ends, for whatever reason.
fn hold_until_the_end(lock: File) {
    std::mem::forget(lock);
}

/// Creates a directory, with access for its owner only, and checks whether it can be written.
pub fn prepare(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    match tempfile::tempfile_in(directory) {
        Err(error) if !is_full(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the disk is full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn read_line(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Atomically writes a small file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&draft);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{}", text.trim_end())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write()
        .inspect_err(|_| {
            let _ = fs::remove_file(&draft);
        })
        .with_context(|| format!("cannot write {}", path.display()))
}
