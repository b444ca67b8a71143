//! The fresh machine of one user: a copy of the minimal Debian with a clone of the last commit in the user's
//! home.

use super::cell::NamespaceCell;
use super::host;
use super::options::FreshUser;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Mounts what is needed and switches to the user.
const ENTER: &str = include_str!("enter.sh");
/// The mount point of the toolchain, as seen from inside, and the folder for tools if the build folder is not
/// the user's.
const TOOLCHAIN: &str = "/opt/rust";
const TOOLS: &str = "/opt/tools";
/// The search path of a new user.
const SEARCH_PATH: &str = "/opt/rust/bin:/usr/local/bin:/usr/bin:/bin";
const ROOTS_SEARCH_PATH: &str = "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub struct FreshRoom {
    pub folder: PathBuf,
    user: FreshUser,
    /// As seen from inside.
    home: PathBuf,
    id: u32,
    group: u32,
}

impl FreshRoom {
    pub fn make(
        cell: &NamespaceCell,
        base: &Path,
        folder: &Path,
        user: FreshUser,
        repository: &Path,
    ) -> Result<Self> {
        let mut copy = NamespaceCell::command("cp");
        cell.succeed(copy.args(["--archive", "--reflink=auto", "--"]).arg(base).arg(folder))?;
        host::copy_settings(folder)?;
        cell.succeed(inside(folder).args(["update-ca-certificates"]))?;
        if user == FreshUser::Ordinary {
            cell.succeed(inside(folder).args([
                "useradd",
                "--create-home",
                "--shell",
                "/bin/bash",
                user.word(),
            ]))?;
        }
        let users = std::fs::read_to_string(folder.join("etc/passwd")).context("read the users")?;
        let (id, group, home) =
            account(&users, user.word()).with_context(|| format!("there is no user {}", user.word()))?;
        let room = FreshRoom { folder: folder.to_owned(), user, home, id, group };
        room.prepare(cell, repository)?;
        Ok(room)
    }

    fn prepare(&self, cell: &NamespaceCell, repository: &Path) -> Result<()> {
        for place in [TOOLCHAIN, TOOLS] {
            let folder = host::inside(&self.folder, Path::new(place));
            std::fs::create_dir_all(&folder)?;
            chown(&folder, Some(self.id), Some(self.group))?;
        }
        let home = host::inside(&self.folder, &self.home);
        host::copy_users_settings(&home)?;
        let clone = host::inside(&self.folder, &self.clone());
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--no-hardlinks", "--"]).arg(repository).arg(&clone);
        let status = git.status().context("start git")?;
        ensure!(status.success(), "git clone failed: {status}");
        self.give(cell, &home)
    }

    /// The clone, as seen from inside.
    fn clone(&self) -> PathBuf {
        self.home.join("punctual")
    }

    /// Gives the user ownership of a folder and its contents.
    fn give(&self, cell: &NamespaceCell, folder: &Path) -> Result<()> {
        let owner = format!("{}:{}", self.id, self.group);
        cell.succeed(
            NamespaceCell::command("chown").args(["--recursive", "--no-dereference", &owner]).arg(folder),
        )
    }

    /// Runs a command as the user, in the clone. Build output goes into `folder` if one is given; tools never
    /// do.
    pub fn run(
        &self,
        cell: &NamespaceCell,
        toolchain: &Path,
        target: Option<&Path>,
        words: &[String],
    ) -> Result<ExitStatus> {
        if let Some(target) = target {
            let mounted = host::inside(&self.folder, &self.clone()).join("target");
            std::fs::create_dir_all(target.join("tools"))?;
            std::fs::create_dir_all(&mounted)?;
            self.give(cell, target)?;
            self.give(cell, &mounted)?;
        }
        let mut command = NamespaceCell::command("bash");
        command.args(["-c", ENTER, "enter"]).arg(&self.folder).arg(toolchain);
        command.arg(target.unwrap_or(Path::new(""))).arg(self.user.word()).arg(self.clone());
        command.arg("env").arg(format!("PATH={}", self.search_path()));
        command.args(["bash", "-c", "cd \"$HOME/punctual\" && exec \"$@\"", "bash"]).args(words);
        // As people run it, without `CI`; but a missing tool is a failure, not a reason to skip.
        let variables = host::variables().into_iter().filter(|(_, value)| !self.lacks(Path::new(value)));
        command.env_clear().envs(variables).env(tools::REQUIRED, "1");
        command.env("HOME", &self.home).env("USER", self.user.word()).env("LOGNAME", self.user.word());
        command.env("SHELL", "/bin/bash").env("PATH", ROOTS_SEARCH_PATH);
        cell.run(&mut command)
    }

    /// Whether a variable names a path that does not exist here.
    fn lacks(&self, value: &Path) -> bool {
        value.is_absolute() && !host::inside(&self.folder, value).exists()
    }

    fn search_path(&self) -> &'static str {
        match self.user {
            FreshUser::Root => ROOTS_SEARCH_PATH,
            FreshUser::Ordinary => SEARCH_PATH,
        }
    }
}

/// A command of the root folder, run in it by root.
fn inside(folder: &Path) -> Command {
    let mut command = NamespaceCell::command("chroot");
    command.arg(folder).env_clear().env("PATH", ROOTS_SEARCH_PATH);
    command
}

/// The ids of a user and its group, and its home.
fn account(users: &str, name: &str) -> Option<(u32, u32, PathBuf)> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.len() > 5 && fields[0] == name)?;
    Some((found[2].parse().ok()?, found[3].parse().ok()?, found[5].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_a_user_is_found() {
        let users = "root:x:0:0:root:/root:/bin/bash\nordinary:x:1000:1001::/home/ordinary:/bin/bash\n";
        assert_eq!(account(users, "ordinary"), Some((1000, 1001, "/home/ordinary".into())));
        assert_eq!(account(users, "ann"), None);
    }
}
