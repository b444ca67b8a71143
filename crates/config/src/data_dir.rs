//! The files of the data directory besides the database: how the command line finds the server and its token.

use crate::exit::{CliError, Exit};
use crate::layers::Source;
use crate::output::quoted;
use crate::settings::SettingsTable;
use crate::trust::Ownership;
use crate::{ConfigFlag, DataPlace, Flags, Surroundings};
use anyhow::Context;
use punctual_client::SettingsBody;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
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

/// The files that commands read. All are in the directory itself.
const TOKEN_FILE: &str = "admin.token";
const ADDRESS_FILE: &str = "server.address";
/// The most that is read of such a file: one line.
const LINE_BYTES_MAX: u64 = 4096;

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

    /// The settings of a process, for those who operate it: where its data is, and those of this table.
    pub fn report<T: SettingsTable>(&self, around: &Surroundings, flags: &Flags<T>) -> SettingsBody {
        around.report([around.sources(&self.place), around.sources(flags)].concat())
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
        Ok(DataDir {
            path,
            option,
            is_named: self.is_named(around),
            opened: Arc::default(),
            socket_id: Arc::default(),
        })
    }
}

#[derive(Debug, Clone)]
pub struct DataDir {
    path: PathBuf,
    option: String,
    /// It is not the default one.
    is_named: bool,
    /// The directory, once a file in it was read: a directory that takes its place later is not used.
    opened: Arc<OnceLock<File>>,
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
        self.path.join(TOKEN_FILE)
    }

    fn address_file(&self) -> PathBuf {
        self.path.join(ADDRESS_FILE)
    }

    /// Creates the directory, with access for its owner only, and checks whether it can be written and no other user
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
        Ok(self.read_line(TOKEN_FILE)?.filter(|token| !token.is_empty()))
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

    /// The directory, or `None` if there is none. It stays open, so that everything that a command reads and connects
    /// to is in the directory that it has checked.
    fn opened(&self) -> io::Result<Option<&File>> {
        if let Some(open) = self.opened.get() {
            return Ok(Some(open));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(self.path.as_path(), flags, Mode::empty()) {
            Ok(open) => Ok(Some(self.opened.get_or_init(|| File::from(open)))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The line in a file of the directory, or `None` if there is no such file. A link could lead to a file of
    /// another user, which the server of this directory must not get: only a file of the directory's owner is read.
    fn read_line(&self, name: &str) -> anyhow::Result<Option<String>> {
        let read = || -> io::Result<Option<String>> {
            let Some(directory) = self.opened()? else { return Ok(None) };
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match openat(directory, name, flags, Mode::empty()) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::LOOP) => {
                    return Err(io::Error::other("it is a symbolic link: replace it with a file"));
                }
                Err(error) => return Err(error.into()),
            };
            let (metadata, owner) = (file.metadata()?, directory.metadata()?.uid());
            if !metadata.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            if metadata.uid() != owner {
                let user = metadata.uid();
                return Err(io::Error::other(format!(
                    "it belongs to user {user}, but its directory to user {owner}: if you trust it, `chown {owner}` it"
                )));
            }
            let mut text = String::new();
            file.take(LINE_BYTES_MAX).read_to_string(&mut text)?;
            Ok(Some(text.trim().to_owned()))
        };
        read().with_context(|| format!("cannot read {}", self.path.join(name).display()))
    }

    /// A path to the socket of this directory's server. The directory is its owner's alone, which is checked, so
    /// whatever listens there may have the token, and no other program can take its place as it could with a port.
    /// The path leads to the directory that was checked, even if its name leads to another one later. It is valid
    /// as long as this value or a clone of it exists.
    pub fn socket(&self) -> anyhow::Result<PathBuf> {
        self.must_be_trusted()?;
        let opened = self.opened().with_context(|| format!("cannot open {}", self.path.display()))?;
        Ok(match opened {
            Some(open) => by_descriptor(open).join(SOCKET_FILE),
            None => self.socket_file(),
        })
    }

    /// The socket, for messages.
    pub fn socket_file(&self) -> PathBuf {
        self.path.join(SOCKET_FILE)
    }

    /// Refuses a directory in which another user could listen. One that does not exist has no socket either.
    pub fn must_be_trusted(&self) -> Result<(), CliError> {
        let Ok(Some(open)) = self.opened() else { return Ok(()) };
        let dir = self.path.display();
        let why = match open.metadata() {
            Ok(metadata) => Ownership::of(&metadata).wrong_for_command(self.is_named),
            Err(error) => Some(error.to_string()),
        };
        let Some(why) = why else { return Ok(()) };
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
        let folder = by_descriptor(&open);
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
        self.read_line(ADDRESS_FILE)
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

/// A path to an open directory, whatever its name leads to by now.
fn by_descriptor(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Refuses to change an embedded store in a directory that another user owns or can write to: links in it could lead
/// this command to other files. A directory that does not exist is fine.
pub fn must_be_own(directory: &Path) -> Result<(), CliError> {
    must_be_right(directory, Ownership::wrong_for_server)
}

/// The same for reading, which root's directories are also good for.
pub fn must_not_be_foreign(directory: &Path) -> Result<(), CliError> {
    must_be_right(directory, |ownership| ownership.wrong_for_command(false))
}

fn must_be_right(directory: &Path, wrong: impl Fn(&Ownership) -> Option<String>) -> Result<(), CliError> {
    let Ok(metadata) = fs::metadata(directory) else { return Ok(()) };
    let Some(why) = wrong(&Ownership::of(&metadata)) else { return Ok(()) };
    let dir = directory.display();
    Err(CliError::cannot_start(format!(
        "the data directory {dir} cannot be used: {why}: run this command as the user that runs the server, and make the \
         directory private with `chmod 700 {dir}`"
    )))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn data_dir(path: &Path) -> DataDir {
        DataDir {
            path: path.to_owned(),
            option: String::new(),
            is_named: true,
            opened: Arc::default(),
            socket_id: Arc::default(),
        }
    }

    #[test]
    fn a_token_is_read_from_a_file_of_the_directory_and_from_no_link() {
        let elsewhere = tempfile::tempdir().unwrap();
        let other = elsewhere.path().join("admin.token");
        fs::write(&other, "pt_admin_other\n").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join(TOKEN_FILE);
        let token = || data_dir(directory.path()).token();
        assert_eq!(token().unwrap(), None);
        fs::write(&token_file, "pt_admin_own\n").unwrap();
        assert_eq!(token().unwrap().as_deref(), Some("pt_admin_own"));

        fs::remove_file(&token_file).unwrap();
        symlink(&other, &token_file).unwrap();
        let refused = format!("{:#}", token().unwrap_err());
        assert!(refused.contains("admin.token: it is a symbolic link"), "{refused}");
        fs::remove_file(&token_file).unwrap();
        fs::create_dir(&token_file).unwrap();
        assert!(format!("{:#}", token().unwrap_err()).contains("it is not a regular file"));
        assert_eq!(data_dir(&directory.path().join("missing")).token().unwrap(), None);
    }

    #[test]
    fn a_directory_that_takes_the_place_of_another_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let [path, moved] = ["data", "moved"].map(|name| parent.path().join(name));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let checked = data_dir(&path);
        let socket = checked.socket().unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(moved.join(SOCKET_FILE), "first").unwrap();
        fs::write(path.join(SOCKET_FILE), "second").unwrap();
        fs::write(path.join(TOKEN_FILE), "pt_admin_second").unwrap();
        assert_eq!(fs::read_to_string(socket).unwrap(), "first");
        assert_eq!(checked.token().unwrap(), None);
        assert!(checked.must_be_trusted().is_ok());
        fs::set_permissions(&moved, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(checked.must_be_trusted().is_err(), "it is checked again");
    }

    #[test]
    fn the_files_of_a_store_are_those_of_its_user() {
        let directory = tempfile::tempdir().unwrap();
        for check in [must_be_own, must_not_be_foreign] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
            assert!(check(directory.path()).is_ok());
            assert!(check(&directory.path().join("missing")).is_ok());
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
            let refused = check(directory.path()).unwrap_err();
            assert_eq!(refused.exit, Exit::CannotStart);
            assert!(refused.message.contains("can write to it (mode 0777)"), "{refused}");
        }
    }
}
