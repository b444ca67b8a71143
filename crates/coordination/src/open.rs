//! Creates the adapter for some options. Nothing is connected here: a node starts even if its coordination is
//! unavailable, and then owns everything.

use crate::options::CoordinationOptions;
use crate::store::StoreCoordination;
use punctual_core::ports::{Clock, Coordination, MembershipTable};
use punctual_tls::TlsFileError;
use std::sync::Arc;

/// The dependencies of coordination through the store. The other adapters do not use them.
pub struct StoreSide {
    pub membership_table: Arc<dyn MembershipTable>,
    pub clock: Arc<dyn Clock>,
}

#[derive(Debug, thiserror::Error)]
pub enum CoordinationOpenError {
    #[error(transparent)]
    Certificates(#[from] TlsFileError),
    #[error("{0}")]
    Options(String),
}

/// The adapter for these options.
pub fn open(
    options: &CoordinationOptions,
    store: StoreSide,
) -> Result<Arc<dyn Coordination>, CoordinationOpenError> {
    match options {
        CoordinationOptions::Store => {
            Ok(Arc::new(StoreCoordination::new(store.membership_table, store.clock)))
        }
        CoordinationOptions::Etcd(options) => Ok(Arc::new(crate::EtcdCoordination::new(options)?)),
        CoordinationOptions::Redis(options) => Ok(Arc::new(crate::RedisCoordination::new(options)?)),
        CoordinationOptions::ZooKeeper(options) => Ok(Arc::new(crate::ZooKeeperCoordination::new(options))),
    }
}
