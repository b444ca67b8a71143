//! Error chains for people to read: an error says what went wrong and leaves the reason to its source.

use std::error::Error;

/// The error and all its sources, on one line.
pub fn in_full(error: &dyn Error) -> String {
    causes(error).fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

/// The innermost source, for errors whose outer layers say nothing useful.
pub fn innermost(error: &dyn Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// All sources of an error, the innermost last.
pub fn causes<'a>(error: &'a (dyn Error + 'a)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Layer {
        said: &'static str,
        #[source]
        source: Option<Box<Layer>>,
    }

    fn layers(said: &[&'static str]) -> Layer {
        let (first, rest) = said.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(layers(rest)));
        Layer { said: first, source }
    }

    #[test]
    fn an_error_is_told_with_its_reasons_or_with_the_last_of_them() {
        let error = layers(&["cannot start", "the file cannot be read", "no such file"]);
        assert_eq!(in_full(&error), "cannot start: the file cannot be read: no such file");
        assert_eq!(innermost(&error), "no such file");
        let alone = layers(&["no reason"]);
        assert_eq!((in_full(&alone), innermost(&alone)), ("no reason".to_owned(), "no reason".to_owned()));
    }
}
