//! The certificates of TLS servers.

use super::site::ServerSite;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Environment variable with the folder of the certificates of TLS servers. The caller that wants such a
/// server creates them and knows which to trust.
const CERTIFICATES: &str = "PUNCTUAL_TEST_CERTIFICATES";

/// Copies that are readable by the servers.
pub struct Certificates {
    pub ca: PathBuf,
    pub server: PathBuf,
    pub key: PathBuf,
}

impl Certificates {
    pub fn for_servers_in(site: &ServerSite) -> Result<Self> {
        let folder = std::env::var_os(CERTIFICATES).with_context(|| {
            format!("{CERTIFICATES} is not set: set it to a directory with {CA}, {SERVER} and {KEY}")
        })?;
        let copy = |name: &str| {
            let path = Path::new(&folder).join(name);
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            site.write(name, &text)
        };
        Ok(Certificates { ca: copy(CA)?, server: copy(SERVER)?, key: copy(KEY)? })
    }
}

const CA: &str = "ca.pem";
const SERVER: &str = "server.pem";
const KEY: &str = "server.key";
