//! A type name has one meaning in the workspace, so a reader who knows a name knows the type.

use super::Violation;
use super::source::RustSource;
use std::collections::BTreeMap;

/// Names that are declared several times on purpose, because all declarations mean the same thing.
const SHARED_NAMES: [&str; 3] = [
    // A page of a list: in the ports, and as it is sent.
    "Page",
    // The same adapter, in two crates that must not know each other.
    "TokioSpawn",
    // The worker, and the same worker as the client library offers it.
    "Worker",
];
/// Each module of commands names the arguments of its commands alike, such as `ListArgs`.
const SHARED_ENDING: &str = "Args";
/// The implementations of the store use the same names for the same things.
const STORE_IMPLEMENTATIONS: [&str; 4] = [
    "crates/store/src/sqlite/",
    "crates/store/src/server/",
    "crates/store/src/postgres/",
    "crates/store/src/mysql/",
];

/// Where a type is declared.
pub struct TypeDeclaration {
    name: String,
    path: String,
    /// From 1.
    line: usize,
}

/// The types that a file declares for the product.
pub fn declarations(source: &RustSource) -> Vec<TypeDeclaration> {
    let is_product = source.path.contains("/src/") && !source.path.contains("/conformance/");
    let lines = source.product_code.lines().enumerate().filter(|_| is_product);
    let declared = |(index, line): (usize, &str)| {
        let name = declared_name(line)?.to_owned();
        Some(TypeDeclaration { name, path: source.path.to_owned(), line: index + 1 })
    };
    lines.filter_map(declared).collect()
}

/// The name of the type that begins in this line. An indented `type` is the associated type of a trait.
fn declared_name(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(visible) => visible.trim_start_matches(|of: char| of != ' ').trim_start(),
        None => item,
    };
    let (keyword, rest) = item.split_once(' ')?;
    let is_item = ["struct", "enum", "trait"].contains(&keyword);
    let is_alias = keyword == "type" && !line.starts_with(' ');
    let end = rest.find(|of: char| !of.is_ascii_alphanumeric()).unwrap_or(rest.len());
    (is_item || is_alias).then_some(&rest[..end]).filter(|name| !name.is_empty())
}

pub fn repeated(declarations: &[TypeDeclaration]) -> Vec<Violation> {
    let mut known: BTreeMap<&str, Vec<&TypeDeclaration>> = BTreeMap::new();
    let mut violations = Vec::new();
    for one in declarations.iter().filter(|one| !is_shared(&one.name)) {
        let earlier = known.entry(&one.name).or_default();
        if let Some(other) = earlier.iter().find(|other| !implement_one_store(one, other)) {
            let advice = format!(
                "`{}` is also declared in {}:{}; name each type after what it is, or use one",
                one.name, other.path, other.line
            );
            violations.push(Violation { path: one.path.clone(), line: one.line, rule: "type names", advice });
        }
        earlier.push(one);
    }
    violations
}

fn is_shared(name: &str) -> bool {
    SHARED_NAMES.contains(&name) || name.ends_with(SHARED_ENDING)
}

/// Whether the types belong to different implementations of the store.
fn implement_one_store(one: &TypeDeclaration, other: &TypeDeclaration) -> bool {
    let implementation =
        |of: &TypeDeclaration| STORE_IMPLEMENTATIONS.iter().position(|folder| of.path.starts_with(folder));
    matches!((implementation(one), implementation(other)), (Some(one), Some(other)) if one != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(files: &[(&str, &str)]) -> Vec<String> {
        let declared = |(path, text): &(&str, &str)| declarations(&RustSource::new(path, text));
        let all: Vec<_> = files.iter().flat_map(declared).collect();
        repeated(&all).into_iter().map(|violation| format!("{}:{}", violation.path, violation.line)).collect()
    }

    #[test]
    fn a_type_name_is_declared_once() {
        for text in [
            "struct A;",
            "pub enum A {}",
            "pub(crate) trait A {}",
            "type A<T> = Vec<T>;",
            "    struct A(u8);",
        ] {
            let files = [("crates/core/src/a.rs", "\npub struct A {"), ("crates/api/src/b.rs", text)];
            assert_eq!(violations(&files), ["crates/api/src/b.rs:1"], "{text}");
        }
        let within = "struct A;\nmod b {\n    pub(super) struct A<'a>(&'a str);\n}";
        assert_eq!(violations(&[("xtask/src/a.rs", within)]), ["xtask/src/a.rs:3"]);
    }

    #[test]
    fn uses_tests_and_associated_types_declare_nothing() {
        let again = "use core::A;\n// struct A\nfn a() -> A {}\nimpl B for C {\n    type A = u8;\n}\n\
                     #[cfg(test)]\nmod tests { struct A; }\nstruct AB; struct_a!(A);";
        let files = [
            ("crates/core/src/a.rs", "struct A;"),
            ("crates/api/src/b.rs", again),
            ("crates/core/tests/a.rs", "struct A;"),
            ("crates/store/src/conformance/a.rs", "struct A;"),
        ];
        assert_eq!(violations(&files), [""; 0]);
    }

    #[test]
    fn names_for_the_same_thing_may_repeat() {
        let declared = |path, name: &str| (path, format!("struct {name};"));
        let repeats = |one, other, name| {
            let files = [declared(one, name), declared(other, name)];
            violations(&files.each_ref().map(|(path, text)| (*path, text.as_str()))).len()
        };
        assert_eq!(repeats("crates/cli/src/a.rs", "crates/cli/src/b.rs", "ListArgs"), 0);
        assert_eq!(repeats("crates/client/src/a.rs", "crates/core/src/b.rs", "Page"), 0);
        assert_eq!(repeats("crates/store/src/mysql/a.rs", "crates/store/src/sqlite/b.rs", "OpenError"), 0);
        assert_eq!(repeats("crates/store/src/mysql/a.rs", "crates/store/src/mysql/b.rs", "OpenError"), 1);
        assert_eq!(repeats("crates/store/src/mysql/a.rs", "crates/store/src/rows.rs", "OpenError"), 1);
    }
}
