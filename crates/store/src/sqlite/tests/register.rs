//! One test per case of the register.

use crate::conformance::register::Doors;
use std::sync::Arc;

macro_rules! define {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(super::open(dir.path()));
            let doors: Doors = vec![store.clone(), store.clone()];
            crate::conformance::register::$case(doors).await;
            assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
        }
    )*};
}
crate::each_register_case!(define);
