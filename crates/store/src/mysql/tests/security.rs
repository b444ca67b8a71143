//! TLS with real servers: how strictly a certificate is verified, by the parameters of the URL, and the
//! error if it is rejected.

use super::database::{Server, TestDatabase};
use crate::mysql::MySqlOptions;
use crate::mysql::connection::Connection;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use punctual_test_servers::Servers;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Certificates in a folder that every user may read.
struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// One for this machine, and one for another name.
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

    /// The parameters of a URL that names an authority.
    fn authority(&self, name: &str) -> String {
        format!("ssl-ca={}", self.file(name, "cert").display())
    }
}

fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// An address at which a server answers.
struct Place {
    port: u16,
}

impl Place {
    fn of(server: &Servers) -> Self {
        Place { port: Opts::from_url(&server.all()[0].url).unwrap().tcp_port() }
    }

    /// The result of a connection with these parameters in its URL: the cipher, or the error.
    async fn cipher(&self, words: &str) -> Result<String, String> {
        let url = format!("mysql://punctual:punctual@localhost:{}/information_schema?{words}", self.port);
        let target = MySqlOptions::new(url).target().unwrap();
        let mut connection = Connection::defining(&target).await.map_err(|fault| {
            assert!(fault.is_outage(), "{fault}");
            fault.to_string()
        })?;
        let row = connection.all_of_text("SHOW STATUS LIKE 'Ssl_cipher'").await.unwrap().remove(0);
        connection.close().await;
        Ok(row.get::<String, _>(1).unwrap())
    }

    async fn certificates_are_verified_as_the_url_requires(&self, certificates: &Certificates) {
        let (own, others) = (certificates.authority("localhost"), certificates.authority("elsewhere"));
        for words in [format!("ssl-mode=verify-identity&{own}"), own.clone(), "ssl-mode=required".to_owned()]
        {
            assert!(!self.cipher(&words).await.unwrap().is_empty(), "{words}");
        }
        assert_eq!(self.cipher("ssl-mode=disabled").await.unwrap(), "", "TLS was not requested");
        for words in [others.as_str(), "ssl-mode=verify-identity", "ssl-mode=verify-ca"] {
            let error = self.cipher(words).await.unwrap_err();
            assert!(
                error.contains("invalid peer certificate") && error.contains("ssl-ca=FILE"),
                "{words}: {error}"
            );
        }
    }

    /// The certificate is for another name.
    async fn is_rejected_under_another_name(&self, certificates: &Certificates) {
        assert!(!self.cipher("ssl-mode=required").await.unwrap().is_empty());
        let authority = certificates.authority("elsewhere");
        // The driver verifies the name in both modes, which is the safe side.
        for mode in ["verify-identity", "verify-ca"] {
            let error = self.cipher(&format!("ssl-mode={mode}&{authority}")).await.unwrap_err();
            assert!(error.contains("must name the host as the certificate does"), "{mode}: {error}");
        }
    }
}

/// MySQL loads other certificates at run time. The other tests connect without TLS.
mod mysql_server {
    use super::*;

    #[tokio::test]
    async fn certificates_are_verified_as_the_url_requires() {
        let certificates = Certificates::new();
        let database = TestDatabase::on(Server::MySql).await;
        let mut client = super::super::database::client(&database.options()).await;
        let place = Place { port: database.port() };
        present(&mut client, &certificates, "localhost").await;
        place.certificates_are_verified_as_the_url_requires(&certificates).await;
        present(&mut client, &certificates, "elsewhere").await;
        place.is_rejected_under_another_name(&certificates).await;
        database.leave().await;
    }
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

/// MariaDB loads its certificates at start, so the test has its own servers.
#[tokio::test]
async fn mariadb_certificates_are_verified_as_the_url_requires() {
    let certificates = Certificates::new();
    let server = secured(&certificates, "localhost");
    Place::of(&server).certificates_are_verified_as_the_url_requires(&certificates).await;
    drop(server);
    let server = secured(&certificates, "elsewhere");
    Place::of(&server).is_rejected_under_another_name(&certificates).await;
}

/// A server that presents one of the certificates.
fn secured(certificates: &Certificates, name: &str) -> Servers {
    let folder = tempfile::tempdir().unwrap();
    for (kind, file) in [("cert", "ca.pem"), ("cert", "server.pem"), ("key", "server.key")] {
        std::fs::copy(certificates.file(name, kind), folder.path().join(file)).unwrap();
    }
    Servers::start_with_certificates("mariadb-secured", folder.path()).unwrap()
}
