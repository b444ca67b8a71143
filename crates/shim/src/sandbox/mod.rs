//! The user that commands run as, and what they cannot reach: the operator's choice, and what this machine supports.
//!
//! Three layers, each of which works without the others. The *account* is another user of the machine. *Namespaces*
//! hide the worker's files, other processes and the directories of other commands; they need root, or a kernel that
//! lets everyone create user namespaces. *Landlock* keeps a command from inspecting and signalling processes
//! outside, also without root.

mod account;
mod hidden;
pub mod landlock;
pub mod mounts;
pub mod scratch;

pub use account::CommandUser;
pub use scratch::ScratchPlace;

use crate::containment::{InForce, trial};
use hidden::HiddenFile;
use punctual_worker::process::protocol::{Account, Landlock, Sandbox};
use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT_GROUP: u32 = 0;

/// The operator's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum IsolationMode {
    /// Every layer that this machine supports.
    Auto,
    /// Every layer, or no commands at all.
    Strict,
    None,
}

/// All settings of the operator.
#[derive(Debug, Clone)]
pub struct SandboxChoice {
    pub mode: IsolationMode,
    pub accounts: Accounts,
    pub scratch: ScratchPlace,
    /// Files and directories of the worker.
    pub hidden: Vec<PathBuf>,
}

/// The users that commands run as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// For queues without their own user; the worker's user if absent.
    pub usual: Option<Account>,
    pub by_queue: BTreeMap<String, Account>,
}

impl Accounts {
    /// Resolves the users on this machine. `usual` and each queue come with the name of their setting.
    pub fn resolve(usual: Option<&CommandUser>, by_queue: &[(String, CommandUser)]) -> Result<Self, String> {
        let usual = usual.map(|user| resolved("worker.run_as", user)).transpose()?.flatten();
        let of_queue = |(queue, user): &(String, CommandUser)| {
            let account = resolved("worker.run_as_by_queue", user)?;
            Ok(account.map(|account| (queue.clone(), account)))
        };
        let by_queue = by_queue.iter().map(of_queue).collect::<Result<Vec<_>, String>>()?;
        Ok(Accounts { usual, by_queue: by_queue.into_iter().flatten().collect() })
    }

    /// Users with the group of root, which can read and write many files of the machine.
    fn with_roots_group(&self) -> impl Iterator<Item = &Account> {
        self.all().into_iter().flatten().filter(|account| account.gid == ROOT_GROUP)
    }

    /// Each of them once; `None` is the worker's user.
    fn all(&self) -> Vec<Option<&Account>> {
        let mut all = vec![self.usual.as_ref()];
        for account in self.by_queue.values() {
            if !all.contains(&Some(account)) {
                all.push(Some(account));
            }
        }
        all
    }
}

/// The account of a user; `None` if the worker runs as this user.
fn resolved(setting: &str, user: &CommandUser) -> Result<Option<Account>, String> {
    let account = user.account().map_err(|problem| format!("{setting} is {user}: {problem}"))?;
    if account.uid == geteuid().as_raw() && account.gid == getegid().as_raw() {
        return Ok(None);
    }
    if !geteuid().is_root() {
        let own = geteuid().as_raw();
        return Err(format!(
            "{setting} is {user}, but only root can run commands as another user, and this process runs as user \
             {own}: start it as root, or remove the setting"
        ));
    }
    Ok(Some(account))
}

/// The layers in force.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    choice: SandboxChoice,
    hidden: Arc<Vec<HiddenFile>>,
    /// The directory of all commands. It is hidden from each command, apart from the command's own part of it.
    base: Arc<HiddenFile>,
    /// Why commands have no namespaces.
    namespaces: Result<(), String>,
    /// Why cgroups and settings of the kernel are not read-only in them.
    kernel: Result<(), String>,
    /// Why Landlock does not restrict commands.
    landlock: Result<(), String>,
    /// Paths that Landlock denies where there are no namespaces.
    denied: Vec<PathBuf>,
    /// Paths that commands can read although they should be hidden.
    exposed: Vec<PathBuf>,
}

impl Sandboxes {
    /// Only a directory for each command, for trials.
    pub fn plain() -> Self {
        let choice = SandboxChoice {
            mode: IsolationMode::None,
            accounts: Accounts::default(),
            scratch: ScratchPlace::new(None),
            hidden: vec![],
        };
        Sandboxes::none(choice, "a trial")
    }

    fn none(choice: SandboxChoice, because: &str) -> Self {
        let no = || Err(because.to_owned());
        Sandboxes {
            hidden: Arc::new(choice.hidden.iter().map(|path| HiddenFile::new(path)).collect()),
            base: Arc::new(HiddenFile::new(&choice.scratch.base)),
            choice,
            namespaces: no(),
            kernel: no(),
            landlock: no(),
            denied: vec![],
            exposed: vec![],
        }
    }

    /// The sandboxes that the choice selects on this machine, or why it is not possible. Runs a trial command.
    pub fn choose(choice: SandboxChoice) -> Result<Self, String> {
        scratch::prepare(&choice.scratch.base).map_err(|error| {
            format!(
                "{} cannot hold the files of commands: {error}; choose another directory with worker.scratch_dir",
                choice.scratch.base.display()
            )
        })?;
        let mut in_force = Sandboxes::none(choice, "worker.isolation is none");
        if in_force.choice.mode != IsolationMode::None {
            in_force.landlock = landlock::supported();
            in_force.kernel = namespaces_here(&in_force, Ok(()));
            in_force.namespaces = match in_force.kernel {
                Ok(()) => Ok(()),
                Err(_) => namespaces_here(&in_force, in_force.kernel.clone()),
            };
        }
        if let (IsolationMode::Strict, Some(problem)) = (in_force.choice.mode, in_force.missing().first()) {
            return Err(format!("worker.isolation is strict: {problem}"));
        }
        if !in_force.has_namespaces() {
            in_force.deny();
            trial::of(&InForce::trial(), &in_force)
                .map_err(|problem| format!("commands cannot run in their sandbox: {problem}"))?;
        }
        Ok(in_force)
    }

    /// The layers that are not in force, each with the reason.
    pub fn missing(&self) -> Vec<String> {
        let namespaces =
            self.namespaces.as_ref().err().map(|why| format!("no namespaces for commands: {why}"));
        let kernel = self.kernel.as_ref().err().filter(|_| self.has_namespaces());
        let kernel = kernel.map(|why| {
            format!("commands that run as root can change cgroups and settings of the kernel: {why}")
        });
        let landlock = self.landlock.as_ref().err().map(|why| format!("no Landlock for commands: {why}"));
        namespaces.into_iter().chain(kernel).chain(landlock).collect()
    }

    /// The files and directories of the worker that commands can read nevertheless.
    pub fn exposed(&self) -> &[PathBuf] {
        &self.exposed
    }

    /// The files and directories that commands cannot read, but whose permissions they can change: Landlock does
    /// not cover that, and the commands have the worker's user.
    pub fn changeable(&self) -> &[PathBuf] {
        if self.choice.accounts.all().contains(&None) { &self.denied } else { &[] }
    }

    pub fn has_namespaces(&self) -> bool {
        self.namespaces.is_ok()
    }

    /// Whether cgroups and settings of the kernel are read-only in the namespaces.
    pub fn protects_kernel(&self) -> bool {
        self.has_namespaces() && self.kernel.is_ok()
    }

    pub fn has_landlock(&self) -> bool {
        self.landlock.is_ok()
    }

    /// The directory of all commands.
    pub fn base(&self) -> &Path {
        &self.choice.scratch.base
    }

    /// The sandbox of a command in this queue.
    pub fn next(&self, name: &str, queue: &str) -> Sandbox {
        let SandboxChoice { accounts, scratch, .. } = &self.choice;
        let hidden = self.hidden.iter().flat_map(HiddenFile::places).chain(self.base.elsewhere());
        Sandbox {
            account: accounts.by_queue.get(queue).or(accounts.usual.as_ref()).cloned(),
            scratch: scratch.base.join(name),
            namespaces: self.namespaces.is_ok(),
            protects_kernel: self.protects_kernel(),
            hidden: hidden.collect(),
            landlock: match self.landlock {
                Ok(()) => Landlock::Denies(self.denied.clone()),
                Err(_) => Landlock::Off,
            },
        }
    }

    /// Without namespaces, Landlock denies every path that it can deny without restricting commands otherwise. That
    /// includes files that another process creates later, such as the data directory of a server that starts after
    /// this worker.
    fn deny(&mut self) {
        let scratch = self.choice.scratch.dedicated.as_ref().and_then(|dir| dir.canonicalize().ok());
        let hidden = self.choice.hidden.iter().filter_map(|path| resolved_path(path));
        for path in hidden.chain(scratch.clone()) {
            let accounts = self.choice.accounts.all();
            if self.has_landlock() && accounts.iter().all(|account| can_be_denied(&path, *account)) {
                self.denied.push(path);
            } else if Some(&path) != scratch.as_ref()
                && path.exists()
                && accounts.iter().any(|account| can_read(&path, *account))
            {
                self.exposed.push(path);
            }
        }
    }

    /// Logs it.
    pub fn announce(&self) {
        for account in self.choice.accounts.with_roots_group() {
            tracing::warn!(user = %account, "commands have the group of root: name another one, such as 1001:1001");
        }
        if self.choice.mode == IsolationMode::None {
            tracing::warn!(users = %self, "commands are not isolated: worker.isolation is none");
            return;
        }
        tracing::info!(isolation = %self, "commands are isolated");
        for problem in self.missing() {
            tracing::warn!("{problem}; see worker.isolation");
        }
        for path in &self.exposed {
            tracing::warn!(path = %path.display(), "commands can read this; `punctual doctor` says what to do");
        }
        for path in self.changeable() {
            tracing::warn!(
                path = %path.display(),
                "commands cannot read this, but they can change its permissions; `punctual doctor` says what to do"
            );
        }
    }
}

impl fmt::Display for Sandboxes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let own = format!("the user of the worker ({})", geteuid().as_raw());
        let user = |account: Option<&Account>| account.map_or_else(|| own.clone(), ToString::to_string);
        let users: BTreeSet<String> = self.choice.accounts.all().into_iter().map(user).collect();
        parts.push(format!("as {}", users.into_iter().collect::<Vec<_>>().join(", ")));
        if self.has_namespaces() {
            parts.push("own PID and mount namespaces".to_owned());
        }
        if self.has_landlock() {
            parts.push("Landlock".to_owned());
        }
        parts.push(format!("private directories below {}", self.choice.scratch.base.display()));
        out.write_str(&parts.join(", "))
    }
}

/// Whether commands can have their own namespaces, in which the kernel is protected or not; if not, why.
fn namespaces_here(in_force: &Sandboxes, kernel: Result<(), String>) -> Result<(), String> {
    let with = Sandboxes { namespaces: Ok(()), kernel, ..in_force.clone() };
    trial::of(&InForce::trial(), &with)
}

/// The path without links. The last part may not exist yet.
fn resolved_path(path: &Path) -> Option<PathBuf> {
    let in_parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_parent)
}

/// Whether Landlock can deny a path without a loss for commands of this user: they could not create files in
/// the directories above it anyway, and all of these can be listed.
fn can_be_denied(path: &Path, account: Option<&Account>) -> bool {
    path.ancestors().skip(1).all(|dir| match account {
        Some(account) => !has_right(dir, account, 0o2),
        None => access(dir, Access::WRITE_OK).is_err() && access(dir, Access::READ_OK).is_ok(),
    })
}

fn can_read(path: &Path, account: Option<&Account>) -> bool {
    match account {
        Some(account) => has_right(path, account, 0o4) || (path.is_dir() && has_right(path, account, 0o1)),
        None => true,
    }
}

/// Whether an account has a right to a file or directory, according to its mode.
fn has_right(path: &Path, account: &Account, right: u32) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let shift = match metadata {
        _ if metadata.uid() == account.uid => 6,
        _ if metadata.gid() == account.gid => 3,
        _ => 0,
    };
    (metadata.mode() >> shift) & right != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_with_the_group_of_root_are_known() {
        let [jobs, roots] = [1001, ROOT_GROUP].map(|gid| Account { uid: 1001, gid, name: None, home: None });
        let by_queue = BTreeMap::from([("mail".to_owned(), roots.clone())]);
        let accounts = Accounts { usual: Some(jobs), by_queue };
        assert_eq!(accounts.with_roots_group().collect::<Vec<_>>(), [&roots]);
    }

    #[test]
    fn namespaces_in_which_the_kernel_can_be_changed_are_reported() {
        let (ok, no) = (|| Ok(()), || Err("not permitted".to_owned()));
        let with =
            |namespaces, kernel| Sandboxes { namespaces, kernel, landlock: Ok(()), ..Sandboxes::plain() };
        assert!(with(ok(), ok()).missing().is_empty() && with(ok(), ok()).next("one", "").protects_kernel);
        let weaker = with(ok(), no());
        assert!(weaker.missing().concat().ends_with("settings of the kernel: not permitted"));
        assert!(weaker.next("one", "").namespaces && !weaker.next("one", "").protects_kernel);
        assert_eq!(with(no(), no()).missing(), ["no namespaces for commands: not permitted"]);
    }

    #[test]
    fn files_created_later_are_denied_where_commands_cannot_create_files() {
        let writable = tempfile::tempdir().unwrap();
        let mut sandboxes = Sandboxes { landlock: Ok(()), ..Sandboxes::plain() };
        sandboxes.choice.accounts.usual = Some(Account { uid: 65534, gid: 65534, name: None, home: None });
        let later = Path::new("/").canonicalize().unwrap().join("no-punctual-here");
        let elsewhere = writable.path().join("no-punctual-here");
        sandboxes.choice.hidden = vec![later.clone(), elsewhere, PathBuf::from("/no-such-dir/data")];
        sandboxes.deny();
        let denied: Vec<&Path> = sandboxes
            .denied
            .iter()
            .map(PathBuf::as_path)
            .filter(|path| !path.starts_with(writable.path()))
            .collect();
        assert_eq!(denied, [later]);
        assert_eq!(sandboxes.exposed, [""; 0].map(PathBuf::from), "a missing file cannot be read");
    }
}
