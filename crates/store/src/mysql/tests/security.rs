//! TLS with real servers: how much of a certificate has to be true, by the words of the URL, and what is said if it is not.

use super::database::{Server, TestDatabase};
use crate::mysql::MySqlOptions;
use crate::mysql::connection::Connection;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a server may take to start. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Certificates in a folder that every user may read.
struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// One for this machine, and one that has nothing to do with it.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path(), 0o755);
        for name in ["localhost", "elsewhere"] {
            let rcgen::CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            for (kind, text) in [("cert", cert.pem()), ("key", signing_key.serialize_pem())] {
                let file = folder.path().join(format!("{name}-{kind}.pem"));
                std::fs::write(&file, text).unwrap();
                open_to_all(&file, 0o644);
            }
        }
        Certificates { folder }
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{name}-{kind}.pem"))
    }

    /// The words of a URL that names an authority.
    fn authority(&self, name: &str) -> String {
        format!("ssl-ca={}", self.file(name, "cert").display())
    }
}

fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A place at which a server answers.
struct Place {
    /// With a password, if there is one.
    user: &'static str,
    port: u16,
}

impl Place {
    /// What a connection with these words in its URL comes to: the cipher, or what is wrong.
    async fn cipher(&self, words: &str) -> Result<String, String> {
        let url = format!("mysql://{}@localhost:{}/information_schema?{words}", self.user, self.port);
        let target = MySqlOptions::new(url).target().unwrap();
        let mut connection = Connection::defining(&target).await.map_err(|fault| {
            assert!(fault.is_outage(), "{fault}");
            fault.to_string()
        })?;
        let row = connection.all_of_text("SHOW STATUS LIKE 'Ssl_cipher'").await.unwrap().remove(0);
        connection.close().await;
        Ok(row.get::<String, _>(1).unwrap())
    }

    async fn is_believed_as_the_url_says(&self, certificates: &Certificates) {
        let (own, others) = (certificates.authority("localhost"), certificates.authority("elsewhere"));
        for words in [format!("ssl-mode=verify-identity&{own}"), own.clone(), "ssl-mode=required".to_owned()]
        {
            assert!(!self.cipher(&words).await.unwrap().is_empty(), "{words}");
        }
        assert_eq!(self.cipher("ssl-mode=disabled").await.unwrap(), "", "nobody has asked for it");
        for words in [others.as_str(), "ssl-mode=verify-identity", "ssl-mode=verify-ca"] {
            let error = self.cipher(words).await.unwrap_err();
            assert!(
                error.contains("invalid peer certificate") && error.contains("ssl-ca=FILE"),
                "{words}: {error}"
            );
        }
    }

    /// The certificate is of another name.
    async fn is_not_believed_under_another_name(&self, certificates: &Certificates) {
        assert!(!self.cipher("ssl-mode=required").await.unwrap().is_empty());
        let authority = certificates.authority("elsewhere");
        // The driver looks at the name whichever of the two is asked for: it errs on the safe side.
        for mode in ["verify-identity", "verify-ca"] {
            let error = self.cipher(&format!("ssl-mode={mode}&{authority}")).await.unwrap_err();
            assert!(error.contains("must name the host as the certificate does"), "{mode}: {error}");
        }
    }
}

/// MySQL takes other certificates while it runs. The other tests speak to it without.
#[tokio::test]
async fn mysql_is_believed_as_the_url_says() {
    if !Server::given().contains(&Server::MySql) {
        return;
    }
    let certificates = Certificates::new();
    let database = TestDatabase::on(Server::MySql).await;
    let mut client = super::database::client(&database.options()).await;
    let place = Place { user: "punctual:punctual", port: database.port() };
    present(&mut client, &certificates, "localhost").await;
    place.is_believed_as_the_url_says(&certificates).await;
    present(&mut client, &certificates, "elsewhere").await;
    place.is_not_believed_under_another_name(&certificates).await;
    database.leave().await;
}

async fn present(client: &mut Conn, certificates: &Certificates, name: &str) {
    let set = format!(
        "SET GLOBAL ssl_cert = '{}', GLOBAL ssl_key = '{}'",
        certificates.file(name, "cert").display(),
        certificates.file(name, "key").display()
    );
    client.query_drop(set).await.unwrap();
    client.query_drop("ALTER INSTANCE RELOAD TLS").await.unwrap();
}

/// MariaDB takes its certificates when it starts, so these servers are the test's own. They hold nothing and know no users.
#[tokio::test]
async fn mariadb_is_believed_as_the_url_says() {
    let certificates = Certificates::new();
    let program = mariadb_program().await;
    let server = OwnServer::start(&program, &certificates, "localhost").await;
    server.place().is_believed_as_the_url_says(&certificates).await;
    drop(server);
    let server = OwnServer::start(&program, &certificates, "elsewhere").await;
    server.place().is_not_believed_under_another_name(&certificates).await;
}

/// The program that the given server runs.
async fn mariadb_program() -> PathBuf {
    let database = TestDatabase::on(Server::MariaDb).await;
    let mut client = super::database::client(&database.options()).await;
    let base: String = client.query_first("SELECT @@basedir").await.unwrap().unwrap();
    client.disconnect().await.unwrap();
    database.leave().await;
    let places = ["sbin", "bin"].map(|folder| Path::new(&base).join(folder).join("mariadbd"));
    places.into_iter().find(|file| file.is_file()).expect("the program of a server that runs")
}

/// Killed when dropped.
struct OwnServer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl OwnServer {
    async fn start(program: &Path, certificates: &Certificates, name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path(), 0o777);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let within = |name: &str| folder.path().join(name).display().to_string();
        let data = within("data");
        std::fs::create_dir(&data).unwrap();
        open_to_all(Path::new(&data), 0o777);
        let mut command = Command::new(program);
        command.args(["--no-defaults", "--skip-grant-tables", "--bind-address=127.0.0.1", "--socket=s.sock"]);
        command.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--pid-file=s.pid"]);
        command.arg(format!("--datadir={data}")).arg(format!("--tmpdir={}", folder.path().display()));
        command.arg(format!("--port={port}"));
        command.arg(format!("--ssl-cert={}", certificates.file(name, "cert").display()));
        command.arg(format!("--ssl-key={}", certificates.file(name, "key").display()));
        if rustix::process::geteuid().is_root() {
            // It does not want to be root, and has a user of its own where it is installed.
            command.arg("--user=mysql");
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let server = OwnServer { child, port, _folder: folder };
        server.answers().await;
        server
    }

    fn place(&self) -> Place {
        Place { user: "ann", port: self.port }
    }

    async fn answers(&self) {
        let opts =
            || OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(self.port).prefer_socket(false);
        let begun = std::time::Instant::now();
        while Conn::new(opts()).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "the server never answered");
            // A pace for asking again, not a wait for something.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
