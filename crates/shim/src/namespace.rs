//! A PID namespace for one command. The kernel kills everything in it when its first process ends, and
//! nothing in it can signal a process outside, so the command can neither stop nor kill its shim.
//!
//! The shim stays outside. The first process in the namespace is `punctual __init`, because the kernel treats
//! signals to that process in a special way that programs do not expect. It starts the command, reaps,
//! reports to the shim how the command ended, and ends with the command's exit code when nothing is left or the
//! grace period is over. The kernel kills it when the shim dies. In a sandbox, it first enters a mount
//! namespace. Without root, all this happens in a user namespace.

use super::{THIS_PROGRAM, exec, handed, tree, wake_at};
use crate::sandbox::mounts::{self, Mounts};
use punctual_worker::process::protocol::How;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, geteuid, getgid, getuid, kill_process_group,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

pub const INIT_SUBCOMMAND: &str = "__init";

/// The right to mount. In a user namespace it is limited to what that namespace owns.
const MOUNTING: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Creates a PID namespace for the next process that this one starts. An unprivileged process may do so only in
/// a user namespace, in which only its user exists.
pub fn unshare() -> io::Result<()> {
    match unshare_namespaces(UnshareFlags::NEWPID) {
        Err(Errno::PERM) => {}
        outcome => return Ok(outcome?),
    }
    unshare_user()?;
    // The command has none either, so that processes of the namespace may use descriptors of this one.
    drop_capabilities()
}

/// The same for a process that also mounts. As an ordinary user, it inherits the right to do so, and this
/// process has to [give it up](drop_capabilities) afterwards.
pub fn unshare_for_mounts() -> io::Result<()> {
    match unshare_namespaces(UnshareFlags::NEWPID) {
        Err(Errno::PERM) if !geteuid().is_root() => {}
        outcome => return Ok(outcome?),
    }
    unshare_user()?;
    // No more than the next process gets, so that it may use descriptors of this one.
    set_capabilities(
        None,
        CapabilitySets { effective: MOUNTING, permitted: MOUNTING, inheritable: MOUNTING },
    )?;
    Ok(configure_capability_in_ambient_set(MOUNTING, true)?)
}

/// Gives up all rights, so that processes which this one starts inherit none.
pub fn drop_capabilities() -> io::Result<()> {
    let nothing = CapabilitySet::empty();
    let sets = CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
    Ok(set_capabilities(None, sets)?)
}

/// Commands of root stay root, but lose the rights that could reveal hidden files: to mount, to open files by their
/// inode, and to reach devices, kernel modules and other processes. This affects only programs that are executed
/// later.
fn drop_revealing_capabilities() -> io::Result<()> {
    for right in [
        CapabilitySet::SYS_ADMIN,
        CapabilitySet::DAC_READ_SEARCH,
        CapabilitySet::MKNOD,
        CapabilitySet::SYS_RAWIO,
        CapabilitySet::SYS_MODULE,
        CapabilitySet::SYS_PTRACE,
    ] {
        remove_capability_from_bounding_set(right)?;
    }
    Ok(())
}

/// Enters a user namespace in which user and group are the same as outside.
fn unshare_user() -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare_namespaces(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

#[expect(
    deprecated,
    reason = "its successor is unsafe because of file descriptors, which are not unshared here"
)]
pub fn unshare_namespaces(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// The pipe on which the first process of the namespace reports how the command ended.
pub struct StatusPipe {
    reader: PipeReader,
    /// Kept open, so that its path stays valid.
    writer: PipeWriter,
}

impl StatusPipe {
    pub fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(StatusPipe { reader, writer })
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.writer.as_raw_fd()).into()
    }

    /// Whether the command itself has ended.
    pub fn has_report(&self) -> bool {
        rustix::io::ioctl_fionread(&self.reader).is_ok_and(|bytes| bytes > 0)
    }

    /// How the command ended, once nothing of the namespace is left; `None` if it was killed with its
    /// namespace.
    pub fn read(self) -> Option<How> {
        let StatusPipe { mut reader, writer } = self;
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// The setup of the first process of a namespace.
#[derive(Debug, Serialize, Deserialize)]
pub struct InitSetup {
    shim: u32,
    status: PathBuf,
    kill_grace: Duration,
    /// For a mount namespace as well.
    mounts: Option<Mounts>,
}

impl InitSetup {
    pub fn new(status: &StatusPipe, kill_grace: Duration, mounts: Option<Mounts>) -> Self {
        InitSetup { shim: std::process::id(), status: status.path(), kill_grace, mounts }
    }
}

/// Runs as the first process of a namespace, and starts the command in the arguments.
pub fn run_init(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(setup) = handed::read::<InitSetup>(args.next()) else {
        eprintln!("error: {INIT_SUBCOMMAND} is for Punctual's own use");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve(&setup, args))) {
        // Remaining processes die with this one.
        Ok(code) => code,
        Err(error) => {
            let problem = format!("the namespaces of the command cannot be used: {error}");
            exec::report(How::CannotStart { problem, is_permanent: false });
            ExitCode::FAILURE
        }
    }
}

/// Returns the command's own exit code, or a failure if a signal has ended the command.
async fn serve(setup: &InitSetup, args: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let _ = rustix::thread::set_name(c"punctual-init");
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The shim may have died before.
    if tree::own_parent() != Some(setup.shim) {
        return Err(io::Error::other("the shim is gone"));
    }
    let mut children = signal(SignalKind::child())?;
    let mut report_pipe = fs::File::options().write(true).open(&setup.status)?;
    if let Some(mounts) = &setup.mounts {
        mounts::enter(mounts)?;
        match geteuid().is_root() {
            true => drop_revealing_capabilities()?,
            false => drop_capabilities()?,
        }
    }
    let main = Command::new(THIS_PROGRAM).args(args).process_group(0).spawn()?;
    let main = Pid::from_child(&main);
    let (mut ends_at, mut code) = (None, ExitCode::FAILURE);
    while let ReapResult::Some { main_ended } = reap(main) {
        if let Some(status) = main_ended {
            report(&mut report_pipe, status)?;
            code = exit_code(status);
            // To all processes of the namespace except this one.
            let _ = kill_process_group(Pid::INIT, Signal::TERM);
            ends_at = Some(Instant::now() + setup.kill_grace);
            continue;
        }
        tokio::select! {
            biased;
            _ = children.recv() => {}
            () = wake_at(ends_at) => return Ok(code),
        }
    }
    Ok(code)
}

fn exit_code(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn report(report_pipe: &mut fs::File, status: WaitStatus) -> io::Result<()> {
    report_pipe.write_all(&serde_json::to_vec(&super::how(status))?)
}

enum ReapResult {
    Some { main_ended: Option<WaitStatus> },
    Nothing,
}

/// Reaps ended processes, up to the command itself.
fn reap(main: Pid) -> ReapResult {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => return ReapResult::Some { main_ended: Some(status) },
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return ReapResult::Some { main_ended: None },
            Err(_) => return ReapResult::Nothing,
        }
    }
}
