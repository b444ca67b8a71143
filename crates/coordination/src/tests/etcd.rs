//! Tests that only apply to etcd.

use super::server::adapter;
use super::services::ETCD;
use crate::{CoordinationOptions, EtcdCoordination, EtcdOptions};
use punctual_core::service_url::{Login, Secret};

fn given() -> EtcdOptions {
    match ETCD.options() {
        CoordinationOptions::Etcd(options) => options,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_login_that_etcd_rejects_is_reported() {
    let login = Login { user: "ann".to_owned(), password: Secret("topsecret".to_owned()) };
    let options = CoordinationOptions::Etcd(EtcdOptions { login: Some(login), ..given() });
    let error = adapter(&options).look().await.unwrap_err().to_string();
    // This server has no users, and says so.
    assert!(error.contains("authentication is not enabled"), "{error}");
    assert!(!error.contains("topsecret"), "{error}");
}

#[tokio::test]
async fn a_file_without_certificates_is_named() {
    let CoordinationOptions::Etcd(options) = "etcds://127.0.0.1:1?ca=/nonexistent/ca.pem".parse().unwrap()
    else {
        panic!("not etcd")
    };
    let error = EtcdCoordination::new(&options).err();
    assert!(error.unwrap().to_string().contains("/nonexistent/ca.pem"));
}
