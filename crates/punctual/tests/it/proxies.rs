//! The dashboard below a path of nginx, HAProxy and Caddy, which `cargo xtask tools` unpacks, in a real browser.

use crate::real_browser::Chromium;
use crate::server::{Server, eventually};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::tempdir;

/// A proxy that serves a server below `/tools/jobs/`. Killed on drop.
struct Proxy {
    child: Child,
    address: String,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    /// `None` without the program, which is an error in CI.
    fn start(kind: &str, server: &str, folder: &Path) -> Option<Self> {
        // Loopback has many addresses: no other test uses this one.
        let free = TcpListener::bind("127.0.0.72:0").expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        drop(free);
        let file = folder.join(kind);
        fs::write(&file, config(kind, &address, server, folder)).expect("a file");
        let mut command = Command::new(format!("punctual-test-{kind}"));
        match kind {
            "nginx" => command.arg("-p").arg(folder).arg("-c").arg(&file),
            "haproxy" => command.arg("-db").arg("-f").arg(&file),
            _ => command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file).env("HOME", folder),
        };
        let Ok(child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        else {
            let is_optional = std::env::var_os("CI").is_none_or(|value| value.is_empty());
            assert!(is_optional, "this test needs {kind}: run `cargo xtask tools`");
            return None;
        };
        Some(Proxy { child, address })
    }
}

fn config(kind: &str, address: &str, server: &str, folder: &Path) -> String {
    let folder = folder.display();
    match kind {
        "nginx" => format!(
            "daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}
            http {{
              access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
              uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
              server {{ listen {address}; location /tools/jobs/ {{
                proxy_pass http://{server}/; proxy_set_header Host $http_host; proxy_buffering off; }} }}
            }}"
        ),
        "haproxy" => format!(
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\nfrontend web\n  bind {address}\n  \
             use_backend punctual if {{ path_beg /tools/jobs/ }}\nbackend punctual\n  http-request replace-path \
             /tools/jobs/(.*) /\\1\n  server one {server}\n"
        ),
        _ => format!(
            "{{\n  admin off\n  auto_https off\n}}\nhttp://{address} {{\n  handle_path /tools/jobs/* {{\n    reverse_proxy \
             {server}\n  }}\n}}\n"
        ),
    }
}

#[tokio::test]
async fn the_dashboard_works_below_a_path_of_any_proxy() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    server.submit(json!({"name": "behind a proxy", "job_type": "noop", "interval": "1d"})).await;
    for kind in ["nginx", "haproxy", "caddy"] {
        let folder = tempdir().expect("a folder");
        let Some(proxy) = Proxy::start(kind, &server.address, folder.path()) else { continue };
        let root = format!("http://{}/tools/jobs/", proxy.address);
        let listens = async || tokio::net::TcpStream::connect(&proxy.address).await.is_ok();
        eventually("the proxy listens", listens).await;
        // The page of the server itself leads to the dashboard.
        let find = |chromium: &mut Chromium, what: &str| {
            chromium.done(json!({"step": "find", "what": what}));
        };
        let click = |chromium: &mut Chromium, what: &str| {
            chromium.done(json!({"step": "click", "what": what}));
        };
        chromium.open(&root);
        find(&mut chromium, "#token");
        chromium.fill("#token", &server.token);
        click(&mut chromium, "form button");
        // The stream of events passes through.
        find(&mut chromium, ".top:has-text('Live')");
        click(&mut chromium, "nav a:has-text('Jobs')");
        click(&mut chromium, "td a:has-text('behind a proxy')");
        click(&mut chromium, ".tabs a:has-text('Why')");
        let deep = chromium.evaluate("location.href");
        let deep = deep.as_str().expect("an address");
        assert!(deep.starts_with(&format!("{root}ui/jobs/")), "{kind}: {deep}");
        chromium.open(deep);
        find(&mut chromium, "h1:has-text('behind a proxy')");
        find(&mut chromium, ".tabs a[aria-current]:has-text('Why')");
        // Everything came from the proxy.
        let others = "performance.getEntriesByType('resource').filter((one) => !one.name.startsWith(location.origin + '/tools/jobs/')).length";
        assert_eq!(chromium.evaluate(others), 0, "{kind}");
    }
}
