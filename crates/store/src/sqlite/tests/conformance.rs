//! One test per conformance case, each with its own database, whose tables must agree at the end.

use crate::conformance::CASES;

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let store = std::sync::Arc::new(super::super::open(dir.path()));
                crate::conformance::$module::$case(store.clone()).await;
                crate::conformance::counts_agree(&*store).await;
                assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
            })*
        }
    )*};
}
crate::each_conformance_case!(define);

#[test]
fn every_case_has_a_unique_name() {
    let names: std::collections::BTreeSet<_> = CASES.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), CASES.len());
    assert!(CASES.len() >= 240, "{} cases", CASES.len());
}
