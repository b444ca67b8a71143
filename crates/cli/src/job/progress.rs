//! The progress of an execution, in a short form.

use punctual_client::ProgressBody;

/// Whole percents, for a bar.
pub fn whole_percent(progress: &ProgressBody) -> Option<u64> {
    progress.percent.map(|percent| u64::from(percent.hundredths() / 100))
}

/// `40% copying`, as short as possible.
pub fn told(progress: &ProgressBody) -> String {
    let percent = whole_percent(progress).map(|percent| format!("{percent}%"));
    let parts: Vec<String> = percent.into_iter().chain(progress.message.clone()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::notes::Percent;
    use punctual_core::time::Timestamp;

    #[test]
    fn progress_is_told_in_few_words() {
        let said = |percent: Option<f64>, message: Option<&str>| {
            let percent = percent.and_then(Percent::new);
            told(&ProgressBody { percent, message: message.map(str::to_owned), noted_at: Timestamp::EPOCH })
        };
        assert_eq!(said(Some(40.6), Some("copying")), "40% copying");
        assert_eq!(said(Some(100.0), None), "100%");
        assert_eq!(said(None, Some("copying")), "copying");
    }
}
