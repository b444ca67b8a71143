//! The files of the data directory besides the database: how the command line finds the server and its token.

use crate::exit::{CliError, Exit};
use crate::layers::Source;
use crate::output::quoted;
use crate::trust::Ownership;
use crate::{ConfigFlag, DataPlace, Flags, Surroundings};
use anyhow::Context;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Every data directory in which a server has run contains it.
pub const DATABASE_FILE: &str = "punctual.db";

/// The socket through which commands on this machine reach the server of the directory.
const SOCKET_FILE: &str = "punctual.sock";
/// The socket while it is being created.
const SOCKET_DRAFT: &str = "punctual.sock.new";
/// Bytes of a path that Linux accepts for a socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

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
        Ok(DataDir { path, option, is_named: self.is_named(around), socket_id: Arc::default() })
    }
}

#[derive(Debug, Clone)]
pub struct DataDir {
    path: PathBuf,
    option: String,
    /// It is not the default one.
    is_named: bool,
    /// The device and inode of the socket that this process has opened.
    socket_id: Arc<OnceLock<(u64, u64)>>,
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

    /// Creates the directory, with access for its owner only, and checks whether it can be written and nobody else
    /// can. A full disk does not prevent the start: the store still has its data.
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

    /// Whether a server has ever announced itself here.
    pub fn has_served(&self) -> bool {
        [self.address_file(), self.socket_file()].iter().any(|file| file.exists())
    }

    /// A path to the socket of this directory's server. The directory is its owner's alone, which is checked, so
    /// whatever listens there may have the token, and no other program can take its place as it could with a port.
    pub fn socket(&self) -> anyhow::Result<PathBuf> {
        self.must_be_trusted()?;
        let folder = self.folder_of_sockets()?;
        Ok(folder.join(SOCKET_FILE))
    }

    /// The socket, for messages.
    pub fn socket_file(&self) -> PathBuf {
        self.path.join(SOCKET_FILE)
    }

    /// Refuses a directory in which another user could listen. One that does not exist has no socket either.
    fn must_be_trusted(&self) -> Result<(), CliError> {
        let Ok(metadata) = fs::metadata(&self.path) else { return Ok(()) };
        let Some(why) = Ownership::of(&metadata).wrong_for_command(self.is_named) else { return Ok(()) };
        let dir = self.path.display();
        let message = format!(
            "the server of the data directory {dir} cannot be trusted: {why}; make the directory private with `chmod 700 \
             {dir}`, and run this command as its owner, or as root with --data-dir {dir}; or choose another directory"
        );
        Err(CliError { exit: Exit::Misunderstood, message })
    }

    /// The directory, by a path that is short enough for its sockets. A long one is replaced by the descriptor
    /// of the directory, which stays open until the process ends.
    fn folder_of_sockets(&self) -> anyhow::Result<PathBuf> {
        if self.path.join(SOCKET_DRAFT).as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX {
            return Ok(self.path.clone());
        }
        let open = File::open(&self.path).with_context(|| format!("cannot open {}", self.path.display()))?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        hold_until_the_end(open);
        Ok(folder)
    }

    /// Listens on the socket, and replaces that of an earlier server.
    fn listen(&self) -> anyhow::Result<UnixListener> {
        let folder = self.folder_of_sockets()?;
        let [draft, socket] = [SOCKET_DRAFT, SOCKET_FILE].map(|name| folder.join(name));
        let listen = || -> io::Result<UnixListener> {
            let _ = fs::remove_file(&draft);
            let listener = UnixListener::bind(&draft)?;
            fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))?;
            let _ = self.socket_id.set(identity(&draft)?);
            fs::rename(&draft, &socket)?;
            Ok(listener)
        };
        listen().with_context(|| format!("cannot listen on {}", self.socket_file().display()))
    }

    /// Removes the socket at the end of this server, unless it is another server's.
    pub fn remove_socket(&self) {
        let file = self.socket_file();
        if let Some(own) = self.socket_id.get()
            && identity(&file).is_ok_and(|found| found == *own)
        {
            // One that stays is replaced by the next server.
            let _ = fs::remove_file(file);
        }
    }

    /// The current or last address of this directory's server, for messages: another program may use it now.
    pub fn address(&self) -> anyhow::Result<Option<String>> {
        read_line(&self.address_file())
    }

    /// Opens the socket for commands, passes it to `serve`, and writes this server's address, unless another live
    /// server in this directory has already done so. When that one has ended, this one takes its place.
    pub fn announce(
        &self,
        address: &str,
        serve: impl FnOnce(UnixListener) + Send + 'static,
    ) -> anyhow::Result<Announced> {
        let lock =
            fs::OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join("server.lock"));
        match lock.map(|lock| (lock.try_lock(), lock)) {
            Ok((Err(TryLockError::WouldBlock), lock)) => {
                self.announce_after_other(lock, address, serve)?;
                Ok(Announced::Later)
            }
            Ok((Ok(()), lock)) => {
                hold_until_the_end(lock);
                self.take_over(address, serve).map(|()| Announced::Now)
            }
            // Where locks do not work, commands use the server that came last.
            Ok((Err(TryLockError::Error(_)), _)) | Err(_) => {
                self.take_over(address, serve).map(|()| Announced::Now)
            }
        }
    }

    /// Writes the address also if the socket cannot be opened, for messages.
    fn take_over(&self, address: &str, serve: impl FnOnce(UnixListener)) -> anyhow::Result<()> {
        let listening = self.listen().map(serve);
        let written = self.write_address(address);
        listening.and(written)
    }

    /// In a thread, because a lock can only be waited for by blocking.
    fn announce_after_other(
        &self,
        lock: File,
        address: &str,
        serve: impl FnOnce(UnixListener) + Send + 'static,
    ) -> anyhow::Result<()> {
        let (data_dir, address) = (self.clone(), address.to_owned());
        let wait = move || {
            while let Err(error) = lock.lock() {
                if error.kind() != io::ErrorKind::Interrupted {
                    return;
                }
            }
            hold_until_the_end(lock);
            if let Err(error) = data_dir.take_over(&address, serve) {
                tracing::warn!(
                    "{error:#}: commands find this server only with --server {address} and a token"
                );
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

/// The device and inode of a file.
fn identity(file: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(file).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Creates a directory, with access for its owner only, and checks that this user can write it and others cannot:
/// a user who can write the files of a server decides what it does.
pub fn prepare(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let ownership = Ownership::of(&fs::metadata(directory)?);
    if let Some(why) = ownership.wrong_for_server() {
        let shown = directory.display();
        return Err(io::Error::other(format!(
            "{why}: make it your own with `chown {} {shown}` and `chmod 700 {shown}`, if you trust what it contains",
            rustix::process::geteuid().as_raw()
        )));
    }
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

/// Atomically creates a small file that only its owner can read; never replaces one. It is on the disk when this
/// returns.
pub fn write_new_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let draft = path.with_extension("first");
    write_private(&draft, text)?;
    let linked = fs::hard_link(&draft, path);
    let _ = fs::remove_file(&draft);
    let synced = linked.and_then(|()| match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    });
    synced.with_context(|| format!("cannot create {}", path.display()))
}
