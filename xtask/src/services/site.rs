//! Where a server has its files, and whom it runs as.

use super::Service;
use super::programs::Programs;
use anyhow::{Context, Result};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a server needs to be started in a folder of its own.
pub struct Site {
    pub folder: PathBuf,
    owner: Option<User>,
}

/// For temporary files. MariaDB takes those that it finds when it starts for its own of an earlier life and removes them,
/// so that two servers must not share a folder for them.
const TEMPORARY: &str = "tmp";

/// Whom the servers run as, if we are root: they refuse to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    id: u32,
    group: u32,
}

impl Site {
    /// Makes a folder in one that all services share.
    pub fn new(service: Service, shared: &Path, name: &str) -> Result<Self> {
        let owner = if rustix::process::geteuid().is_root() { Some(unprivileged(service)?) } else { None };
        if owner.is_some() {
            // It has to get to its folder, and owns nothing above.
            std::fs::set_permissions(shared, Permissions::from_mode(0o755))?;
        }
        Site { folder: shared.to_owned(), owner }.within(name)
    }

    /// A place of its own for one of several servers.
    pub fn within(&self, name: &str) -> Result<Self> {
        let site = Site { folder: self.create_folder(name)?, owner: self.owner };
        site.create_folder(TEMPORARY)?;
        Ok(site)
    }

    pub fn create_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        if let Some(User { id, group }) = self.owner {
            chown(&folder, Some(id), Some(group))?;
        }
        Ok(folder)
    }

    /// A command that is run in the folder, by its owner.
    pub fn command(&self, programs: &Programs, program: &Path) -> Command {
        let mut command = programs.command(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("TMPDIR", self.folder.join(TEMPORARY));
        if let Some(User { id, group }) = self.owner {
            command.uid(id).gid(group);
        }
        command
    }

    /// Writes a file that a server is to read.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        if let Some(User { id, group }) = self.owner {
            chown(&path, Some(id), Some(group))?;
        }
        Ok(path)
    }
}

/// The user that Debian has for the service, or else the one that owns nothing.
fn unprivileged(service: Service) -> Result<User> {
    let own = match service {
        Service::Postgres | Service::Replica => "postgres",
        Service::MariaDb | Service::MariaDbSecured | Service::MySql | Service::Galera => "mysql",
        Service::Redis | Service::RedisSecured => "redis",
        Service::Etcd | Service::EtcdCluster | Service::EtcdSecured => "etcd",
        Service::ZooKeeper | Service::ZooKeeperCluster => "zookeeper",
    };
    let users = std::fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let found = user_named(&users, own).or_else(|| user_named(&users, "nobody"));
    found.with_context(|| {
        format!("there is no user {own} and none called nobody; run this as another than root")
    })
}

fn user_named(users: &str, name: &str) -> Option<User> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.len() > 3 && fields[0] == name)?;
    Some(User { id: found[2].parse().ok()?, group: found[3].parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_hands_servers_to_users_that_may_do_nothing() {
        let users = "root:x:0:0:root:/root:/bin/sh\nmysql:x:102:105::/nonexistent:/bin/false\n";
        assert_eq!(user_named(users, "mysql"), Some(User { id: 102, group: 105 }));
        assert_eq!(user_named(users, "postgres"), None);
    }
}
