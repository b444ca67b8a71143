//! Servers that require a login or TLS: which clients they accept, which they reject, and the error messages.

use super::private::Private;
use super::server::{prefix, takes_part};
use super::strange::etcd::order;
use punctual_core::ports::CoordinationError;
use punctual_test_servers::TestCertificates;

/// A URL with a login.
fn as_user(url: &str, login: &str) -> String {
    url.replacen("://", &format!("://{login}@"), 1)
}

async fn refused(url: &str) -> String {
    match takes_part(url).await {
        Err(CoordinationError::Broken(said)) => said,
        other => panic!("{other:?}"),
    }
}

async fn unreachable(url: &str) -> String {
    match takes_part(url).await {
        Err(CoordinationError::Unavailable(said)) => said,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn redis_with_a_password_accepts_only_that_password() {
    let mut redis = Private::start("redis").await;
    redis.say("redis", "CONFIG SET requirepass topsecret").await;
    let url = redis.url();
    takes_part(&as_user(&url, ":topsecret")).await.unwrap();
    let said = refused(&url).await;
    assert!(said.contains("requires a password") && said.contains("coordination.password_file"), "{said}");
    let said = refused(&as_user(&url, ":bottomsecret")).await;
    assert!(said.contains("rejects the login") && !said.contains("secret"), "{said}");
}

/// As in the guide.
const REDIS_RIGHTS: &str =
    "ACL SETUSER ann on >topsecret ~{blue/* +@scripting +@hash +@set +type +pttl +del +pexpire +time";

#[tokio::test]
async fn a_redis_user_with_minimal_rights_coordinates_one_cluster() {
    let mut redis = Private::start("redis").await;
    redis.say("redis", REDIS_RIGHTS).await;
    let url = as_user(&redis.url(), "ann:topsecret");
    takes_part(&format!("{url}?prefix=blue/7f")).await.unwrap();
    let said = refused(&format!("{url}?prefix=red")).await;
    assert!(said.contains("allow the user scripts and the keys {red}*"), "{said}");
}

#[tokio::test]
async fn redis_over_tls_verifies_both_certificates() {
    let certificates = TestCertificates::new();
    let mut redis = Private::start_with("redis-secured", certificates.folder()).await;
    let url = redis.url();
    let ca = certificates.words(&[("ca", "ca.pem")]);
    let identity = certificates.words(&[("cert", "client.pem"), ("key", "client.key")]);
    takes_part(&format!("{url}?{ca}&{identity}")).await.unwrap();
    unreachable(&format!("{url}?{ca}")).await;
    redis.say("redis-secured", "CONFIG SET tls-auth-clients no").await;
    takes_part(&format!("{url}?{ca}")).await.unwrap();
    redis.say("redis-secured", REDIS_RIGHTS).await;
    takes_part(&as_user(&format!("{url}?prefix=blue/7f&{ca}"), "ann:topsecret")).await.unwrap();
    let others = certificates.words(&[("ca", "other-ca.pem")]);
    for wrong in [format!("{url}?{others}"), url.clone()] {
        let said = unreachable(&wrong).await;
        assert!(said.contains("certificate") && said.contains("check ca, cert and key"), "{said}");
    }
    unreachable(&url.replacen("rediss://", "redis://", 1)).await;
}

#[tokio::test]
async fn etcd_over_tls_verifies_both_certificates() {
    let certificates = TestCertificates::new();
    let etcd = Private::start_with("etcd-secured", certificates.folder()).await;
    let [(_, open), (_, mutual)] = &etcd.servers[..] else { panic!("{:?}", etcd.servers) };
    let ca = certificates.words(&[("ca", "ca.pem")]);
    let identity = certificates.words(&[("cert", "client.pem"), ("key", "client.key")]);
    takes_part(&format!("{open}/{}?{ca}", prefix())).await.unwrap();
    takes_part(&format!("{mutual}/{}?{ca}&{identity}", prefix())).await.unwrap();
    unreachable(&format!("{mutual}?{ca}")).await;
    let others = certificates.words(&[("ca", "other-ca.pem")]);
    for wrong in [format!("{open}?{others}"), open.clone()] {
        let said = unreachable(&wrong).await;
        assert!(said.contains("certificate") && said.contains("check ca, cert and key"), "{said}");
    }
    unreachable(&open.replacen("etcds://", "etcd://", 1)).await;
}

/// Users: `root`, which etcd requires, and `ann`, who may read and write keys that begin with `blue/`.
async fn with_users(url: &str) {
    let host = url.split("://").nth(1).unwrap();
    for (path, body) in [
        ("user/add", r#"{"name": "root", "password": "rootsecret"}"#),
        ("role/add", r#"{"name": "root"}"#),
        ("user/grant", r#"{"user": "root", "role": "root"}"#),
        ("role/add", r#"{"name": "punctual"}"#),
        // From `blue/` to `blue0`, in base64.
        (
            "role/grant",
            r#"{"name": "punctual", "perm": {"permType": "READWRITE", "key": "Ymx1ZS8=", "range_end": "Ymx1ZTA="}}"#,
        ),
        ("user/add", r#"{"name": "ann", "password": "topsecret"}"#),
        ("user/grant", r#"{"user": "ann", "role": "punctual"}"#),
        ("enable", "{}"),
    ] {
        order(host, &format!("/v3/auth/{path}"), body).await;
    }
}

#[tokio::test]
async fn etcd_users_need_write_access_to_the_prefix_and_survive_a_restart() {
    let mut etcd = Private::start("etcd").await;
    let url = etcd.url();
    with_users(&url).await;
    let ann = as_user(&url, "ann:topsecret");
    takes_part(&format!("{ann}/blue")).await.unwrap();
    for wrong in [as_user(&url, "ann:bottomsecret"), format!("{ann}/red"), url.clone()] {
        let said = refused(&wrong).await;
        assert!(said.contains("check user and password") && !said.contains("secret"), "{said}");
    }
    // The client renews a token that etcd has forgotten.
    let door = super::server::door(&format!("{ann}/blue"));
    door.look().await.unwrap();
    etcd.kill("etcd").await;
    door.look().await.unwrap_err();
    etcd.start_again("etcd").await;
    super::server::eventually("its login is accepted again", async || door.look().await.is_ok()).await;
}
