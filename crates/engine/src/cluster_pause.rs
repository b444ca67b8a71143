//! Keeps the reserved queues as the stored pause of the cluster says, and ends a pause whose time has come.

use crate::Engine;
use punctual_core::cluster_pause::{CLUSTER_PAUSE, ClusterPause, EVERY_QUEUE};
use punctual_core::ports::{
    DirectoryChange, DocumentChange, DocumentKind, Pausing, Store, StoreError, StoredDocument,
};

/// The pause of the cluster as it is stored.
pub(crate) async fn stored(store: &dyn Store) -> Result<Option<(StoredDocument, ClusterPause)>, StoreError> {
    let Some(document) = store.document(DocumentKind::ClusterPause, CLUSTER_PAUSE).await? else {
        return Ok(None);
    };
    let pause = document.read()?;
    Ok(Some((document, pause)))
}

impl Engine {
    /// A duty of the leader. Two leaders do the same.
    pub(crate) async fn reconcile_cluster_pause(&self) -> Result<(), StoreError> {
        let store = &*self.context.store;
        let mut pause = stored(store).await?;
        if let Some((document, _)) = pause.take_if(|(_, pause)| pause.is_over(self.now())) {
            let StoredDocument { kind, name, version, .. } = document;
            let removal = DirectoryChange::Documents(vec![DocumentChange::Remove { kind, name, version }]);
            store.change_directory(removal, None).await?;
            tracing::info!("the pause of the cluster has ended");
            // Someone may have paused it again meanwhile.
            pause = stored(store).await?;
        }
        self.apply_cluster_pause(pause.map(|(_, pause)| pause).as_ref()).await
    }

    /// Pauses and resumes the reserved queues where they differ.
    pub(crate) async fn apply_cluster_pause(&self, pause: Option<&ClusterPause>) -> Result<(), StoreError> {
        let held = self.context.store.paused_queues().await?;
        for (queue, is_wanted) in ClusterPause::rows(pause) {
            if held.iter().any(|row| row.queue == queue) == is_wanted {
                continue;
            }
            let pausing = if is_wanted { Pausing::Pause } else { Pausing::Resume };
            self.pause_queue(queue.to_owned(), pausing, None).await?;
            if queue == EVERY_QUEUE && !is_wanted {
                let depths = self.context.store.depths().await?;
                let queued = depths.into_iter().filter(|depth| depth.queued > 0);
                self.context.wake(queued.map(|depth| depth.lane));
            }
        }
        Ok(())
    }
}
