//! Tests of the settings as tables.

use super::*;

#[test]
fn defaults_and_examples_are_right() {
    for setting in all() {
        let text = match setting.default {
            Default::Is(text) => text,
            Default::Unset { such_as } => such_as,
        };
        let read = (setting.check)(&Raw::word(text), Path::new(""));
        assert!(read.is_ok(), "{}: {read:?}", setting.key);
    }
}

#[test]
fn names_of_flags_and_variables_follow_from_the_key() {
    let names = |key: &str| {
        let setting = all().into_iter().find(|setting| setting.key == key).unwrap();
        (setting.flag(), setting.variable())
    };
    let expect = |flag: &str, variable: &str| (flag.to_owned(), variable.to_owned());
    assert_eq!(names("drain_grace"), expect("drain-grace", "PUNCTUAL_DRAIN_GRACE"));
    assert_eq!(names("http.ca_file"), expect("http-ca-file", "PUNCTUAL_HTTP_CA_FILE"));
    assert_eq!(names("client.token_file"), expect("token-file", "PUNCTUAL_TOKEN_FILE"));
    assert_eq!(names("store.url"), expect("store", "PUNCTUAL_STORE"));
    assert_eq!(names("store.replica"), expect("store-replica", "PUNCTUAL_STORE_REPLICA"));
    let mut variables: Vec<String> = all().iter().map(|setting| setting.variable()).collect();
    variables.sort();
    variables.dedup();
    assert_eq!(variables.len(), all().len(), "two settings share a variable");
}
