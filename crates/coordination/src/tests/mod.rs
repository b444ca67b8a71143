//! One test per conformance case and adapter, and what only one of them can be asked.

#[cfg(all(feature = "etcd", feature = "zookeeper"))]
mod ensemble;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "etcd", feature = "zookeeper"))]
mod private;
#[cfg(feature = "redis")]
mod redis;
mod store;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod server {
    //! Servers that the tests were given.

    use std::sync::atomic::{AtomicU32, Ordering};

    /// The URL of one, or an end that says what to do.
    pub fn url(variable: &str) -> String {
        std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: run `cargo xtask test`, which starts servers for the tests")
        })
    }

    /// A prefix that no other cluster has.
    pub fn prefix() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }
}
