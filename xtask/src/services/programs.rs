//! Locates the programs of a service: installed on this machine, or else unpacked next to the build.

use super::Service;
use super::brokers;
use super::coordination;
use super::galera;
use super::oidc;
use super::packages::{self, Packages, Suite};
use super::receivers;
use super::s3;
use crate::tools;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs of one service.
#[derive(Clone)]
pub struct Programs {
    /// The folder of the server; its other files are found from there.
    pub folder: PathBuf,
    /// The equivalents of `/usr`: the machine's own, and the unpacked one, if there is one.
    pub usr: Vec<PathBuf>,
    launch: ProgramLaunch,
}

#[derive(Clone)]
enum ProgramLaunch {
    Installed,
    /// Unpacked, from the same Debian release as this machine: only missing libraries are added.
    WithLibraries(OsString),
    /// Unpacked, from a later release: with its loader and all its libraries.
    ThroughLoader {
        loader: PathBuf,
        libraries: OsString,
    },
}

impl Programs {
    /// Programs that need nothing else, with libraries that the machine may lack.
    pub fn alone(folder: PathBuf, libraries: Option<OsString>) -> Self {
        let launch = libraries.map_or(ProgramLaunch::Installed, ProgramLaunch::WithLibraries);
        Programs { folder, usr: vec![], launch }
    }

    /// Programs that are found by their paths below several equivalents of `/usr`.
    pub fn in_trees(usr: Vec<PathBuf>, libraries: Option<OsString>) -> Self {
        Programs { usr, ..Programs::alone(PathBuf::new(), libraries) }
    }

    /// The library path of programs that are not installed.
    pub fn libraries(&self) -> Option<OsString> {
        match &self.launch {
            ProgramLaunch::Installed => None,
            ProgramLaunch::WithLibraries(libraries) | ProgramLaunch::ThroughLoader { libraries, .. } => {
                Some(libraries.clone())
            }
        }
    }

    /// A file with this path below `usr`.
    pub fn file(&self, below_usr: &str) -> Option<PathBuf> {
        self.usr.iter().map(|usr| usr.join(below_usr)).find(|file| file.exists())
    }

    pub fn command(&self, program: &Path) -> Command {
        match &self.launch {
            ProgramLaunch::Installed => Command::new(program),
            ProgramLaunch::WithLibraries(libraries) => {
                let mut command = Command::new(program);
                command.env("LD_LIBRARY_PATH", libraries);
                command
            }
            ProgramLaunch::ThroughLoader { loader, libraries } => {
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(libraries).arg(program);
                command
            }
        }
    }
}

/// The program to look for, and the packages to unpack if it is missing.
struct Wanted {
    name: &'static str,
    /// The server.
    program: &'static str,
    /// A part of the server's output for `--version`.
    version: &'static str,
    /// Other required files, below `usr`.
    files: &'static [&'static str],
    packages: Packages,
    advice: &'static str,
}

/// `None` for a service whose programs are found in another way.
fn wanted(service: Service) -> Option<Wanted> {
    let wanted = match service {
        Service::Oidc
        | Service::Receivers
        | Service::S3
        | Service::Nats
        | Service::NatsSecured
        | Service::NatsCluster
        | Service::RabbitMq
        | Service::RabbitMqSecured => return None,
        Service::Postgres | Service::Replica => Wanted {
            name: "PostgreSQL",
            program: "postgres",
            version: "(PostgreSQL)",
            files: &[],
            packages: Packages { names: &["postgresql"], suite: Suite::OfThisMachine },
            advice: "install PostgreSQL 15 or newer, so that `postgres`, `initdb` and `pg_basebackup` are found",
        },
        Service::MariaDb | Service::MariaDbSecured => Wanted {
            name: "MariaDB",
            program: "mariadbd",
            version: "MariaDB",
            files: &[],
            packages: Packages {
                names: &["mariadb-server-core", "mariadb-client-core"],
                suite: Suite::OfThisMachine,
            },
            advice: "install MariaDB 10.11 or newer, so that `mariadbd` and `mariadb-install-db` are found",
        },
        Service::MySql => Wanted {
            name: "MySQL",
            program: "mysqld",
            // MariaDB has a program of this name as well, with another version number.
            version: "Ver 9.",
            files: &[],
            packages: Packages { names: &["mysql-server-core"], suite: Suite::Unstable },
            advice: "install MySQL 9, so that `mysqld` is found",
        },
        Service::Galera => Wanted {
            name: "Galera",
            program: "mariadbd",
            version: "MariaDB",
            files: &[galera::PROVIDER, galera::COPIER, "bin/rsync"],
            packages: Packages {
                names: &["mariadb-server", "mariadb-client-core", "galera-4", "rsync", "socat"],
                suite: Suite::OfThisMachine,
            },
            advice: "install MariaDB 10.11 or newer with Galera 4 and rsync, so that `mariadbd`, `wsrep_sst_rsync` and \
                     /usr/lib/galera/libgalera_smm.so are found",
        },
        Service::Redis | Service::RedisSecured | Service::RedisSentinel | Service::RedisCluster => Wanted {
            name: "Redis",
            program: "redis-server",
            version: "Redis server",
            files: &[],
            packages: Packages { names: &["redis-server", "redis-tools"], suite: Suite::OfThisMachine },
            advice: "install Redis 7 or newer, so that `redis-server` is found",
        },
        Service::Etcd | Service::EtcdCluster | Service::EtcdSecured => Wanted {
            name: "etcd",
            program: "etcd",
            version: "etcd Version",
            files: &[],
            packages: Packages { names: &["etcd-server"], suite: Suite::OfThisMachine },
            advice: "install etcd 3.4 or newer, so that `etcd` is found",
        },
        Service::ZooKeeper | Service::ZooKeeperCluster => Wanted {
            name: "ZooKeeper",
            program: "java",
            version: "openjdk",
            files: coordination::JARS,
            packages: Packages {
                names: &["libzookeeper-java", "default-jre-headless"],
                suite: Suite::OfThisMachine,
            },
            advice: "install Java and ZooKeeper 3.8 as Debian does, so that `java` and /usr/share/java/zookeeper.jar are \
                     found",
        },
    };
    Some(wanted)
}

/// Finds a service, or unpacks it. A missing service is always an error.
pub fn find_or_unpack(root: &Path, service: Service) -> Result<Programs> {
    let Some(Wanted { name, packages, advice, .. }) = wanted(service) else {
        return match service {
            Service::Nats | Service::NatsSecured | Service::NatsCluster => brokers::install_nats(root),
            Service::RabbitMq | Service::RabbitMqSecured => {
                brokers::install_rabbitmq(&unpacked_folder(root, service)?)
            }
            Service::Receivers => receivers::install(root),
            Service::S3 => s3::install(root),
            _ => oidc::install(root),
        };
    };
    if let Some(programs) = find(root, service) {
        return Ok(programs);
    }
    // The guard's standard output is for answers.
    eprintln!("{name} is not installed; downloading it once into the build directory");
    packages::unpack(&packages, &unpacked_folder(root, service)?)
        .and_then(|()| find(root, service).context("it was unpacked but does not run"))
        .with_context(|| {
            format!("the tests need {name}, which is not installed and not available from apt-get: {advice}")
        })
}

fn find(root: &Path, service: Service) -> Option<Programs> {
    let wanted = wanted(service)?;
    let installed = installed_folders().into_iter().find_map(|folder| {
        let programs = Programs { folder, usr: vec![usr()], launch: ProgramLaunch::Installed };
        resolved(programs, &wanted)
    });
    let is_complete = |programs: &Programs| wanted.files.iter().all(|file| programs.file(file).is_some());
    match installed {
        Some(programs) if is_complete(&programs) => Some(programs),
        // Only missing parts are unpacked: the server may be on the machine and its other files in the tree.
        Some(programs) => with_unpacked_files(programs, root, service).filter(is_complete),
        None => resolved(unpacked(root, service, &wanted)?, &wanted).filter(is_complete),
    }
}

fn usr() -> PathBuf {
    PathBuf::from("/usr")
}

fn with_unpacked_files(programs: Programs, root: &Path, service: Service) -> Option<Programs> {
    let tree = unpacked_folder(root, service).ok()?;
    let libraries = std::env::join_paths(library_folders(&tree)).ok()?;
    let usr = vec![usr(), tree.join("usr")];
    Some(Programs { usr, launch: ProgramLaunch::WithLibraries(libraries), ..programs })
}

/// Follows links to the server, if it is the wanted version and runs.
fn resolved(programs: Programs, wanted: &Wanted) -> Option<Programs> {
    let link = programs.folder.join(wanted.program);
    let server = link.canonicalize().ok()?;
    // A link next to the program selects its behaviour by name; any other link with another name leads to a
    // different program.
    let is_beside = server.parent() == programs.folder.canonicalize().ok().as_deref();
    let server = match server.ends_with(wanted.program) {
        true => server,
        false => Some(link).filter(|_| is_beside)?,
    };
    let mut command = programs.command(&server);
    let output = command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let is_wanted = String::from_utf8_lossy(&output.stdout).contains(wanted.version);
    let folder = server.parent().filter(|_| output.status.success() && is_wanted)?.to_owned();
    Some(Programs { folder, ..programs })
}

/// The search path, and the folders where Debian keeps servers outside it.
fn installed_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from));
    folders.extend(postgres_folders(&usr()));
    folders
}

/// Debian has a folder for each version; the newest comes first.
fn postgres_folders(usr: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<u32> = entries(&usr.join("lib").join("postgresql"))
        .iter()
        .filter_map(|folder| folder.file_name()?.to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let folder = |version: &u32| usr.join("lib").join("postgresql").join(version.to_string()).join("bin");
    versions.iter().map(folder).collect()
}

fn unpacked(root: &Path, service: Service, wanted: &Wanted) -> Option<Programs> {
    let tree = unpacked_folder(root, service).ok()?;
    let usr = tree.join("usr");
    let machines = entries(&usr.join("lib").join("jvm")).into_iter().map(|folder| folder.join("bin"));
    let mut folders =
        postgres_folders(&usr).into_iter().chain([usr.join("sbin"), usr.join("bin")]).chain(machines);
    let folder = folders.find(|folder| folder.join(wanted.program).exists())?;
    let libraries = std::env::join_paths(library_folders(&tree)).ok()?;
    let launch = match wanted.packages.suite {
        Suite::OfThisMachine => ProgramLaunch::WithLibraries(libraries),
        Suite::Unstable => ProgramLaunch::ThroughLoader { loader: loader(&tree)?, libraries },
    };
    Some(Programs { folder, usr: vec![self::usr(), usr], launch })
}

/// `lib/x86_64-linux-gnu` and equivalents.
pub fn library_folders(tree: &Path) -> Vec<PathBuf> {
    let folders = [tree.join("usr").join("lib"), tree.join("lib")];
    let inside = folders.iter().flat_map(|folder| entries(folder));
    inside.filter(|folder| folder.to_string_lossy().ends_with("-linux-gnu")).collect()
}

/// `ld-linux-x86-64.so.2` and equivalents.
fn loader(tree: &Path) -> Option<PathBuf> {
    let mut files = library_folders(tree).into_iter().flat_map(|folder| entries(&folder));
    files.find(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux")))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Where root unpacks servers if the build folder is accessible only to root: the servers run as another
/// user.
const FOLDER_FOR_EVERYONE: &str = "/var/cache/punctual/tools";

fn unpacked_folder(root: &Path, service: Service) -> Result<PathBuf> {
    let tools = tools::tools_folder(root);
    std::fs::create_dir_all(&tools)?;
    let is_reachable = !rustix::process::geteuid().is_root() || packages::may_be_entered_by_everyone(&tools)?;
    let folder = if is_reachable { tools } else { PathBuf::from(FOLDER_FOR_EVERYONE) };
    // Clusters use the same programs as single servers.
    let service = match service {
        Service::Replica => Service::Postgres,
        Service::MariaDbSecured => Service::MariaDb,
        Service::EtcdCluster | Service::EtcdSecured => Service::Etcd,
        Service::RedisSecured | Service::RedisSentinel | Service::RedisCluster => Service::Redis,
        Service::RabbitMqSecured => Service::RabbitMq,
        Service::ZooKeeperCluster => Service::ZooKeeper,
        other => other,
    };
    Ok(folder.join(service.word()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_postgres_is_used() {
        let usr = tempfile::tempdir().unwrap();
        for version in ["9", "15", "common", "17"] {
            std::fs::create_dir_all(usr.path().join("lib/postgresql").join(version)).unwrap();
        }
        let folder = |version: &str| usr.path().join("lib/postgresql").join(version).join("bin");
        assert_eq!(postgres_folders(usr.path()), ["17", "15", "9"].map(folder));
        assert_eq!(postgres_folders(&usr.path().join("nothing")), [""; 0].map(folder));
    }

    #[test]
    fn mariadb_is_not_taken_for_mysql() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("mysqld");
        let says = |version: &str| {
            std::fs::write(&program, format!("#!/bin/sh\necho 'mysqld  Ver {version}'\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&program, mode).unwrap();
            let programs =
                Programs { folder: folder.path().to_owned(), usr: vec![], launch: ProgramLaunch::Installed };
            resolved(programs, &wanted(Service::MySql).unwrap()).is_some()
        };
        assert!(says("9.7.4-2 for Linux on x86_64"));
        assert!(!says("10.11.19-MariaDB for debian-linux-gnu on x86_64"));
    }

    /// Like Redis in Debian: one program whose name selects its behaviour.
    #[test]
    fn a_link_to_a_program_beside_it_keeps_its_name() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let program = here.path().join("redis-check-rdb");
        std::fs::write(&program, "#!/bin/sh\necho Redis server v=7 is ${0##*/}\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let found = |folder: &Path| {
            std::os::unix::fs::symlink(&program, folder.join("redis-server")).unwrap();
            let programs =
                Programs { folder: folder.to_owned(), usr: vec![], launch: ProgramLaunch::Installed };
            resolved(programs, &wanted(Service::Redis).unwrap()).map(|programs| programs.folder)
        };
        assert_eq!(found(here.path()), Some(here.path().to_owned()));
        assert_eq!(found(there.path()), None, "it may be something else there");
    }
}
