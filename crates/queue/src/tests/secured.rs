//! Brokers that require TLS and a certificate of their clients. The conformance suite covers the rest: below TLS, the
//! protocols are the same.

use super::stage;
use crate::conformance::{hint, received};
use punctual_core::ports::{ReadyQueue, ReadyQueueError};
use punctual_test_servers::{Servers, TestCertificates};

async fn only_clients_with_a_certificate_are_connected(service: &'static str) {
    let certificates = TestCertificates::new();
    let folder = certificates.folder().to_owned();
    let start = move || Servers::start_with_certificates(service, &folder).unwrap();
    let servers = tokio::task::spawn_blocking(start).await.expect("the thread ends");
    let url = |files: &[(&str, &str)]| format!("{}?{}", servers.all()[0].url, certificates.words(files));

    let trusted = stage(&url(&[("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")]));
    let (here, peer) = (trusted.connected("here").await, trusted.connected("peer").await);
    peer.publish(hint("secured")).await.unwrap();
    assert_eq!(received(&here).await, hint("secured"));

    for (files, words) in [
        (&[("ca", "other-ca.pem"), ("cert", "client.pem"), ("key", "client.key")][..], "UnknownIssuer"),
        (&[("ca", "ca.pem")], ""),
    ] {
        let error = stage(&url(files)).process("refused").receive().await.unwrap_err();
        assert!(
            matches!(&error, ReadyQueueError::Unavailable(said) if said.contains(words)),
            "{files:?}: {error}"
        );
    }
}

#[tokio::test]
async fn nats_connects_only_clients_with_a_certificate() {
    only_clients_with_a_certificate_are_connected("nats-secured").await;
}

#[tokio::test]
async fn rabbitmq_connects_only_clients_with_a_certificate() {
    only_clients_with_a_certificate_are_connected("rabbitmq-secured").await;
}

#[tokio::test]
async fn redis_connects_only_clients_with_a_certificate() {
    only_clients_with_a_certificate_are_connected("redis-secured").await;
}
