//! Tests of the `notify` of jobs on the wire.

use super::*;

#[test]
fn one_channel_or_a_list_names_channels() {
    let notify: NotifyBody =
        serde_json::from_str(r#"{"on_failure": "ops", "on_missed": ["ops", "mail"]}"#).unwrap();
    assert_eq!(notify.on_failure, Some(ChannelNames(vec!["ops".to_owned()])));
    let written = serde_json::to_string(&notify).unwrap();
    assert_eq!(written, r#"{"on_failure":"ops","on_missed":["ops","mail"]}"#);
    assert!(serde_json::from_str::<NotifyBody>(r#"{"on_fire": "ops"}"#).is_err());
    assert!(serde_json::from_str::<NotifyBody>(r#"{"on_late": 1}"#).is_err());
}
