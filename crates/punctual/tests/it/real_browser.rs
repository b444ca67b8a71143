//! Logins and attacks in a real browser: Chromium, which `cargo xtask tools` unpacks, driven by
//! `xtask/browser/driver.cjs`.

use crate::certificates::Certificates;
use crate::oidc::{Site, issuer};
use crate::server::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A browser with one page. Killed on drop.
pub struct Chromium {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Chromium {
    /// `None` without a browser, which is an error in CI.
    pub fn start() -> Option<Self> {
        // These names lead to this machine, as they do when an attacker answers for them.
        let rules = "--host-resolver-rules=MAP evil.example 127.0.0.1";
        let started = Command::new("punctual-test-browser")
            .arg(rules)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            let is_optional = std::env::var_os("CI").is_none_or(|value| value.is_empty());
            assert!(is_optional, "these tests need a browser: run `cargo xtask tools`");
            return None;
        };
        let input = child.stdin.take().expect("stdin is piped");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Some(Chromium { child, input, output })
    }

    pub fn ask(&mut self, command: Value) -> Result<Value, String> {
        writeln!(self.input, "{command}").expect("the browser runs");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{command} gave {line:?}"));
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["value"].clone()),
        }
    }

    pub fn done(&mut self, command: Value) -> Value {
        self.ask(command.clone()).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub fn open(&mut self, url: &str) -> Value {
        self.done(json!({"step": "open", "url": url}))
    }

    pub fn fill(&mut self, field: &str, text: &str) {
        self.done(json!({"step": "fill", "field": field, "text": text}));
    }

    /// Clicks on something that leads to another page.
    pub fn follow(&mut self, what: &str) -> Value {
        self.done(json!({"step": "follow", "what": what}))
    }

    pub fn evaluate(&mut self, script: &str) -> Value {
        self.done(json!({"step": "evaluate", "script": script}))
    }

    fn cookies(&mut self) -> Vec<Value> {
        self.done(json!({"step": "cookies"})).as_array().expect("a list").clone()
    }

    /// The session cookie of a server.
    fn session(&mut self, name: &str) -> Option<Value> {
        self.cookies().into_iter().find(|cookie| cookie["name"] == name)
    }

    /// The status of this page. The pages of the server let no script send requests, so it is opened.
    fn status(&mut self, url: &str) -> Value {
        self.open(url)["status"].clone()
    }

    pub fn log_in(&mut self, origin: &str, token: &str) -> Value {
        self.open(&format!("{origin}/login?next=/docs"));
        self.fill("input[name=token]", token);
        self.follow("form[action='/login'] button")
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port(server: &Server) -> &str {
    server.address.rsplit(':').next().expect("a port")
}

/// A web server of an attacker, which answers every request with this page. It ends with the test's process.
fn attacker(page: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(stream.try_clone().expect("a stream")).lines();
            while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}", page.len());
            let _ = write!(stream, "{head}\r\nConnection: close\r\n\r\n{page}");
        }
    });
    port
}

#[tokio::test]
async fn a_person_logs_in_with_a_token_and_out_again() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let (origin, cookie) = (format!("http://{}", server.address), format!("punctual_{}", port(&server)));
    let page = chromium.log_in(&origin, "pt_admin_wrong");
    assert_eq!(page["status"], 401, "{page}");
    assert!(chromium.cookies().is_empty());

    let page = chromium.log_in(&origin, &server.token);
    assert_eq!(
        (&page["status"], page["url"].as_str()),
        (&json!(200), Some(&*format!("{origin}/docs"))),
        "{page}"
    );
    let session = chromium.session(&cookie).expect("a session");
    assert_eq!(
        (&session["httpOnly"], &session["sameSite"], &session["secure"], &session["path"]),
        (&json!(true), &json!("Lax"), &json!(false), &json!("/"))
    );
    assert_eq!(chromium.evaluate("document.cookie"), "", "scripts cannot read it");
    assert_eq!(chromium.status(&format!("{origin}/api/v1/me")), 200);

    chromium.open(&format!("{origin}/login"));
    chromium.follow("form[action='/logout'] button");
    assert_eq!(chromium.session(&cookie), None);
    assert_eq!(chromium.status(&format!("{origin}/api/v1/me")), 401);
    // The session itself is over, not only its cookie.
    let old = session["value"].as_str().expect("a value");
    let request = server.anonymous(reqwest::Method::GET, "/api/v1/me");
    let answer = request.header("cookie", format!("{cookie}={old}")).send().await.expect("an answer");
    assert_eq!(answer.status(), reqwest::StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn over_tls_the_cookie_is_for_this_host_and_tls_alone() {
    let Some(mut chromium) = Chromium::start() else { return };
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let page = chromium.log_in(&format!("https://{}", server.address), &server.token);
    assert_eq!(page["status"], 200, "{page}");
    let session = chromium.session(&format!("__Host-punctual_{}", port(&server))).expect("a session");
    assert_eq!(
        (&session["httpOnly"], &session["sameSite"], &session["secure"], &session["path"]),
        (&json!(true), &json!("Lax"), &json!(true), &json!("/"))
    );
    assert_eq!(chromium.status(&format!("https://{}/api/v1/me", server.address)), 200);
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let (origin, cookie) = (format!("http://{}", server.address), format!("punctual_{}", port(&server)));
    chromium.log_in(&origin, &server.token);
    let session = chromium.session(&cookie).expect("a session");
    let page = format!(
        "<form id=out method=post action='{origin}/logout'><button>x</button></form>\
         <form id=in method=post action='{origin}/login'><input name=token value='{}'><button>x</button></form>\
         <form id=job method=post enctype='text/plain' action='{origin}/api/v1/jobs'>\
         <input name='{{\"name\":\"noop\",\"x' value='\":1}}'><button>x</button></form>",
        server.token
    );
    let port = attacker(page);
    // Another port of the same host is the same site, so the browser sends the cookie along.
    for site in [format!("http://127.0.0.1:{port}"), format!("http://evil.example:{port}")] {
        for form in ["out", "in", "job"] {
            chromium.open(&site);
            let refused = chromium.follow(&format!("#{form} button"));
            let status = refused["status"].as_u64();
            assert!(matches!(status, Some(401 | 403)), "{form} from {site}: {refused}");
            assert_eq!(chromium.session(&cookie), Some(session.clone()), "{form} from {site}");
        }
        chromium.open(&site);
        for mode in ["no-cors", "cors"] {
            let sent = chromium.evaluate(&format!(
                "fetch('{origin}/api/v1/jobs', {{method: 'POST', mode: '{mode}', credentials: 'include', \
                 body: '{{\"name\":\"noop\"}}'}}).then((answer) => answer.status, () => 'failed')"
            ));
            assert_eq!(sent, if mode == "cors" { json!("failed") } else { json!(0) }, "{site} reads nothing");
        }
        let read = format!(
            "fetch('{origin}/api/v1/me', {{credentials: 'include'}}).then(() => 'read', () => 'failed')"
        );
        assert_eq!(chromium.evaluate(&read), "failed", "{site}");
    }
    let (_, jobs) = server.get("/api/v1/jobs").await;
    assert_eq!(jobs["items"], json!([]));
    assert_eq!(chromium.status(&format!("{origin}/api/v1/me")), 200, "the session goes on");
}

#[tokio::test]
async fn a_name_of_an_attacker_that_leads_to_this_server_is_refused() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let (here, evil) =
        (format!("http://{}", server.address), format!("http://evil.example:{}", port(&server)));
    chromium.log_in(&here, &server.token);
    for path in ["/login", "/docs", "/api/v1/me"] {
        assert_eq!(chromium.status(&format!("{evil}{path}")), 421, "{path}");
    }
}

#[tokio::test]
async fn a_person_logs_in_at_the_identity_provider() {
    let Some(mut chromium) = Chromium::start() else { return };
    let site = Site::start(&issuer(), &[]);
    chromium.open(&site.at("/login?next=/docs"));
    let page = chromium.follow("a.button");
    assert!(page["url"].as_str().expect("an address").starts_with(&issuer()), "{page}");
    chromium.fill("input[name=login]", "operator-eve");
    chromium.fill("input[name=password]", "x");
    chromium.follow("button[type=submit]");
    // The provider asks whether the application may know the person.
    let page = chromium.follow("button[type=submit]");
    assert_eq!(page["url"], site.at("/docs"), "{page}");
    let cookie = format!("punctual_{}", port(&site.server));
    let session = chromium.session(&cookie).expect("a session");
    assert_eq!((&session["httpOnly"], &session["sameSite"]), (&json!(true), &json!("Lax")));
    chromium.open(&site.at("/api/v1/me"));
    let me = chromium.evaluate("document.body.innerText").as_str().expect("a text").to_owned();
    assert!(me.contains("\"role\":\"operator\"") && me.contains("operator-eve@example.org"), "{me}");
    chromium.open(&site.at("/login"));
    chromium.follow("form[action='/logout'] button");
    assert_eq!(chromium.session(&cookie), None);
    assert_eq!(chromium.status(&site.at("/api/v1/me")), 401);
}
