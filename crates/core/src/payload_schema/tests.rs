//! Each keyword, and what is refused.

use super::*;

fn problem(schema: &str, payload: &str) -> Option<String> {
    let problem = PayloadSchema::parse(schema).unwrap().problem(payload)?;
    Some(format!("{} {}", problem.field, problem.fix))
}

#[test]
fn every_keyword_names_the_field_that_it_refuses() {
    for (schema, good, bad, said) in [
        (r#"{"type": "object"}"#, "{}", "[]", "payload must be an object"),
        (r#"{"type": ["string", "null"]}"#, "null", "1", "payload must be a string or null"),
        (r#"{"type": "integer"}"#, "1.0", "1.5", "payload must be a whole number"),
        (r#"{"enum": ["a", 1]}"#, "1.0", "\"b\"", "payload must be \"a\" or 1"),
        (r#"{"const": {"a": 1}}"#, r#"{"a": 1}"#, "{}", "payload must be {\"a\":1}"),
        (r#"{"required": ["id"]}"#, r#"{"id": 1}"#, "{}", "payload.id is missing"),
        (
            r#"{"properties": {"a": {"properties": {"b": {"type": "string"}}}}}"#,
            r#"{"a": {"b": "x", "c": 1}}"#,
            r#"{"a": {"b": 1}}"#,
            "payload.a.b must be a string",
        ),
        (
            r#"{"properties": {"url": true}, "additionalProperties": false}"#,
            r#"{"url": 1}"#,
            r#"{"urll": 1}"#,
            "payload.urll is unknown; known are url",
        ),
        (
            r#"{"additionalProperties": {"type": "null"}}"#,
            r#"{"a": null}"#,
            r#"{"a": 1}"#,
            "payload.a must be null",
        ),
        (r#"{"items": {"minimum": 1}}"#, "[1, 2]", "[1, 0]", "payload[1] must be at least 1"),
        (
            r#"{"prefixItems": [{"type": "string"}], "items": false}"#,
            "[\"a\"]",
            "[\"a\", 1]",
            "payload[1] is not allowed",
        ),
        (r#"{"minItems": 1}"#, "[0]", "[]", "payload must have at least 1 item"),
        (r#"{"uniqueItems": true}"#, "[1, 2]", "[1, 1.0]", "payload must not contain an item twice"),
        (r#"{"contains": {"const": 7}}"#, "[1, 7]", "[1]", "payload must contain an item"),
        (r#"{"maxLength": 2}"#, "\"äö\"", "\"abc\"", "payload must have at most 2 characters"),
        (r#"{"pattern": "^[a-z]+$"}"#, "\"abc\"", "\"A\"", "payload must match the pattern ^[a-z]+$"),
        (r#"{"format": "date-time"}"#, "\"2026-11-15T08:30:00Z\"", "\"x\"", "payload must be a time such as"),
        (
            r#"{"format": "email"}"#,
            "\"ada@example.com\"",
            "\"@example.com\"",
            "payload must be an email address",
        ),
        (r#"{"format": "date"}"#, "\"2026-11-15\"", "\"2026-13-01\"", "payload must be a date"),
        (r#"{"exclusiveMaximum": 10}"#, "9.9", "10", "payload must be below 10"),
        (r#"{"multipleOf": 0.1}"#, "0.3", "0.35", "payload must be a multiple of 0.1"),
        (
            r#"{"propertyNames": {"maxLength": 1}}"#,
            r#"{"a": 1}"#,
            r#"{"ab": 1}"#,
            "payload.ab must have at most 1",
        ),
        (
            r#"{"maxProperties": 1}"#,
            r#"{"a": 1}"#,
            r#"{"a": 1, "b": 2}"#,
            "payload must have at most 1 member",
        ),
        (
            r#"{"dependentRequired": {"a": ["b"]}}"#,
            r#"{"b": 1}"#,
            r#"{"a": 1}"#,
            "payload.b is missing, and needed with a",
        ),
        (r#"{"not": {"type": "string"}}"#, "1", "\"a\"", "payload has a form that the schema excludes"),
        (r#"{"allOf": [{"minimum": 1}, {"maximum": 2}]}"#, "2", "3", "payload must be at most 2"),
        (
            r#"{"anyOf": [{"type": "string"}, {"required": ["id"], "properties": {"id": {"type": "integer"}}}]}"#,
            r#"{"id": 1}"#,
            r#"{"id": "x"}"#,
            "payload.id must be a whole number (in one of several",
        ),
        (
            r#"{"oneOf": [{"minimum": 1}, {"minimum": 5}]}"#,
            "2",
            "6",
            "payload matches 2 of the allowed forms",
        ),
        (
            r##"{"$defs": {"tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/tree"}}, "n": {"type": "number"}}}}, "$ref": "#/$defs/tree"}"##,
            r#"{"kids": [{"kids": [{"n": 1}]}]}"#,
            r#"{"kids": [{"kids": [{"n": "x"}]}]}"#,
            "payload.kids[0].kids[0].n must be a number",
        ),
    ] {
        assert_eq!(problem(schema, good), None, "{schema}");
        let found = problem(schema, bad).unwrap_or_default();
        assert!(found.starts_with(said), "{schema}: {found}");
    }
}

#[test]
fn a_secret_is_valid_everywhere() {
    let schema = r#"{"properties": {"password": {"type": "string", "minLength": 8}}}"#;
    assert_eq!(problem(schema, r#"{"password": {"$secret": "p"}}"#), None);
    assert!(problem(schema, r#"{"password": {"$secret": 1}}"#).is_some());
}

#[test]
fn schemas_that_would_not_be_checked_are_refused() {
    for (schema, said) in [
        ("{", "schema must be JSON"),
        ("[]", "schema must be a schema"),
        (r#"{"typ": "string"}"#, "schema.typ is a keyword that Punctual does not check"),
        (r#"{"properties": {"a": {"if": {}}}}"#, "schema.properties.a.if is a keyword"),
        (r#"{"type": "text"}"#, "schema.type must be one of object"),
        (r#"{"format": "hostname"}"#, "schema.format must be one of date-time"),
        (r#"{"pattern": "(?=a)"}"#, "schema.pattern must be a regular expression"),
        (r#"{"$ref": "https://example.com/schema"}"#, "schema.$ref must refer to a definition"),
        (r##"{"$ref": "#/$defs/a"}"##, "schema refers to #/$defs/a, which is not in $defs"),
        (r#"{"minLength": -1}"#, "schema.minLength must be a whole number"),
        (r#"{"anyOf": []}"#, "schema.anyOf must be a list"),
        (r#"{"multipleOf": 0}"#, "schema.multipleOf must be above 0"),
        (r#"{"items": {"$defs": {}}}"#, "schema.items.$defs must be at the top"),
    ] {
        let error = PayloadSchema::parse(schema).unwrap_err();
        let error = format!("{} {}", error.field, error.fix);
        assert!(error.starts_with(said), "{schema}: {error}");
    }
}

#[test]
fn a_check_ends() {
    let circle = r##"{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}"##;
    assert!(problem(circle, "1").unwrap().contains("takes too many steps"));
    let both = r##"{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}, "b": {"items": {"$ref": "#/$defs/a"}, "type": "array"}}, "$ref": "#/$defs/a"}"##;
    let deep = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    assert!(problem(both, &deep).unwrap().contains("takes too many steps"));
}

#[test]
fn large_patterns_are_refused_with_their_place() {
    let refused = |schema: String| {
        let error = PayloadSchema::parse(&schema).unwrap_err();
        format!("{} {}", error.field, error.fix)
    };
    let one = refused(r#"{"properties": {"a": {"pattern": "\\w{90}"}}}"#.to_owned());
    assert!(
        one.starts_with("schema.properties.a.pattern is a pattern that compiles to more than 512 KiB"),
        "{one}"
    );
    let patterns = |count: usize, pattern: &dyn Fn(usize) -> String| {
        let parts: Vec<String> =
            (0..count).map(|part| format!(r#"{{"pattern": "{}"}}"#, pattern(part))).collect();
        format!(r#"{{"anyOf": [{}]}}"#, parts.join(","))
    };
    let many = refused(patterns(limits::SCHEMA_PATTERNS_MAX + 1, &|part| format!("a{part}")));
    assert!(
        many.starts_with("schema.anyOf[100].pattern is one of more than 100 different patterns"),
        "{many}"
    );
    let together = refused(patterns(limits::SCHEMA_PATTERNS_MAX, &|part| format!(r"\\w{{4}}{part}")));
    assert!(together.contains("brings the patterns of the schema to more than 4096 KiB"), "{together}");
    // The same pattern in many places is compiled once.
    let same = PayloadSchema::parse(&patterns(1_000, &|_| r"\\w{4}".to_owned())).unwrap();
    assert!(same.bytes() < limits::SCHEMA_PATTERNS_BYTES_MAX, "{}", same.bytes());
}

#[test]
fn long_texts_and_large_patterns_take_many_steps() {
    let schema = |count: usize| {
        let parts = vec![r##"{"not": {"$ref": "#/$defs/p"}}"##; count].join(",");
        format!(r##"{{"$defs": {{"p": {{"pattern": "[ab]*a[ab]{{900}}c"}}}}, "allOf": [{parts}]}}"##)
    };
    let text = |bytes: usize| format!("\"{}\"", "ab".repeat(bytes / 2));
    assert_eq!(problem(&schema(1), &text(2_000)), None);
    let said = problem(&schema(1_000), &text(100_000)).unwrap();
    assert!(said.contains("takes too many steps") && said.contains("more than 100000"), "{said}");
    // Everyday patterns match the longest payloads.
    let longest = text(limits::PAYLOAD_BYTES_MAX - 2);
    assert_eq!(problem(r#"{"pattern": "^[a-z]+$"}"#, &longest), None);
    assert_eq!(problem(r#"{"pattern": "^\\S+$"}"#, &text(20_000)), None);
    assert_eq!(problem(r#"{"pattern": "^\\w+$", "maxLength": 200}"#, &text(200)), None);
    // A text that is too long is not searched.
    let said = problem(r#"{"pattern": "^\\w+$", "maxLength": 200}"#, &longest).unwrap();
    assert!(said.contains("at most 200 characters"), "{said}");
    // Neither is a long text, a list of values or a large object read any number of times.
    let refs = |definition: &str| {
        let parts = vec![r##"{"$ref": "#/$defs/p"}"##; 2_000].join(",");
        format!(r##"{{"$defs": {{"p": {definition}}}, "allOf": [{parts}]}}"##)
    };
    let values: Vec<String> = (0..4_000).map(|value| value.to_string()).collect();
    let members: Vec<String> = (0..4_000).map(|name| format!("\"{name}\": 0")).collect();
    for (schema, payload) in [
        (refs(r#"{"format": "uri"}"#), format!("\"https://example.com/{}\"", "a".repeat(100_000))),
        (refs(&format!(r#"{{"enum": [{}]}}"#, values.join(","))), "3999".to_owned()),
        (refs(r#"{"properties": {"a": true}}"#), format!("{{{}}}", members.join(","))),
    ] {
        assert!(problem(&schema, &payload).unwrap().contains("takes too many steps"));
    }
}

#[test]
fn names_of_job_types_can_be_part_of_a_url() {
    for name in
        ["send-mail", "com.example.ReportJob", "Stats::RollupWorker", "shop.tasks.ping", "nightly report"]
    {
        assert_eq!(job_type_problem(name), None, "{name}");
    }
    for name in ["", ".", "..", " a", "a\nb"] {
        assert!(job_type_problem(name).is_some(), "{name}");
    }
}
