//! The files of a server, and the user it runs as.

use super::Service;
use super::programs::Programs;
use anyhow::{Context, Result};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder and user of a server.
pub struct ServerSite {
    pub folder: PathBuf,
    owner: Option<ServerUser>,
}

/// For temporary files. At start, MariaDB deletes temporary files that it finds as leftovers of its own, so
/// two servers must not share this folder.
const TEMPORARY: &str = "tmp";

/// The user of the servers, if this process is root: they refuse to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerUser {
    id: u32,
    group: u32,
}

impl ServerSite {
    /// Creates a folder inside the one that all services share.
    pub fn new(service: Service, shared: &Path, name: &str) -> Result<Self> {
        // These may run as root, and their programs are where only root may be able to go.
        let may_be_root = matches!(
            service,
            Service::Nats
                | Service::NatsSecured
                | Service::NatsCluster
                | Service::Oidc
                | Service::Receivers
                | Service::S3
        );
        let is_changed = rustix::process::geteuid().is_root() && !may_be_root;
        let owner = if is_changed { Some(unprivileged(service)?) } else { None };
        if owner.is_some() {
            // The user must be able to reach its folder, and owns none of those above.
            std::fs::set_permissions(shared, Permissions::from_mode(0o755))?;
        }
        ServerSite { folder: shared.to_owned(), owner }.within(name)
    }

    /// A separate site for one of several servers.
    pub fn within(&self, name: &str) -> Result<Self> {
        let site = ServerSite { folder: self.create_folder(name)?, owner: self.owner };
        site.create_folder(TEMPORARY)?;
        Ok(site)
    }

    pub fn create_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        if let Some(ServerUser { id, group }) = self.owner {
            chown(&folder, Some(id), Some(group))?;
        }
        Ok(folder)
    }

    /// A command that runs in the folder, as its owner.
    pub fn command(&self, programs: &Programs, program: &Path) -> Command {
        let mut command = programs.command(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("TMPDIR", self.folder.join(TEMPORARY));
        if let Some(ServerUser { id, group }) = self.owner {
            command.uid(id).gid(group);
        }
        command
    }

    /// Writes a file for a server.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        if let Some(ServerUser { id, group }) = self.owner {
            chown(&path, Some(id), Some(group))?;
        }
        Ok(path)
    }
}

/// Debian's user for the service, or else `nobody`.
fn unprivileged(service: Service) -> Result<ServerUser> {
    let own = match service {
        Service::Postgres | Service::Replica => "postgres",
        Service::MariaDb | Service::MariaDbSecured | Service::MySql | Service::Galera => "mysql",
        Service::Redis | Service::RedisSecured | Service::RedisSentinel | Service::RedisCluster => "redis",
        Service::Etcd | Service::EtcdCluster | Service::EtcdSecured => "etcd",
        Service::ZooKeeper | Service::ZooKeeperCluster => "zookeeper",
        Service::RabbitMq | Service::RabbitMqSecured => "rabbitmq",
        Service::Nats
        | Service::NatsSecured
        | Service::NatsCluster
        | Service::Oidc
        | Service::Receivers
        | Service::S3 => "nobody",
    };
    let users = std::fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let found = user_named(&users, own).or_else(|| user_named(&users, "nobody"));
    found.with_context(|| format!("neither user {own} nor user nobody exists; do not run this as root"))
}

fn user_named(users: &str, name: &str) -> Option<ServerUser> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.len() > 3 && fields[0] == name)?;
    Some(ServerUser { id: found[2].parse().ok()?, group: found[3].parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_runs_servers_as_unprivileged_users() {
        let users = "root:x:0:0:root:/root:/bin/sh\nmysql:x:102:105::/nonexistent:/bin/false\n";
        assert_eq!(user_named(users, "mysql"), Some(ServerUser { id: 102, group: 105 }));
        assert_eq!(user_named(users, "postgres"), None);
    }
}
