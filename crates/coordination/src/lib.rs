//! Adapters of the `Coordination` port: the members of the cluster, and which member owns what.
//!
//! The store is the default, so that a cluster needs nothing else. etcd, Redis and ZooKeeper are
//! alternatives. All pass one suite, `conformance`. Nothing here decides whether a job
//! runs: two nodes that both believe to hold a lease do some work twice, and the store rejects the second of
//! them.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod entered;
mod etcd;
mod malformed;
mod open;
mod options;
mod redis;
mod store;
#[cfg(test)]
mod tests;
mod zookeeper;

pub use etcd::EtcdCoordination;
pub use open::{CoordinationOpenError, StoreSide, open};
pub use options::{CoordinationOptions, EtcdOptions, RedisOptions, ZooKeeperOptions};
pub use redis::RedisCoordination;
pub use store::StoreCoordination;
pub use zookeeper::ZooKeeperCoordination;
