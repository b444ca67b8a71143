//! Another program that writes among the entries of a cluster: entries that our code would never write, and
//! that do not disappear by themselves.

use crate::CoordinationOptions;

/// An entry that looks like a member but is not.
pub async fn member(options: &CoordinationOptions, id: &str) {
    match options {
        CoordinationOptions::Etcd(options) => etcd::put(options, &format!("members/{id}"), b"x").await,
        CoordinationOptions::Redis(options) => {
            redis::run(options, &["SADD", "{}:ids", id], b"").await;
            redis::run(options, &["HSET", &format!("{{}}:member:{id}"), "card"], b"x").await;
        }
        CoordinationOptions::ZooKeeper(options) => {
            zookeeper::put(options, &format!("members/{id}"), b"x").await
        }
        other => panic!("{other} has no server"),
    }
}

/// A lease whose holder is not a member.
pub async fn lease(options: &CoordinationOptions, name: &str, holder: &[u8]) {
    match options {
        CoordinationOptions::Etcd(options) => etcd::put(options, &format!("leases/{name}"), holder).await,
        CoordinationOptions::Redis(options) => {
            redis::run(options, &["HSET", "{}:holders", name], holder).await
        }
        CoordinationOptions::ZooKeeper(options) => {
            zookeeper::put(options, &format!("leases/{name}"), holder).await;
        }
        other => panic!("{other} has no server"),
    }
}

pub mod etcd {
    use crate::EtcdOptions;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    pub async fn put(options: &EtcdOptions, key: &str, value: &[u8]) {
        let key = BASE64.encode(format!("{}/{key}", options.prefix));
        let body = format!(r#"{{"key": "{key}", "value": "{}"}}"#, BASE64.encode(value));
        order(&options.hosts[0].to_string(), "/v3/kv/put", &body).await;
    }

    /// Sends a command to etcd as its operator would, over its gateway.
    pub async fn order(host: &str, path: &str, body: &str) {
        let mut stream = TcpStream::connect(host).await.unwrap();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path} {body}: {answer}");
    }
}

pub mod redis {
    use crate::RedisOptions;

    /// Runs a command; `{}` is replaced by the prefix. The last argument may be any bytes, and is left out if
    /// it is empty.
    pub async fn run(options: &RedisOptions, words: &[&str], last: &[u8]) {
        let client = redis::Client::open(format!("redis://{}", options.hosts[0])).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word.replace("{}", &format!("{{{}}}", options.prefix)));
        }
        if !last.is_empty() {
            command.arg(last);
        }
        command.query_async::<()>(&mut connection).await.unwrap();
    }
}

mod zookeeper {
    use crate::ZooKeeperOptions;
    use crate::zookeeper::{Ensemble, Error, NodeKind, ZooKeeperClient};
    use std::time::Duration;

    pub async fn put(options: &ZooKeeperOptions, path: &str, value: &[u8]) {
        let client =
            ZooKeeperClient::connect(&Ensemble::new(options.clone()), Duration::from_secs(6)).await.unwrap();
        let path = format!("/{}/{path}", options.path);
        match client.create(&path, value, NodeKind::Persistent).await {
            Err(Error::NodeExists) => client.set_data(&path, value).await.unwrap(),
            made => drop(made.unwrap()),
        }
    }
}
